"""Overdue: completed checkpoints that lack something for longer than it takes to arrive.

Events out of order are normal, and no stall. A checkpoint that still lacks something after a while, with the
log read to an end fetched after that, is a stall of its region. No decision depends on it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sluicegate.coordinator.core.log import Log
from sluicegate.events.envelope import Envelope
from sluicegate.events.problems import Code, Problem

_CHECKS: Final = 10
"""Number of checks within the time after which something is overdue."""
_MOST: Final = 1_000
"""Events without effect whose place is remembered."""


class _Lack(NamedTuple):
    """An event or a predecessor that a completed checkpoint lacks."""

    region: str
    incarnation: str
    checkpoint: int
    code: Code


class Overdue:
    """The overdue checkpoints of one stream."""

    def __init__(self, log: Log, after: int) -> None:
        """`after`: milliseconds after which a lack is overdue."""
        self._log = log
        self._after = after
        self._check_at = 0
        self._since: dict[_Lack, int] = {}
        self._late: set[_Lack] = set()
        self._overdue: set[_Lack] = set()
        self._elsewhere: dict[str, tuple[str, int]] = {}
        """By event id, region and checkpoint of events that had no effect."""

    def unused(self, envelope: Envelope) -> None:
        """Remember the place of an event without effect: another checkpoint may name it."""
        self._elsewhere.pop(envelope.id, None)
        self._elsewhere[envelope.id] = (envelope.region, envelope.checkpoint)
        if len(self._elsewhere) > _MOST:
            del self._elsewhere[next(iter(self._elsewhere))]

    def decided(self) -> None:
        """Remember the places of the events that the newest decision includes."""
        for name, checkpoints in self._log.included.items():
            for each in checkpoints:
                for event in each.checkpoint.parts:
                    self._elsewhere[event] = (name, each.position.checkpoint)
        while len(self._elsewhere) > _MOST:
            del self._elsewhere[next(iter(self._elsewhere))]

    def check(self, now: int, *, caught_up: bool) -> bool:
        """Check, if it is time. True if the log's end must be fetched from now on."""
        if now < self._check_at:
            return False
        self._check_at = now + max(1, self._after // _CHECKS)
        self._since = {lack: self._since.get(lack, now) for lack in self._lacks()}
        late = {lack for lack, since in self._since.items() if now - since >= self._after}
        fresh = late - self._late
        if caught_up:
            self._overdue = late & self._late
        self._late = late
        return bool(fresh)

    def _lacks(self) -> Iterator[_Lack]:
        """Yield the first lack of each kind, of every region."""
        for name, pending in self._log.pending.items():
            if (gap := pending.gap()) is not None:
                yield _Lack(name, pending.incarnation, gap[0], Code.PREDECESSOR_MISSING)
            if (lacking := next(pending.lacking(), None)) is not None:
                yield _Lack(name, pending.incarnation, lacking[0], Code.EVENTS_MISSING)

    def problems(self) -> Iterator[Problem]:
        """Yield the lacks that are overdue, and completions that cannot be read."""
        for lack in sorted(self._overdue.intersection(self._lacks())) if self._overdue else ():
            yield self._problem(lack)
        for name, pending in self._log.pending.items():
            for number in sorted(pending.unreadable)[:1]:
                yield Problem(
                    code=Code.COMPLETION_UNREADABLE,
                    region=name,
                    incarnation=pending.incarnation,
                    checkpoint=number,
                )

    def _problem(self, lack: _Lack) -> Problem:
        pending = self._log.pending[lack.region]
        problem = Problem(
            code=lack.code, region=lack.region, incarnation=lack.incarnation, checkpoint=lack.checkpoint
        )
        if lack.code is Code.PREDECESSOR_MISSING:
            gap = pending.gap()
            return problem.model_copy(update={"other": gap[1] if gap is not None else None})
        missing = sorted(pending.checkpoints[lack.checkpoint].missing)
        for event in missing:
            if (place := self._place_of(event)) is not None:
                found = {"code": Code.EVENT_MISPLACED, "event": event, "names": place[:1], "other": place[1]}
                return problem.model_copy(update=found)
        return problem.model_copy(update={"event": missing[0], "number": len(missing)})

    def _place_of(self, event: str) -> tuple[str, int] | None:
        for name, pending in self._log.pending.items():
            for number, entry in pending.checkpoints.items():
                if event in entry.parts:
                    return name, number
        return self._elsewhere.get(event)
