"""Seams: the functions of which a defect plants a wrong variant.

They are those of the core, of groups, of tables in memory, of retention, and of the search for orphans.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from sluicegate.coordinator.core import (
    commands,
    commit,
    cuts,
    machine,
    outbox,
    registration,
    replica,
    savepoints,
    table,
    undo,
)
from sluicegate.coordinator.core.log import Checkpoint, Log, PendingCheckpoints
from sluicegate.coordinator.core.state import RegionState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.replay import decisions
from sluicegate.events.problems import Code
from sluicegate.lakes import history
from sluicegate.lakes.group import Group
from tests.doubles import memory_group, memory_lake
from tests.simulator import retention, world

Function = Callable[..., Any]

SEAMS: Final[dict[str, tuple[Any, str]]] = {
    "fullness of a cut": (cuts, "_fullness_problem"),
    "forced cuts": (cuts, "is_forced"),
    "regions that one cut may leave behind": (cuts, "most_fallbacks"),
    "fallbacks of a cut": (cuts, "falling_back"),
    "validity of one move": (cuts, "_move_problem"),
    "validity of a decision": (cuts, "problem_of"),
    "validity of an abandoned attempt": (cuts, "abandonment_problem"),
    "partial cuts": (cuts, "may_be_partial"),
    "the succession of assignments": (registration, "_succession_problem"),
    "settings of a registration": (registration, "_policy_problem"),
    "accepting": (registration, "accept"),
    "the cut that an assignment follows": (registration, "_follows_other_cut"),
    "the beginning of an assignment": (registration, "_begin_assignment"),
    "a plain restart": (registration, "_restart_problem"),
    "an incarnation": (registration, "_incarnation_problem"),
    "an assignment": (registration, "_assignment_problem"),
    "a withdrawal": (undo, "withdraw"),
    "the end of an incarnation": (Log, "end_incarnation"),
    "the low-water mark": (Log, "low_water"),
    "idle regions": (Log, "is_idle"),
    "targets that are not reached": (savepoints, "_late"),
    "gone regions": (RegionState, "has_ended"),
    "attempts of one writer": (Checkpoint, "doubled_writer"),
    "named parts": (Checkpoint, "named"),
    "impossible completions": (PendingCheckpoints, "_impossible"),
    "adding a part": (PendingCheckpoints, "add_part"),
    "restoring checkpoints": (PendingCheckpoints, "restore"),
    "events of regions": (replica, "apply_driver_event"),
    "a completion": (replica, "completed"),
    "a heartbeat": (replica, "heartbeat"),
    "the beginning of a checkpoint": (replica, "begin"),
    "a closing": (replica, "closed"),
    "a failure": (replica, "failed"),
    "reopening": (replica, "_reopen"),
    "counting fallbacks": (cuts, "_count"),
    "moving a region": (cuts, "_advance_to"),
    "the watermark": (cuts, "_watermark"),
    "doubtful watermarks": (cuts, "watermark_problem"),
    "outcomes": (cuts, "outcome_problem"),
    "taking a region back": (undo, "_restore"),
    "taking the assignment back": (undo, "_restore_assignment"),
    "incarnations after a revert": (undo, "_end_reverted"),
    "an abandoned attempt": (cuts, "abandon"),
    "orders to revert": (undo, "order_revert"),
    "orders": (commands, "obey"),
    "removals": (commands, "_remove"),
    "targets of savepoints": (savepoints, "order"),
    "reached savepoints": (savepoints, "reached"),
    "targets of a region that ends": (savepoints, "discard"),
    "the next sealed checkpoint as a target": (savepoints, "retarget"),
    "a decision that the table lacks": (TableProgress, "lost_decision"),
    "the known head of a commit": (TableProgress, "known_head"),
    "a named head that is older than the newest commit": (table, "_names_older"),
    "inspecting again": (machine.StreamMachine, "_inspect_again"),
    "the proof of absence": (memory_lake, "look_for"),
    "the standing of a marker": (history, "_standing"),
    "the result of a publication": (commit.Committing, "_published"),
    "the read barrier": (machine.StreamMachine, "_is_past_barrier"),
    "applying a record": (replica.Replica, "apply"),
    "the end of reading again": (replica.Replica, "finish_refill"),
    "the place of an event that is read again": (replica.Replica, "_place_of"),
    "skipped records that the state includes": (replica.Replica, "_include"),
    "orders to skip": (commands, "_skip"),
    "events that an unresolved decision settles": (replica.Replica, "_keep_for_revert"),
    "the decided checkpoints": (PendingCheckpoints, "split"),
    "discarding": (PendingCheckpoints, "keep_sealed"),
    "the policy": (replica.Replica, "_set_policy"),
    "answers to registrations": (outbox.Outbox, "send_answers"),
    "judging a registration": (replica.Replica, "_register"),
    "the next step of a commit": (commit.Committing, "next"),
    "notifications": (outbox.Outbox, "_add"),
    "notifications of commits": (outbox.Outbox, "_committed"),
    "the state record": (outbox.Outbox, "record"),
    "the evidence of a further table": (memory_group, "evidence_of"),
    "the question to several tables": (Group, "ask_all"),
    "the step of a catalog": (memory_group.MemoryCatalog, "commit_all"),
    "files of an event": (replica.Replica, "_add_files"),
    "tables that lack a decision": (commit.Committing, "apart"),
    "the registry after an outcome": (cuts, "_note_tables"),
    "records that may be deleted": (retention, "deletion_start"),
    "the record to recover from": (world, "recovery_record"),
    "checkpoints that may be committed": (decisions, "_may_be_included"),
    "winners and losers": (decisions.OrphanEvents, "_commit"),
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


def variant(wrong: Function) -> Callable[[Function], Function]:
    """Let a wrong function call the right one, which it gets before its arguments."""

    def make(right: Function) -> Function:
        return lambda *arguments, **named: wrong(right, *arguments, **named)

    return make


def always(value: object) -> Callable[[Function], Function]:
    """Return this, whatever the arguments are."""
    return lambda right: lambda *arguments, **named: value


def without(*codes: Code) -> Callable[[Function], Function]:
    """Overlook problems with these codes."""

    @variant
    def overlooking(right: Function, *arguments: Any, **named: Any) -> Any:
        found = right(*arguments, **named)
        return None if found is not None and found.code in codes else found

    return overlooking


def skip(right: Function) -> Function:
    """Do nothing."""
    return lambda *arguments, **named: None
