"""Defects planted into the core of version 4, each at a named seam, with the invariant that must break."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from sluicegate.coordinator.core4 import (
    answers,
    candidate,
    commands,
    committing,
    cuts,
    decisions,
    heads,
    progress,
    read_barrier,
    registration,
    replica,
)
from sluicegate.coordinator.core4.log import Log
from sluicegate.coordinator.core4.log_state import RegionPhase, RegionState
from sluicegate.coordinator.core4.pending import Checkpoint, PendingCheckpoints
from sluicegate.events.problems import Code

Function = Callable[..., Any]

SEAMS: Final[dict[str, tuple[Any, str]]] = {
    "fullness of a cut": (cuts, "_fullness_problem"),
    "forced cuts": (cuts, "is_forced"),
    "regions that one cut may leave behind": (cuts, "most_fallbacks"),
    "fallbacks of a cut": (cuts, "fallbacks"),
    "the barrier is reached": (cuts, "barrier_reached"),
    "touching the barrier": (cuts, "reaches_barrier"),
    "validity of one move": (cuts, "_move_problem"),
    "validity of a decision": (cuts, "problem_of"),
    "validity of an abandoned attempt": (cuts, "abandonment_problem"),
    "the cut before the barrier": (cuts, "_before_barrier"),
    "partial cuts": (cuts, "may_be_partial"),
    "the succession of assignments": (registration, "_succession_problem"),
    "a plain restart": (registration, "_restart_problem"),
    "an incarnation": (registration, "_incarnation_problem"),
    "an assignment": (registration, "_assignment_problem"),
    "incarnations of the assignment before": (registration, "suspended"),
    "which region a cut may move": (Log, "may_move"),
    "a withdrawal": (registration, "withdraw"),
    "the end of an incarnation": (Log, "end_incarnation"),
    "the low-water mark": (Log, "low_water"),
    "idle regions": (Log, "is_idle"),
    "held regions": (Log, "is_held"),
    "targets": (Log, "targets"),
    "gone regions": (RegionState, "gone"),
    "attempts of one writer": (Checkpoint, "doubled_writer"),
    "impossible completions": (PendingCheckpoints, "_impossible"),
    "adding a part": (PendingCheckpoints, "add_part"),
    "restoring checkpoints": (PendingCheckpoints, "restore"),
    "dropping unsealed checkpoints": (PendingCheckpoints, "keep_sealed"),
    "a completion": (progress, "completed"),
    "a heartbeat": (progress, "heartbeat"),
    "a closing": (progress, "closed"),
    "a failure": (progress, "failed"),
    "reopening": (progress, "_reopen"),
    "counting fallbacks": (decisions, "_count"),
    "moving a region": (decisions, "_advance_to"),
    "the watermark": (decisions, "_watermark"),
    "outcomes": (decisions, "outcome_problem"),
    "taking a region back": (decisions, "_restore"),
    "taking the assignment back": (decisions, "_restore_assignment"),
    "incarnations after a revert": (decisions, "_end_reverted"),
    "an abandoned attempt": (decisions, "abandon"),
    "orders to revert": (commands, "_revert"),
    "removals": (commands, "_remove"),
    "targets of savepoints": (commands, "_savepoint"),
    "reached savepoints": (commands, "reached"),
    "the next sealed checkpoint as a target": (Log, "retarget"),
    "the known head": (heads, "known_head"),
    "the answer of the table": (committing.Committing, "_asked"),
    "the result of a publication": (committing.Committing, "_published"),
    "the read barrier": (read_barrier.ReadBarrier, "passed"),
    "the place of a record that is read again": (replica.Replica, "_place_of"),
    "the end of reading again": (replica.Replica, "finish_refill"),
    "the policy": (replica.Replica, "_set_policy"),
    "entries that are not read back": (candidate.Candidate, "read_upto"),
    "answers to registrations": (answers.Answers, "send"),
}
"""Names of the places where a defect can be planted. A rename of a function is made here, too."""


@dataclass(frozen=True)
class Defect:
    """A wrong variant of one function."""

    name: str
    seam: str
    variant: Callable[[Function], Any]
    """Makes the wrong function of the right one."""
    invariants: tuple[str, ...]
    favour: tuple[str, ...] = ()
    """Steps that are frequent in the schedules that look for it."""


@contextmanager
def planted(defect: Defect) -> Iterator[None]:
    """Have the core with the defect."""
    owner, attribute = SEAMS[defect.seam]
    right: Any = owner.__dict__[attribute] if isinstance(owner, type) else getattr(owner, attribute)
    function: Any = right.fget if isinstance(right, property) else right
    wrong = defect.variant(function)
    with patch.object(owner, attribute, property(wrong) if isinstance(right, property) else wrong):
        yield


def always(value: object) -> Callable[[Function], Function]:
    """Return this, whatever the arguments are."""
    return lambda right: lambda *arguments, **named: value


def without(*codes: Code) -> Callable[[Function], Function]:
    """Overlook problems with these codes."""

    def variant(right: Function) -> Function:
        def wrong(*arguments: Any, **named: Any) -> Any:
            found = right(*arguments, **named)
            return None if found is not None and found.code in codes else found

        return wrong

    return variant


def _skip(right: Function) -> Function:
    return lambda *arguments, **named: None


def _watermark_of_known(right: Function) -> Function:
    def wrong(log: Log, names: set[str]) -> int | None:
        known = {name for name in names if name in log.state.regions}
        found: int | None = right(log, {n for n in known if log.state.regions[n].watermark is not None})
        return found

    return wrong


def _falling(right: Function) -> Function:
    def wrong(region: RegionState, sealed: Any) -> None:
        region.watermark = None
        right(region, sealed)

    return wrong


def _idle_with_work(right: Function) -> Function:
    def wrong(log: Log, name: str) -> bool:
        region = log.state.regions.get(name)
        return region is not None and region.live and region.idle

    return wrong


def _counts_nobody(right: Function) -> Function:
    return lambda log, late, moves: right(log, [], moves)


def _keeps_counting(right: Function) -> Function:
    return lambda log, late, moves: right(log, late, {})


def _ends_nothing(right: Function) -> Function:
    def wrong(log: Log, name: str, phase: RegionPhase, *, upto: Any = None) -> None:
        log.state.regions[name].phase = phase

    return wrong


def _discards_all(right: Function) -> Function:
    def wrong(log: Log, name: str, phase: RegionPhase, *, upto: Any = None) -> None:
        right(log, name, phase)

    return wrong


def _newest_head(right: Function) -> Function:
    def wrong(self: Any, made: Any, answer: Any) -> Any:
        from sluicegate.lakes.port import Absent, Unproven

        return right(self, made, Absent(None) if isinstance(answer, Unproven) else answer)

    return wrong


def _lost_is_done(right: Function) -> Function:
    def wrong(self: Any, made: Any, effect: Any, publication: Any) -> Any:
        from sluicegate.lakes.port import OutcomeUnknown, Published, SnapshotRef

        if isinstance(publication, OutcomeUnknown):
            return right(self, made, effect, Published(SnapshotRef(1, "guessed")))
        return right(self, made, effect, publication)

    return wrong


def _at_position(right: Function) -> Function:
    return lambda self, position: position


def _no_discard(right: Function) -> Function:
    return lambda log, name, *, discard: right(log, name, discard=False)


def _target_later(right: Function) -> Function:
    def wrong(log: Log, name: str, at: Any, *, awaited_only: bool = False) -> None:
        for savepoint in log.state.savepoints:
            if name in savepoint.awaited:
                savepoint.awaited.remove(name)

    return wrong


def _counts_by_kind(right: Function) -> Function:
    def wrong(log: Log, body: Any) -> None:
        right(log, body.model_copy(update={"kind": "forced"}))

    return wrong


DEFECTS: Final = (
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
        "a barrier counts as reached",
        "the barrier is reached",
        always(True),
        ("I7",),
        ("savepoint", "reassign", "deliver", "forged decision"),
    ),
    Defect(
        "no cut touches a barrier", "touching the barrier", always(False), ("I7",), ("savepoint", "reassign")
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
    Defect("a withdrawal does nothing", "a withdrawal", _skip, ("I2",), ("withdraw", "reassign", "stray")),
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
        "the low-water mark passes pending events",
        "the low-water mark",
        _at_position,
        ("I1", "I12", "I4"),
        ("crash", "rebalance"),
    ),
    Defect("a region with work is idle", "idle regions", _idle_with_work, ("I5", "I7"), ("heartbeat",)),
    Defect(
        "no region is held",
        "held regions",
        always(False),
        ("I7", "I12"),
        ("savepoint", "wait", "restart", "forged decision"),
    ),
    Defect(
        "a savepoint has no targets",
        "targets",
        lambda right: lambda self, name: iter(()),
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "two attempts of one writer count",
        "attempts of one writer",
        always(None),
        ("I2", "I1"),
        ("both attempts",),
    ),
    Defect("any predecessor will do", "impossible completions", always(None), ("I1", "I2"), ("skip",)),
    Defect("a heartbeat is overlooked", "a heartbeat", _skip, ("I5", "I7", "I12"), ("heartbeat",)),
    Defect("a closing is overlooked", "a closing", _skip, ("I7", "I12"), ("reassign",)),
    Defect("lost files are overlooked", "a failure", _skip, ("I2", "I12"), ("lose files",)),
    Defect(
        "an older closing ends a later run", "reopening", _skip, ("I7", "I12"), ("late closing", "restart")
    ),
    Defect("fallbacks are not counted", "counting fallbacks", _counts_nobody, ("I7",), ("wait", "restart")),
    Defect(
        "fallbacks never begin again", "counting fallbacks", _keeps_counting, ("I7",), ("wait", "restart")
    ),
    Defect("a region's watermark falls", "moving a region", _falling, ("I5",), ()),
    Defect(
        "a region without watermark is overlooked",
        "the watermark",
        _watermark_of_known,
        ("I5",),
        ("wait", "restart"),
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
        _skip,
        ("I1",),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "a reverted first cut leaves the assignment in force",
        "taking the assignment back",
        _skip,
        ("I7", "I2"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "a reverted region runs on",
        "incarnations after a revert",
        _skip,
        ("I2", "I1"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "every abandoned attempt resets the counters",
        "an abandoned attempt",
        _counts_by_kind,
        ("I7",),
        ("wait", "policy"),
    ),
    Defect(
        "the last order to revert counts",
        "orders to revert",
        lambda right: _last_order,
        ("I1", "I2", "I3"),
        ("revert", "unknown, invisible", "refused"),
    ),
    Defect(
        "a discarded region keeps its sealed work", "removals", _no_discard, ("I7", "I2", "I1"), ("remove",)
    ),
    Defect(
        "a lagging region has no target",
        "the next sealed checkpoint as a target",
        _target_later,
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "savepoints are reached at once",
        "reached savepoints",
        lambda right: _all_reached,
        ("I7",),
        ("savepoint",),
    ),
    Defect(
        "what is not proven is absent",
        "the answer of the table",
        _newest_head,
        ("I2", "I3", "I12"),
        ("expire", "unknown, visible", "foreign"),
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
        "the end of reading again",
        _skip,
        ("I1", "I12"),
        ("crash", "unknown, invisible"),
    ),
    Defect(
        "an older policy counts",
        "the policy",
        lambda right: _any_policy,
        ("I7", "I4"),
        ("policy", "older policy", "forged decision"),
    ),
    Defect("registrations are not answered", "answers to registrations", _skip, ("I12",), ()),
)


def _last_order(log: Log, offset: int, body: Any) -> None:
    from sluicegate.coordinator.core4.log_state import Revert

    made = log.state.pending
    if made is not None and made.id == body.decision and body.region in made.moves:
        made.revert = Revert(offset=offset, region=body.region)


def _all_reached(log: Log) -> list[Any]:
    done, log.state.savepoints = log.state.savepoints, []
    return done


def _any_policy(self: Any, body: Any) -> None:
    self.state.policy = body
