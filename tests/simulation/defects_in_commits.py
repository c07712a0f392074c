"""Defects in outcomes, reverts, commits, recovery and answers."""

from typing import Any, Final

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import Revert
from sluicegate.events.models import SnapshotRef
from sluicegate.events.problems import Code
from sluicegate.lakes.history import _Standing
from sluicegate.lakes.port import Absent, OutcomeUnknown, Published, Unproven
from tests.simulation.seams import Defect, Function, always, skip, variant

_UNPROVEN: Final = (Code.ABSENCE_UNPROVEN, Code.TABLE_CONTRADICTS)


@variant
def _absent_unless_seen(right: Function, head: Any, *arguments: Any) -> Any:
    answer = right(head, *arguments)
    return Absent(head.ref if head else None) if isinstance(answer, Unproven) else answer


@variant
def _pending_only(right: Function, self: Any, record: Any) -> Any:
    found = right(self, record)
    return None if any(found is each for each in self.log.taken.values()) else found


@variant
def _lost_is_done(right: Function, self: Any, made: Any, effect: Any, publication: Any) -> Any:
    if isinstance(publication, OutcomeUnknown):
        return right(self, made, effect, Published(SnapshotRef(1, "guessed")))
    return right(self, made, effect, publication)


@variant
def _believes_at_once(right: Function, self: Any) -> None:
    if not self.ready or self._stall is None or self._stall.code not in _UNPROVEN:
        right(self)


def _at_position(right: Function) -> Function:
    return lambda self, position: position


@variant
def _named_first(right: Function, table: Any, state: Any, found: Any, *, expired: bool = False) -> Any:
    known, made = right(table, state, found, expired=expired), state.unresolved
    named = made.head if made is not None else None
    return max((each for each in (known, named) if each), key=lambda each: each.id, default=None)


def _last_order(log: Log, offset: int, body: Any) -> None:
    made = log.state.unresolved
    if made is not None and made.id == body.decision and body.region in made.moves:
        made.revert = Revert(offset=offset, region=body.region)


IN_COMMITS: Final = (
    Defect(
        "the low-water mark passes pending events",
        "the low-water mark",
        _at_position,
        ("I8",),
        ("crash", "rebalance"),
    ),
    Defect(
        "every outcome counts",
        "outcomes",
        always(None),
        ("I3", "I1", "I2"),
        ("revert", "forged outcome", "unknown, invisible"),
    ),
    Defect(
        "a reverted region keeps its position",
        "taking a region back",
        skip,
        ("I1",),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "a reverted first cut leaves the assignment in force",
        "taking the assignment back",
        skip,
        ("I7", "I2"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "a reverted region runs on",
        "incarnations after a revert",
        skip,
        ("I2", "I1"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "the last order to revert counts",
        "orders to revert",
        lambda right: _last_order,
        ("I1", "I2", "I3"),
        ("revert", "unknown, invisible", "refused"),
    ),
    Defect(
        "what is not proven is absent",
        "the proof of absence",
        _absent_unless_seen,
        ("I2", "I3"),
        ("expire", "unknown, visible", "foreign", "crash"),
    ),
    Defect(
        "the marker of a rolled back commit proves",
        "the standing of a marker",
        always(_Standing.ANCESTOR),
        ("I1", "I12"),
        ("roll back", "expire", "foreign"),
    ),
    Defect(
        "nobody misses a decision that was rolled back",
        "a decision that the table lacks",
        always(None),
        ("I1",),
        ("roll back",),
    ),
    Defect(
        "an expired history excuses a named head that is older than the newest commit",
        "a named head that is older than the newest commit",
        always(False),
        ("I1",),
        ("roll back", "expire", "old record", "record lost", "crash", "freeze"),
    ),
    Defect(
        "a statement about the head needs no inspection",
        "inspecting again",
        _believes_at_once,
        ("I1",),
        ("roll back",),
    ),
    Defect(
        "the head that a decision names counts before the own answers",
        "the known head of a commit",
        _named_first,
        ("I1", "I3"),
        ("roll back", "foreign", "forged decision"),
    ),
    Defect(
        "an unknown publication is done",
        "the result of a publication",
        _lost_is_done,
        ("I1", "I12"),
        ("unknown, invisible",),
    ),
    Defect(
        "nobody waits for the log's end",
        "the read barrier",
        always(True),
        ("I1", "I3", "I7", "I2", "I12"),
        ("freeze", "thaw", "rebalance", "record lost"),
    ),
    Defect(
        "the decision's content is not collected",
        "the place of an event that is read again",
        _pending_only,
        ("I1", "I12"),
        ("crash", "unknown, invisible"),
    ),
    Defect("registrations are not answered", "answers to registrations", skip, ("I12",), ()),
)
