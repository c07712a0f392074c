"""Defects in registrations, assignments, checkpoints, and the life of a region."""

from typing import Any, Final

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.events.problems import Code
from tests.simulation.seams import Defect, Function, always, skip, variant, without


@variant
def _ends_nothing(right: Function, log: Log, name: str, phase: RegionPhase, *, upto: Any = None) -> None:
    log.state.regions[name].phase = phase


@variant
def _discards_all(right: Function, log: Log, name: str, phase: RegionPhase, *, upto: Any = None) -> None:
    right(log, name, phase)


def _no_discard(right: Function) -> Function:
    return lambda log, name, *, discard: right(log, name, discard=False)


@variant
def _of_any_assignment(right: Function, log: Log, offset: int, body: Any) -> Any:
    current = log.state.assignment
    if body.command in ("remove", "discard") and current is not None:
        return right(log, offset, body.model_copy(update={"number": current.number}))
    return right(log, offset, body)


IN_REGIONS: Final = (
    Defect(
        "an order of an earlier assignment counts",
        "orders",
        _of_any_assignment,
        ("I7", "I2", "I1"),
        ("remove", "reassign"),
    ),
    Defect(
        "a new assignment need not wait",
        "the succession of assignments",
        always(None),
        ("I2",),
        ("stray", "reassign"),
    ),
    Defect(
        "any cut is the final one",
        "the succession of assignments",
        without(Code.ASSIGNMENT_AFTER_OTHER_CUT),
        ("I2",),
        ("stray", "reassign"),
    ),
    Defect(
        "an unresolved cut is a final one",
        "the succession of assignments",
        without(Code.ASSIGNMENT_UNRESOLVED),
        ("I2",),
        ("stray", "reassign", "unknown, invisible"),
    ),
    Defect(
        "an older location is taken",
        "a plain restart",
        without(Code.LOCATION_OLDER),
        ("I2",),
        ("restore", "back up", "restart"),
    ),
    Defect(
        "another source range is taken",
        "a plain restart",
        without(Code.SOURCE_DIFFERS),
        ("I2",),
        ("restore", "back up", "restart"),
    ),
    Defect("any base is taken", "an incarnation", without(Code.BASE_DIFFERS), ("I2",), ("stray", "reset")),
    Defect(
        "an ended incarnation lives again",
        "an incarnation",
        without(Code.INCARNATION_ENDED),
        ("I2",),
        ("reset", "restore", "back up"),
    ),
    Defect(
        "a removed region comes back",
        "an incarnation",
        without(Code.REGION_REMOVED),
        ("I2",),
        ("remove", "stray", "restart"),
    ),
    Defect(
        "a withdrawn assignment comes back",
        "an assignment",
        without(Code.ASSIGNMENT_WITHDRAWN),
        ("I2",),
        ("withdraw", "stray", "reassign"),
    ),
    Defect(
        "an older assignment is taken",
        "an assignment",
        without(Code.ASSIGNMENT_OLDER),
        ("I2",),
        ("reassign", "restart", "stray"),
    ),
    Defect(
        "other regions are taken",
        "an assignment",
        without(Code.ASSIGNMENT_DIFFERS),
        ("I2",),
        ("stray", "reassign"),
    ),
    Defect("a withdrawal does nothing", "a withdrawal", skip, ("I2",), ("withdraw", "reassign", "stray")),
    Defect(
        "checkpoints of an ended incarnation stay",
        "the end of an incarnation",
        _ends_nothing,
        ("I1", "I2"),
        ("reset", "restart"),
    ),
    Defect(
        "sealed work of a removed region is lost",
        "the end of an incarnation",
        _discards_all,
        ("I1", "I7"),
        ("remove",),
    ),
    Defect(
        "two attempts of one writer count",
        "attempts of one writer",
        always(None),
        ("I2", "I1"),
        ("both attempts",),
    ),
    Defect("any predecessor will do", "impossible completions", always(None), ("I1", "I2"), ("skip",)),
    Defect("a heartbeat is overlooked", "a heartbeat", skip, ("I5", "I7", "I12"), ("heartbeat",)),
    Defect("a closing is overlooked", "a closing", skip, ("I7", "I12"), ("reassign",)),
    Defect("lost files are overlooked", "a failure", skip, ("I2", "I12"), ("lose files",)),
    Defect(
        "an older closing ends a later run", "reopening", skip, ("I7", "I12"), ("late closing", "restart")
    ),
    Defect(
        "a discarded region keeps its sealed work", "removals", _no_discard, ("I7", "I2", "I1"), ("remove",)
    ),
)
