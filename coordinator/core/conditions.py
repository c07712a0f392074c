"""Conditions: the one answer to the question why a stream, or a region of it, does not progress.

Status, the view and notifications about stalls show this list. Nothing is decided by it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.effects import MachineSettings, Retries
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.savepoints import lacking
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.problems import Code, Problem

_CHECKS: Final = 10
"""Number of checks within the time after which something is overdue."""


class _Lack(NamedTuple):
    """An event or a predecessor that a completed checkpoint lacks."""

    region: str
    incarnation: str
    checkpoint: int
    code: Code


class Conditions:
    """The conditions of one stream, and its overdue checkpoints.

    Events out of order are normal, and no stall. A completed checkpoint that still lacks something after a
    while, with the log read to an end fetched after that, is a stall of its region.
    """

    def __init__(
        self,
        log: Log,
        retries: Retries,
        excluded: Mapping[str, Problem],
        refused: Mapping[str, Problem],
        strays: Mapping[str, Problem],
        settings: MachineSettings,
    ) -> None:
        """`excluded` are regions whose files the table would not take.

        `refused`: by region, the refusal of its newest registration.
        `strays`: regions that have ended, and of which a query still runs.
        """
        self._log = log
        self._retries = retries
        self._excluded = excluded
        self._refused = refused
        self._strays = strays
        self._settings = settings
        self.log_time = 0
        """Append time of the newest record, in milliseconds."""
        self._after = settings.overdue_after
        self._interval = max(1, self._after // _CHECKS)
        self._checked_at = -self._interval
        self._since: dict[_Lack, int] = {}
        """By lack, the time at which it was first seen."""
        self._overdue: set[_Lack] = set()

    # --- the list ---------------------------------------------------------------------------------

    def stalls(self, stall: Problem | None) -> list[Problem]:
        """Return the problems of the conditions that are stalls, the gravest first."""
        found = [stall] if stall is not None else []
        found += [each.problem for each in self._retries.conditions() if each.kind == "stall"]
        return [*found, *self._of_regions()]

    def is_over(self, stall: Problem) -> bool:
        """True if a region lacks nothing that could become this stall, with the log read to its end."""
        return all(lack.region != stall.region for lack in self._lacks())

    def all(self, stall: Problem | None, retry_in: int) -> list[Condition]:
        """Return every condition, the gravest first; `stall` is that of the whole stream."""
        found = [Condition(kind="stall", problem=stall, retry_in=retry_in)] if stall is not None else []
        found += self._retries.conditions()
        if self._log.state.paused:
            found.append(Condition(kind="pause", problem=Problem(code=Code.PAUSED)))
        found += [Condition(kind="stall", problem=each) for each in self._of_regions()]
        found += [Condition(kind="refusal", problem=each) for each in self._refusals()]
        found += [Condition(kind="refusal", problem=each) for each in self._strays.values()]
        found += [Condition(kind="refusal", problem=each) for each in self._doubts()]
        found += [Condition(kind="wait", problem=each) for each in self._absences()]
        lagging = tuple(self._log.lagging())
        if lagging and any(self._log.sealed(name) for name in self._log.state.regions):
            problem = Problem(code=Code.WAITS_FOR_REGIONS, names=lagging)
            found.append(Condition(kind="wait", problem=problem))
        if (regions := self._log.state.stated_regions) is not None:
            problem = Problem(code=Code.POSITIONS_STATED, names=tuple(sorted(regions)))
            found.append(Condition(kind="wait", problem=problem))
        return [*found, *self._orders()]

    def _absences(self) -> Iterator[Problem]:
        """Yield the declines of regions, and those that have fallen back for too long."""
        for name in self._log.state.active():
            region = self._log.state.region(name)
            life, declined, since = region.live_incarnation, region.declined, region.behind_since
            if declined is not None:
                yield Problem(
                    code=Code.DECLINED,
                    region=name,
                    incarnation=life,
                    checkpoint=declined.checkpoint,
                    names=(declined.code,) if declined.code else (),
                    detail=declined.reason,
                )
            longest = self._settings.max_position_age
            if since is not None and self.log_time - since > longest:
                yield Problem(code=Code.POSITION_OLD, region=name, incarnation=life, number=longest // 1000)

    def _orders(self) -> Iterator[Condition]:
        """Yield what savepoints and drains wait for."""
        for each in self._log.state.savepoints:
            code = Code.DRAIN_WAITS if each.drain else Code.SAVEPOINT_WAITS
            names = (each.name, *lacking(self._log, each))
            yield Condition(kind="wait", problem=Problem(code=code, names=names))

    def _of_regions(self) -> Iterator[Problem]:
        for region in self._log.state.regions.values():
            if region.fault is not None:
                yield region.fault
        yield from filter(None, map(self._log.unknown_table, self._log.state.regions))
        yield from self._lasting()
        yield from self._excluded.values()
        yield from cuts.problems(self._log)

    def _refusals(self) -> Iterable[Problem]:
        """Yield the refusals in regions of the assignment; before the first one, all of them."""
        assignment = self._log.state.assignment
        for name, problem in self._refused.items():
            if assignment is None or name in assignment.regions:
                yield problem

    def _doubts(self) -> Iterator[Problem]:
        """Yield the problems of watermarks, of regions that still count."""
        for name in self._log.state.active():
            if (doubt := self._log.state.region(name).doubt) is not None:
                yield doubt

    # --- overdue checkpoints ----------------------------------------------------------------------

    def check(self, now: int, *, caught_up: bool) -> bool:
        """Check, if it is time. True if the log's end must be fetched from now on."""
        if now - self._checked_at < self._interval:
            return False
        before, self._checked_at = self._checked_at, now
        self._since = {lack: self._since.get(lack, now) for lack in self._lacks()}
        if caught_up:
            # Those that were late at the check before: the end of the log was fetched after that one.
            self._overdue = {lack for lack, since in self._since.items() if since + self._after <= before}
        return any(before < since + self._after <= now for since in self._since.values())

    def _lacks(self) -> Iterator[_Lack]:
        """Yield the first lack of each kind, of every region."""
        for name, pending in self._log.pending.items():
            if (gap := pending.gap()) is not None:
                yield _Lack(name, pending.incarnation, gap[0], Code.PREDECESSOR_MISSING)
            incomplete = [number for number, each in pending.checkpoints.items() if each.missing]
            if incomplete:
                yield _Lack(name, pending.incarnation, min(incomplete), Code.EVENTS_MISSING)

    def _lasting(self) -> Iterator[Problem]:
        """Yield the lacks that are overdue, and completions that cannot be read."""
        lacks = sorted(self._overdue.intersection(self._lacks())) if self._overdue else []
        yield from map(self._problem, lacks)
        for pending in self._log.pending.values():
            for number in sorted(pending.unreadable)[:1]:
                yield pending.problem(Code.COMPLETION_UNREADABLE, number)

    def _problem(self, lack: _Lack) -> Problem:
        pending = self._log.pending[lack.region]
        problem = pending.problem(lack.code, lack.checkpoint)
        if lack.code is Code.PREDECESSOR_MISSING:
            gap = pending.gap()
            return problem.model_copy(update={"other": gap[1] if gap is not None else None})
        missing = pending.checkpoints[lack.checkpoint].missing
        return problem.model_copy(update={"event": min(missing), "number": len(missing)})
