"""Candidate: the next cut on its way into the log. It is chosen, checked, appended and read back."""

from collections.abc import Container
from typing import Final

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.effects import Append, CheckFiles, PartsOf
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.replica import Applied
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.timers import Alignment, Cadence, LogClock
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CutAbandoned, CutDecided, Head, Position, StreamCommand, StreamPolicy
from sluicegate.events.problems import Problem

_FIRST_PAUSE: Final = 50
_LONGEST_PAUSE: Final = 10_000


class Candidate:
    """The cut that one coordinator would decide next. Only a decision that is read back is one."""

    def __init__(self, log: Log, settings: MachineSettings) -> None:
        self.clock = LogClock()
        self.alignment = Alignment(settings.alignment_timeout, self.clock)
        self.cadence = Cadence(settings.commit_interval, settings.commit_max_files, settings.commit_max_bytes)
        self.excluded: dict[str, Problem] = {}
        """Regions whose files the table would not take."""
        self.appended_at: int | None = None
        """Offset of the last entry of this coordinator, until it is read back."""
        self._log = log
        self._recheck_pause = settings.stall_pause
        self._recheck_at = 0
        self._checked: set[int] = set()
        self._unseen = True
        """True if something was read since the alignment timers were last updated."""
        self._expired = False
        self._chosen: CutDecided | CutAbandoned | None = None
        self._fresh = False
        """True if `_chosen` is up to date. Choosing is expensive: the digest covers all events of the cut."""
        self._full_at: int | None = None
        """Time at which the sealed files reached one of the maxima."""
        self._voids = 0
        """Number of decisions of this coordinator in a row were void."""
        self._resume_at = 0

    def arrived(self, time: int) -> None:
        """Note a record that was read; `time` is its append time."""
        self.clock.read(time)
        self._unseen, self._fresh = True, False

    def read(self, record: LogRecord, applied: Applied, now: int) -> None:
        """Note the consequences of a new record."""
        if applied.answer is not None:
            # A new incarnation has other files.
            self.excluded.pop(record.envelope.region, None)
        if applied.resolved is not None:
            self._checked.difference_update(applied.resolved.parts)
        match record.body:
            case CutDecided():
                self._judged(record.offset, now, void=applied.ignored is not None)
            case CutAbandoned() if applied.ignored is None:
                self.alignment.abandoned(now)
            case StreamPolicy():
                self._checked.clear()
                self._recheck_at = 0
            case StreamCommand():
                # The order may be about files that were refused: check them again at once.
                self._recheck_at = 0

    def _judged(self, offset: int, now: int, *, void: bool) -> None:
        """Note that a decision was read. A coordinator repeats void ones ever more slowly."""
        if not void:
            self.cadence.decided(now)
        if offset == self.appended_at:
            # Another coordinator was faster: that happens once. Two void ones in a row point to an error.
            self._voids = self._voids + 1 if void else 0
            pause = _FIRST_PAUSE * 2 ** min(self._voids, 16) if self._voids > 1 else 0
            self._resume_at = now + min(pause, _LONGEST_PAUSE)

    def read_upto(self, position: int) -> None:
        """Note that everything before `position` was read."""
        if self.appended_at is not None and position > self.appended_at:
            self.appended_at = None

    def align(self, now: int, *, acting: bool) -> bool:
        """Check whether lagging regions fall back now. Return whether the log's end must be fetched first."""
        self.clock.tick(now)
        log = self._log
        if acting and self._unseen:
            self._unseen = False
            first = {name: sealed[0] for name in log.state.regions if (sealed := log.sealed(name))}
            self.alignment.update(first, now)
        expired, since = False, None
        if acting and log.state.pending is None and cuts.may_be_partial(log):
            since = self.alignment.since(cuts.movable(log, self.excluded), self._due_at(now))
            expired = self.alignment.expired(since, now)
        self._fresh = self._fresh and expired == self._expired
        self._expired = expired
        return expired and self.alignment.needs_end(since)

    def _due_at(self, now: int) -> int:
        """Return the time at which a cut is due. The amounts count only while it is not."""
        due = self.cadence.due_at()
        if now >= due or not self.cadence.has_maxima:
            return due
        sealed = [each for name in self._log.state.regions for each in self._log.sealed(name)]
        parts = [part for each in sealed for part in each.checkpoint.named]
        files, size = sum(each.files for each in parts), sum(each.bytes for each in parts)
        if not self.cadence.is_full(files, size):
            self._full_at = None
            return due
        self._full_at = now if self._full_at is None else self._full_at
        return self._full_at

    def _find(self, now: int, excluded: Container[str]) -> CutDecided | CutAbandoned | None:
        """Return the cut to decide now; None while there is none, or while it is not due."""
        if excluded is not self.excluded:
            chosen = cuts.choose(self._log, excluded, expired=self._expired)
        else:
            if not self._fresh:
                self._chosen = cuts.choose(self._log, excluded, expired=self._expired)
                self._fresh = True
            chosen = self._chosen
        # Cadence delays neither barriers nor forced cuts.
        if chosen is None or isinstance(chosen, CutAbandoned) or chosen.final or cuts.is_forced(self._log):
            return chosen
        return chosen if now >= self._due_at(now) else None

    def next_check(self, now: int, table: str) -> CheckFiles | None:
        """Return the check of files that no check has passed yet, for the next cut."""
        state = self._log.state
        if state.policy is None or state.paused or self.appended_at is not None:
            return None
        again = bool(self.excluded) and now >= self._recheck_at
        chosen = self._find(now, () if again else self.excluded)
        parts: tuple[PartsOf, ...] = ()
        if isinstance(chosen, CutDecided):
            parts = self._unchecked(chosen.cut)
        elif again:
            parts = self._unchecked(self._excluded_moves())
        if not parts:
            return None
        return CheckFiles(parts, state.policy.allowed_locations, table, state.policy.file_names == "checked")

    def entry(self, now: int, head: Head | None) -> Append | None:
        """Return the event of the cut, once all of its files are checked; `head` is that of the table."""
        chosen = self._find(now, self.excluded) if now >= self._resume_at else None
        if isinstance(chosen, CutAbandoned):
            return Append(EventType.CUT_ABANDONED, chosen)
        if chosen is None or self._unchecked(chosen.cut):
            return None
        return Append(EventType.CUT_DECIDED, chosen.model_copy(update={"head": head}))

    def checked(self, effect: CheckFiles, problems: dict[str, Problem], now: int) -> None:
        """Note the result of a check: a region with a problem is excluded until the next check."""
        self._fresh = False
        for part in effect.parts:
            self.excluded.pop(part.region, None)
            if part.region not in problems:
                self._checked.update(part.offsets)
        for name, problem in problems.items():
            self.excluded[name] = problem.model_copy(update={"region": name})
        if problems:
            self._recheck_at = now + self._recheck_pause

    def _excluded_moves(self) -> dict[str, Position]:
        """Return how far the excluded regions could move; those without sealed work are not excluded."""
        found: dict[str, Position] = {}
        for name in list(self.excluded):
            sealed = self._log.sealed(name)
            if not sealed or self._log.state.regions[name].fault is not None:
                del self.excluded[name]
                self._fresh = False
            else:
                found[name] = sealed[-1].position
        return found

    def _unchecked(self, cut: dict[str, Position]) -> tuple[PartsOf, ...]:
        regions = self._log.state.regions
        moves = {name: at for name, at in cut.items() if at != regions[name].position}
        found: list[PartsOf] = []
        for name, checkpoints in cuts.included(self._log, moves).items():
            parts = [part.offset for each in checkpoints for part in each.checkpoint.named]
            fresh = tuple(offset for offset in parts if offset not in self._checked)
            if fresh:
                found.append(PartsOf(name, fresh))
        return tuple(found)
