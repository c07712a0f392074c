"""Proposal of the next cut: `Candidate` is that cut on its way into the log.

A coordinator chooses a candidate, lets its files be checked, appends it, and reads it back. `Alignment` gives
it the time from which sealed checkpoints wait for lagging regions. Both are work in hand: the fold of the log
compares no times, and no validity depends on one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.effects import Append, CheckFiles, FilesChecked, MachineSettings
from sluicegate.coordinator.core.log import Applied, Log, Sealed
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import (
    CutAbandoned,
    CutDecided,
    Position,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.problems import Problem


class Alignment:
    """The wait after which lagging regions fall back.

    It counts by the own clock, from the moment a record was read. Append times count only for records that
    were in the log before this coordinator had first read to its end. They are clamped, as the broker's clock
    may jump or be wrong, and may differ from the own clock by any amount.
    """

    def __init__(self) -> None:
        self._waits: dict[str, tuple[Position, int]] = {}
        """By region, the first sealed checkpoint after its position, and the time from which it waits."""
        self._started = False
        self._appended = 0
        """Append time of the last record. Only this one counts: the broker's clock may have jumped."""
        self._read_at: int | None = None
        """Time by the own clock at which the last record was read."""
        self._fresh = False

    def observe(self, time: int) -> None:
        """Note a record's append time."""
        self._appended, self._fresh = time, True

    def tick(self, now: int) -> None:
        """Note the time at which the last record was read."""
        if self._fresh or self._read_at is None:
            self._read_at, self._fresh = now, False

    def update(self, sealed: Mapping[str, Sealed], now: int) -> None:
        """Note the first sealed checkpoint of each region, with the log read to its end."""
        self._waits = {name: (each.position, self._since(name, each, now)) for name, each in sealed.items()}
        self._started = True

    def _since(self, name: str, sealed: Sealed, now: int) -> int:
        known = self._waits.get(name)
        if known is not None and known[0] == sealed.position:
            return known[1]
        if self._started or self._read_at is None:
            return now
        return self.own_time(sealed.time)

    def own_time(self, appended: int) -> int:
        """Return the time by the own clock of an append time, never later than the last record was read."""
        return (self._read_at or 0) - max(0, self._appended - appended)

    def since(self, names: Iterable[str]) -> int | None:
        """Return the time from which a sealed checkpoint of these regions waits; None if there is none."""
        return min((self._waits[name][1] for name in names if name in self._waits), default=None)


_FIRST_PAUSE: Final = 50
_LONGEST_PAUSE: Final = 10_000


