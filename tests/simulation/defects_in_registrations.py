"""Defects in the compare-and-set of registrations, and in new assignments."""

from typing import Any, Final

from sluicegate.coordinator.core.log import Log
from sluicegate.events.models import RegionRegistered
from sluicegate.events.problems import Code
from tests.simulation.seams import Defect, Function, always, variant, without


@variant
def _probes_count(right: Function, self: Any, record: Any) -> Any:
    body = record.body
    if isinstance(body, RegionRegistered) and body.probe:
        record = record._replace(body=body.model_copy(update={"probe": False}))
    return right(self, record)


@variant
def _at_the_decided_position(right: Function, log: Log, *arguments: Any) -> Any:
    made, log.state.unresolved = log.state.unresolved, None
    try:
        return right(log, *arguments)
    finally:
        log.state.unresolved = made


@variant
def _number_is_not_burned(right: Function, log: Log, offset: int, number: int) -> Any:
    burned = log.state.withdrawn
    found = right(log, offset, number)
    log.state.withdrawn = burned
    return found


@variant
def _keeps_savepoints(right: Function, log: Log, offset: int, number: int) -> Any:
    kept = [each.model_copy(deep=True) for each in log.state.savepoints]
    found = right(log, offset, number)
    log.state.savepoints = kept
    return found


@variant
def _keeps_fallbacks(right: Function, log: Log, body: Any) -> None:
    kept = {name: each.fallbacks for name, each in log.state.regions.items()}
    right(log, body)
    for name, number in kept.items():
        log.state.regions[name].fallbacks = number


@variant
def _restart_ends_stalls(right: Function, log: Log, offset: int, envelope: Any, body: Any) -> None:
    right(log, offset, envelope, body)
    log.state.regions[envelope.region].fault = None


@variant
def _stays_idle(right: Function, log: Log, offset: int, envelope: Any, body: Any) -> None:
    known = log.state.regions.get(envelope.region)
    idle = known is not None and known.idle
    right(log, offset, envelope, body)
    log.state.regions[envelope.region].idle = idle


@variant
def _first_cut_is_like_others(right: Function, log: Log, *arguments: Any) -> Any:
    assignment = log.state.assignment
    if assignment is None or not assignment.provisional:
        return right(log, *arguments)
    assignment.provisional = False
    try:
        return right(log, *arguments)
    finally:
        assignment.provisional = True


IN_REGISTRATIONS: Final = (
    # Registration is a compare-and-set.
    Defect("a probe registers", "applying a record", _probes_count, ("I2",), ("reset",)),
    Defect(
        "a second query discards the work of the live one",
        "an incarnation",
        without(Code.INCARNATION_LIVE),
        ("I2",),
        ("stray",),
    ),
    Defect(
        "an incarnation begins at a position that is only decided",
        "an incarnation",
        _at_the_decided_position,
        ("I2",),
        ("reset", "restart", "unknown, invisible"),
    ),
    Defect(
        "one incarnation lives in two regions",
        "an incarnation",
        without(Code.INCARNATION_OF_OTHER_REGION),
        ("I2",),
        ("stray",),
    ),
    Defect(
        "a restart may state another base",
        "a plain restart",
        without(Code.BASE_DIFFERS),
        ("I2",),
        ("stray", "reset"),
    ),
    Defect(
        "a query registers before the policy",
        "settings of a registration",
        without(Code.NO_POLICY),
        ("I2",),
        ("stray",),
    ),
    Defect(
        "regions outside of the policy are taken",
        "settings of a registration",
        without(Code.REGION_NOT_ALLOWED),
        ("I2",),
        ("stray",),
    ),
    Defect(
        "another table is taken", "settings of a registration", without(Code.OTHER_TABLE), ("I2",), ("stray",)
    ),
    Defect("a plain restart ends a stall", "accepting", _restart_ends_stalls, ("I2",), ("contradict",)),
    Defect(
        "a registration leaves a region idle",
        "accepting",
        _stays_idle,
        ("I5", "I7"),
        ("heartbeat", "restart"),
    ),
    # A new assignment begins after the end of the former one.
    Defect(
        "an assignment with open regions is overtaken",
        "the succession of assignments",
        without(Code.ASSIGNMENT_OPEN),
        ("I2",),
        ("stray", "reassign"),
    ),
    Defect(
        "each query of an assignment may follow a cut of its own",
        "the cut that an assignment follows",
        always(None),
        ("I2",),
        ("stray", "reassign"),
    ),
    Defect(
        "fallbacks of the assignment before count",
        "the beginning of an assignment",
        _keeps_fallbacks,
        ("I7",),
        ("reassign", "wait", "restart"),
    ),
    Defect(
        "a withdrawn number may return",
        "a withdrawal",
        _number_is_not_burned,
        ("I2",),
        ("withdraw", "stray", "reassign"),
    ),
    Defect(
        "a savepoint waits for a withdrawn assignment",
        "a withdrawal",
        _keeps_savepoints,
        ("I7", "I12"),
        ("withdraw", "reassign", "savepoint"),
    ),
    Defect(
        "the first cut of an assignment may be partial",
        "fullness of a cut",
        _first_cut_is_like_others,
        ("I7",),
        ("reassign", "wait", "forged decision"),
    ),
)
