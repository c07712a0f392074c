"""Defects in cuts: their choice, their validity, fallbacks, savepoints and watermarks."""

from typing import Any, Final

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import LogState, RegionState
from sluicegate.events.problems import Code
from tests.simulation.seams import Defect, Function, always, variant, without


@variant
def _watermark_of_known(right: Function, log: Log, names: set[str]) -> int | None:
    known = {name for name in names if name in log.state.regions}
    found: int | None = right(log, {n for n in known if log.state.regions[n].watermark is not None})
    return found


@variant
def _falling(right: Function, region: RegionState, sealed: Any, doubt: Any) -> None:
    region.watermark = None
    right(region, sealed, doubt)


@variant
def _idle_with_work(right: Function, log: Log, name: str) -> bool:
    region = log.state.regions.get(name)
    return region is not None and region.accepts_checkpoints and region.idle


def _counts_nobody(right: Function) -> Function:
    return lambda log, late, moves, time: right(log, [], moves, time)


def _keeps_counting(right: Function) -> Function:
    return lambda log, late, moves, time: right(log, late, {}, time)


@variant
def _target_later(right: Function, state: LogState, name: str, at: Any, *, sealed_later: bool) -> None:
    for savepoint in state.savepoints:
        if name in savepoint.awaited:
            savepoint.awaited.remove(name)


@variant
def _target_lost(right: Function, state: LogState, name: str, upto: Any, *, gone: bool) -> None:
    for savepoint in state.savepoints:
        savepoint.targets.pop(name, None)
        savepoint.awaited = [each for each in savepoint.awaited if each != name]


@variant
def _forgets_what_is_committed(right: Function, log: Log) -> Any:
    before = [(each, dict(each.targets)) for each in log.state.savepoints]
    done = right(log)
    for savepoint, targets in before:
        savepoint.targets = targets
    return done


@variant
def _only_sealed(right: Function, log: Log, name: str, offset: int, *, drain: bool) -> Any:
    problem = right(log, name, offset, drain=drain)
    for savepoint in log.state.savepoints[-1:] if problem is None else ():
        savepoint.targets = {name: at for name, at in savepoint.targets.items() if log.sealed(name)}
    return problem


@variant
def _counts_by_kind(right: Function, log: Log, body: Any) -> Any:
    problem = right(log, body)
    for region in log.state.regions.values() if problem is None else ():
        region.fallbacks = 0
    return problem


def _all_reached(log: Log) -> list[Any]:
    done, log.state.savepoints = log.state.savepoints, []
    return done


def _any_policy(self: Any, body: Any) -> None:
    self.state.policy = body


IN_CUTS: Final = (
    Defect("a cut need not be full", "fullness of a cut", always(None), ("I7",), ("savepoint",)),
    Defect("nobody is ever forced", "forced cuts", always(False), ("I7",), ("restart", "wait")),
    Defect(
        "any number of regions may fall back",
        "regions that one cut may leave behind",
        always(99),
        ("I7",),
        ("wait",),
    ),
    Defect(
        "nobody may fall back", "regions that one cut may leave behind", always(0), ("I7", "I12"), ("wait",)
    ),
    Defect(
        "a stalled region moves",
        "validity of one move",
        without(Code.REGION_STALLED),
        ("I2",),
        ("contradict", "lose files", "forged decision"),
    ),
    Defect(
        "an unsealed region moves",
        "validity of one move",
        without(Code.NOT_SEALED),
        ("I1", "I2", "crash"),
        ("forged decision", "reset"),
    ),
    Defect(
        "a decision need not wait for the outcome",
        "validity of a decision",
        without(Code.UNRESOLVED),
        ("I3",),
        ("forged decision", "unknown, invisible"),
    ),
    Defect(
        "a decision's id is not compared",
        "validity of a decision",
        without(Code.OUT_OF_ORDER),
        ("I3",),
        ("forged decision", "more"),
    ),
    Defect(
        "a pause stops nobody",
        "validity of a decision",
        without(Code.PAUSED),
        ("I4",),
        ("pause", "forged decision"),
    ),
    Defect(
        "every attempt may be abandoned",
        "validity of an abandoned attempt",
        always(None),
        ("I7",),
        ("forged attempt", "wait", "restart"),
    ),
    Defect("partial cuts of a single region", "partial cuts", always(True), ("I7",), ("wait",)),
    Defect("a region with work is idle", "idle regions", _idle_with_work, ("I5", "I7"), ("heartbeat",)),
    Defect(
        "a savepoint has no targets",
        "targets that are not reached",
        always([]),
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "a committed target counts for its incarnation alone",
        "reached savepoints",
        _forgets_what_is_committed,
        ("I7",),
        ("savepoint", "reset", "wait"),
    ),
    Defect(
        "what an unresolved decision has taken is no target",
        "targets of savepoints",
        _only_sealed,
        ("I7",),
        ("savepoint", "unknown, invisible", "revert"),
    ),
    Defect("fallbacks are not counted", "counting fallbacks", _counts_nobody, ("I7",), ("wait", "restart")),
    Defect(
        "fallbacks never begin again", "counting fallbacks", _keeps_counting, ("I7",), ("wait", "restart")
    ),
    Defect("a region's watermark falls", "moving a region", _falling, ("I5",), ()),
    Defect("a watermark of the far future counts", "doubtful watermarks", always(None), ("I5",), ()),
    Defect(
        "a region without watermark is overlooked",
        "the watermark",
        _watermark_of_known,
        ("I5",),
        ("wait", "restart"),
    ),
    Defect(
        "every abandoned attempt resets the counters",
        "an abandoned attempt",
        _counts_by_kind,
        ("I7",),
        ("wait", "policy"),
    ),
    Defect(
        "a lagging region has no target",
        "the next sealed checkpoint as a target",
        _target_later,
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "the target of a removed region is lost",
        "targets of a region that ends",
        _target_lost,
        ("I7",),
        ("savepoint", "remove", "revert", "refused"),
    ),
    Defect(
        "savepoints are reached at once",
        "reached savepoints",
        lambda right: _all_reached,
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "an older policy counts",
        "the policy",
        lambda right: _any_policy,
        ("I7", "I4"),
        ("policy", "older policy", "forged decision"),
    ),
)