class Candidate:
    """The cut that one coordinator would decide next. Only a decision that is read back is one."""

    def __init__(self, log: Log, settings: MachineSettings, excluded: Mapping[str, Problem]) -> None:
        """`excluded`: regions that the coordinator before has excluded; they are checked again at once."""
        self.excluded = dict(excluded)
        """Regions whose files the table would not take."""
        self._upto: dict[str, Position] = {}
        """Regions of which a part fits into the next commit, with the last checkpoint of that part.

        Once that is decided, it is sealed no more, and limits nothing.
        """
        self.appended_at: int | None = None
        """Offset of the last entry of this coordinator, until it is read back."""
        self._log = log
        self._settings = settings
        self._alignment = Alignment()
        self._decided_at: int | None = None
        self._abandoned_at = 0
        """Time of the newest abandoned attempt: no wait begins before it."""
        self._answers: dict[str, str | None] = {}
        """Regions that count as absent by their time, each with its incarnation of then."""
        self._silent: set[str] = set()
        """Silent regions, with the end of the log read that was fetched after that."""
        self._end_fetched_for: tuple[object, ...] | None = None
        """The expiries after which the log's end was fetched."""
        self._recheck_at = 0
        self._checked: set[int] = set()
        self._unseen = True
        """True if something was read since the alignment timers were last updated."""
        self._waited = cuts.NOT_WAITED
        self._chosen: CutDecided | CutAbandoned | None = None
        self._premises: tuple[object, ...] | None = None
        """Premises of `_chosen`, beside the log, if it is up to date. Its digest is expensive."""
        self._full_at: int | None = None
        """Time at which the sealed files reached one of the maxima."""
        self._voids = 0
        """Number of events of this coordinator, in a row, that were without effect."""
        self._void_at = -1
        """Offset of the newest event without effect: it may be read before its append is acknowledged."""
        self.resume_at = 0
        """Time before which this coordinator appends no event of its own."""

    def own_time(self, appended: int) -> int:
        """Return the time by the own clock of an append time."""
        return self._alignment.own_time(appended)

    def arrived(self, time: int) -> None:
        """Note a record that was read; `time` is its append time."""
        self._alignment.observe(time)
        self._unseen, self._premises = True, None

    def observe(self, record: LogRecord, applied: Applied, now: int) -> None:
        """Note the consequences of a new record."""
        if applied.answer is not None and applied.answer.run == record.envelope.id:
            # A new incarnation has other files. A probe, which comes after each stall, changes nothing.
            self.excluded.pop(record.envelope.region, None)
        if applied.resolved is not None:
            self._checked.difference_update(applied.resolved.parts)
        if applied.ignored is not None:
            self._void_at = record.offset
        if record.offset == self.appended_at:
            self._judged(now, void=applied.ignored is not None)
        match record.body:
            case CutDecided() if applied.ignored is None:
                self._decided_at = now
            case CutAbandoned() if applied.ignored is None:
                self._abandoned_at = now
            case StreamPolicy():
                self._checked.clear()
                self._recheck_at = 0
            case StreamCommand():
                # The order may be about files that were refused: check them again at once.
                self._recheck_at = 0

    def appended(self, offset: int, now: int) -> None:
        """Note that an event of this coordinator is in the log, at this offset."""
        self.appended_at = offset
        if offset == self._void_at:
            self._judged(now, void=True)

    def _judged(self, now: int, *, void: bool) -> None:
        """Note that an own event was read. A coordinator repeats those without effect ever more slowly."""
        # Another coordinator was faster: that happens once. Two void ones in a row point to an error.
        self._voids = self._voids + 1 if void else 0
        pause = _FIRST_PAUSE * 2 ** min(self._voids, 16) if self._voids > 1 else 0
        self.resume_at = now + min(pause, _LONGEST_PAUSE)

    def read_upto(self, position: int) -> None:
        """Note that everything before `position` was read."""
        if self.appended_at is not None and position > self.appended_at:
            self.appended_at = None

    def align(self, now: int, silent: Collection[str], *, acting: bool) -> bool:
        """Check whether lagging regions fall back now. Return whether the log's end must be fetched first.

        A lagging region is *absent* if its answer is known: it cannot move soon (`cuts.cannot_move`), its
        driver is silent, or its time has passed once. That lasts until it seals something, is idle, or has
        another incarnation. A cut is taken at once if all lagging regions are absent. A forced attempt gives
        them their time once more, and is abandoned at once for one that cannot move.
        """
        self._alignment.tick(now)
        log = self._log
        if acting and self._unseen:
            self._unseen = False
            first = {name: sealed[0] for name in log.state.regions if (sealed := log.sealed(name))}
            self._alignment.update(first, now)
        self._waited = cuts.NOT_WAITED
        if not acting or log.state.unresolved is not None or not cuts.may_be_partial(log):
            return False
        moves = cuts.next_moves(log, self.excluded)
        since, lagging = self._alignment.since(moves), cuts.falling_back(log, moves)
        self._forget_answers(lagging, silent)
        if since is None or not lagging:
            return False
        unmovable = [name for name in lagging if cuts.cannot_move(log, name, self.excluded)]
        # An operator who waits for a savepoint waits for no interval.
        due_at = 0 if log.state.has_savepoint else self._due_at(now)
        forced, begin = cuts.is_forced(log), max(since, due_at)
        if forced:
            begin = max(begin, self._decided_at or 0)
        known = {*unmovable, *self._silent, *(() if forced else self._answers)}
        waits = [name for name in lagging if name not in known]
        quiet = [name for name in waits if name in silent]
        over = [name for name in waits if name in quiet or now >= begin + self._timeout(name)]
        if len(over) < len(waits):
            # A region that cannot move spoils the forced attempt, whatever the others do.
            self._waited = cuts.Waited(forced=len(waits) < len(lagging) and now >= begin)
            return False
        if over and (expiries := (begin, *over)) != self._end_fetched_for:
            self._end_fetched_for = expiries
            return True
        self._silent.update(quiet)
        for name in over:
            if name not in self._silent:
                self._answers[name] = self._life(name)
        due = now >= begin
        paced = now >= max(begin, self._abandoned_at) + self._settings.alignment_timeout
        self._waited = cuts.Waited(partial=due, forced=due, ratio=due and paced)
        return False

    def _forget_answers(self, lagging: Collection[str], silent: Collection[str]) -> None:
        """Forget the answers of regions that do not lag any more, are heard, or have another incarnation."""
        self._silent.intersection_update(lagging, silent)
        for name in [name for name, life in self._answers.items() if life != self._life(name)]:
            del self._answers[name]
        self._answers = {name: life for name, life in self._answers.items() if name in lagging}

    def _life(self, name: str) -> str | None:
        return self._log.state.region(name).live_incarnation

    def _timeout(self, name: str) -> int:
        return self._settings.alignment_timeouts.get(name, self._settings.alignment_timeout)

    def _due_at(self, now: int) -> int:
        """Return the time at which a cut is due. The amounts count only while it is not."""
        settings, due = self._settings, 0
        if self._decided_at is not None and settings.commit_interval:
            due = self._decided_at + settings.commit_interval
        if now >= due or not settings.has_maxima:
            return due
        # Only what the cut would take: the next one takes nothing of a region that cannot move.
        moves = cuts.next_moves(self._log, self.excluded)
        taken = [each for found in cuts.checkpoints_in(self._log, moves).values() for each in found]
        parts = [part for each in taken for part in each.checkpoint.named]
        files, size = sum(each.files for each in parts), sum(each.bytes for each in parts)
        if not settings.is_full(files, size):
            self._full_at = None
            return due
        self._full_at = now if self._full_at is None else self._full_at
        return self._full_at

    def _find(self, now: int, excluded: Collection[str]) -> CutDecided | CutAbandoned | None:
        """Return the cut to decide now; None while there is none, or while it is not due."""
        premises = (self._waited, *sorted(excluded), *sorted(self._upto.items(), key=lambda each: each[0]))
        if premises != self._premises:
            self._chosen = cuts.choose(self._log, excluded, waited=self._waited, upto=self._upto)
            self._premises = premises
        chosen = self._chosen
        if chosen is None or isinstance(chosen, CutAbandoned) or now >= self._due_at(now):
            return chosen
        return chosen if cuts.is_urgent(self._log, cuts.moves_of(self._log, chosen.cut)) else None

    def next_check(self, now: int, table: str) -> CheckFiles | None:
        """Return the check of files that no check has passed yet, for the next cut."""
        state = self._log.state
        if state.paused or self.appended_at is not None:
            return None
        # Now and then the cut is chosen without exclusions, to see whether those files are good by now.
        again = bool(self.excluded) and now >= self._recheck_at
        chosen = self._find(now, () if again else self.excluded)
        cut: dict[str, Position] = {}
        if isinstance(chosen, CutDecided):
            cut = chosen.cut
        elif again:
            cut = self._excluded_moves()
        if not (parts := self._unchecked(cut)):
            return None
        names_checked, moves = state.policy.file_names == "checked", cuts.moves_of(self._log, cut)
        return CheckFiles(parts, state.policy.allowed_locations, table, names_checked, moves)

    def next_append(self, now: int, head: SnapshotRef | None) -> Append | None:
        """Return the event of the cut, once all of its files are checked; `head` is that of the table."""
        chosen = self._find(now, self.excluded)
        if isinstance(chosen, CutAbandoned):
            return Append(EventType.CUT_ABANDONED, chosen)
        if chosen is None or self._unchecked(chosen.cut):
            return None
        return Append(EventType.CUT_DECIDED, chosen.model_copy(update={"head": head}))

    def checked(self, effect: CheckFiles, found: FilesChecked, now: int) -> None:
        """Note the result of a check: a region with a problem is excluded until the next check.

        A limit only falls until it is decided. Two regions that limit each other could else take turns.
        """
        for name, offsets in effect.parts.items():
            self.excluded.pop(name, None)
            if name not in found.problems:
                self._checked.update(each for each in offsets if each not in found.left)
        self._upto.update(found.upto)
        for name, problem in found.problems.items():
            self.excluded[name] = problem.model_copy(update={"region": name})
            # The problem may be the size of the whole commit: events that passed before are checked again.
            self._checked.difference_update(self._sealed_parts(name))
        if found.problems:
            self._recheck_at = now + self._settings.stall_pause
        self._premises = None

    @property
    def has_unchecked(self) -> bool:
        """True if there are sealed files that no check has passed yet."""
        return any(
            offset not in self._checked
            for name in self._log.state.regions
            for offset in self._sealed_parts(name)
        )

    def _sealed_parts(self, name: str) -> Iterator[int]:
        """Yield the offsets of the events of a region's sealed checkpoints."""
        return (part.offset for each in self._log.sealed(name) for part in each.checkpoint.named)

    def _excluded_moves(self) -> dict[str, Position]:
        """Return how far the excluded regions could move; those without sealed work are not excluded."""
        found: dict[str, Position] = {}
        for name in list(self.excluded):
            sealed = self._log.sealed(name)
            if not sealed or self._log.state.regions[name].fault is not None:
                del self.excluded[name]
            else:
                found[name] = sealed[-1].position
        return found

    def _unchecked(self, cut: dict[str, Position]) -> dict[str, tuple[int, ...]]:
        """Return, by region, the events that a cut would take, and that no check has passed yet."""
        found: dict[str, tuple[int, ...]] = {}
        for name, checkpoints in cuts.checkpoints_in(self._log, cuts.moves_of(self._log, cut)).items():
            parts = [part.offset for each in checkpoints for part in each.checkpoint.named]
            if fresh := tuple(offset for offset in parts if offset not in self._checked):
                found[name] = fresh
        return found
