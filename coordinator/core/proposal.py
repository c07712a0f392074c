"""Proposal of the next cut: `Candidate` is that cut on its way into the log.

A coordinator chooses a candidate, lets its files be checked, appends it, and reads it back. It is work in
hand: the fold of the log compares no times, and no validity depends on one.

All waits count by the own clock, from what this coordinator has seen: append times are of the broker's clock,
which may be wrong or jump. So a new coordinator waits once more for regions whose answer it does not know.
"""

from collections.abc import Collection, Iterator, Mapping

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.effects import Append, CheckFiles, FilesChecked, MachineSettings, RetrySlot
from sluicegate.coordinator.core.log import Applied, Log
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
        self._waits: dict[str, tuple[Position, int]] = {}
        """By region, its first sealed checkpoint, and the time at which it was seen, with the log read."""
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
        """True if something was read since `_waits` was last updated."""
        self._waited = cuts.NOT_WAITED
        self._chosen: CutDecided | CutAbandoned | None = None
        self._premises: tuple[object, ...] | None = None
        """Premises of `_chosen`, beside the log, if it is up to date. Its digest is expensive."""
        self._full_at: int | None = None
        """Time at which the sealed files reached one of the maxima."""
        self._own = RetrySlot(f"{log.stream}/own", settings.first_pause, settings.longest_pause)
        """Events of this coordinator. Those without effect are repeated ever more slowly."""
        self._void_at = -1
        """Offset of the newest event without effect: it may be read before its append is acknowledged."""

    def arrived(self) -> None:
        """Note that a record was read."""
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
        """Note that an own event was read; a void one may be an error of this coordinator."""
        if void:
            self._own.failed(now)
        else:
            self._own.succeeded()

    def may_append(self, now: int) -> bool:
        """True if this coordinator may append an event of its own."""
        return self._own.is_free(now)

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
        log = self._log
        if acting and self._unseen:
            self._unseen = False
            first = {name: found[0].position for name in log.state.regions if (found := log.known(name))}
            seen = self._waits
            self._waits = {
                name: seen[name] if name in seen and seen[name][0] == at else (at, now)
                for name, at in first.items()
            }
        self._waited = cuts.NOT_WAITED
        if not acting or log.state.unresolved is not None or not cuts.may_be_partial(log):
            return False
        moves = cuts.next_moves(log, self.excluded)
        since = min((self._waits[name][1] for name in moves), default=None)
        lagging = cuts.falling_back(log, moves)
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
        self._answers = {
            name: life for name, life in self._answers.items() if name in lagging and life == self._life(name)
        }

    def _life(self, name: str) -> str | None:
        return self._log.state.region(name).live_incarnation

    def _timeout(self, name: str) -> int:
        return self._settings.alignment_timeouts.get(name, self._settings.alignment_timeout)

    def _due_at(self, now: int) -> int:
        """Return the time at which a cut is due. The amounts count only while it is not."""
        settings, due = self._settings, 0
        if self._decided_at is not None and settings.commit_interval:
            due = self._decided_at + settings.commit_interval
        most_files, most_bytes = settings.commit_max_files, settings.commit_max_bytes
        if now >= due or (most_files is None and most_bytes is None):
            return due
        # Only what the cut would take: the next one takes nothing of a region that cannot move.
        moves = cuts.next_moves(self._log, self.excluded)
        taken = [each for found in cuts.checkpoints_in(self._log, moves).values() for each in found]
        parts = [part for each in taken for part in each.checkpoint.named]
        files, size = sum(each.files for each in parts), sum(each.bytes for each in parts)
        is_full = most_files is not None and files >= most_files
        if not is_full and (most_bytes is None or size < most_bytes):
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
        terms = state.policy.allowed_locations, table, names_checked
        content = cuts.checkpoints_in(self._log, moves)
        touched = {
            name: frozenset().union(*(each.tables for each in taken)) for name, taken in content.items()
        }
        tables = {name: state.tables[name] for name in sorted(frozenset().union(*touched.values()))}
        return CheckFiles(parts, *terms, tables, touched, moves)

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
        return (part.offset for each in self._log.known(name) for part in each.checkpoint.named)

    def _excluded_moves(self) -> dict[str, Position]:
        """Return how far the excluded regions could move; those without sealed work are not excluded."""
        found: dict[str, Position] = {}
        for name in list(self.excluded):
            sealed = self._log.known(name)
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
