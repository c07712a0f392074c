"""Checks of `sluicegate check` that compare a table with the state record of its stream."""

from typing import Final, NamedTuple

from sluicegate.cli.finding import Finding, fine, problem, warning
from sluicegate.coordinator.core.commit import asked_decision, known_head, lost_decision, ref_of
from sluicegate.coordinator.core.effects import NO_DIGEST
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import Absent, Committer, TableReplaced, TableState, Unproven

PATIENCE: Final = 3.0
"""Seconds in which a coordinator that commits just now writes its record."""


class Comparison(NamedTuple):
    """Result of comparing a table with its state record."""

    finding: Finding
    ahead: bool = False
    """True if the table has more than the record. Right after a commit that is normal."""


def compare(name: str, committer: Committer, found: TableState, record: StateRecord) -> Comparison | None:
    """Ask the table as an idle coordinator does; None if the stream has committed nothing.

    Raises LakeUnavailable; blocks.
    """
    state, stream = record.state, record.stream
    identity = state.table or record.table.identity
    if identity is None:
        return None
    named, expected = f"{name}, history", state.decided + 1
    if found.identity != identity:
        return Comparison(_replaced(named, found.identity, stream))
    if (lost := lost_decision(state, found, record.table)) is not None:
        return Comparison(problem(named, format_problem(lost, stream)))
    # Everything before an unresolved decision is in the table: its absence is proven from the same head.
    known = ref_of(known_head(record.table, state, found))
    match committer.ask(expected, NO_DIGEST, identity, known):
        case Absent():
            return Comparison(fine(named, _agreement(state, found)))
        case Unproven(expired=True) if state.pending is None:
            # The coordinator continues from the head: nothing of the stream can be in it that it misses.
            return Comparison(fine(named, f"{_agreement(state, found)}; the recorded snapshot has expired"))
        case Unproven(reason, _, cause):
            code = Code.TABLE_CONTRADICTS
            unproven = Problem(code=code, number=state.decided, cause=cause, detail=reason)
            return Comparison(problem(named, format_problem(unproven, stream)))
        case TableReplaced(other):
            return Comparison(_replaced(named, other, stream))
    newest = found.newest_decision or expected
    ahead = Problem(code=Code.TABLE_AHEAD, number=state.decided, other=newest)
    note = "If a coordinator has just stopped, start one: it reads the rest of the log and continues"
    return Comparison(problem(named, f"{format_problem(ahead, stream)} {note}"), ahead=True)


def _replaced(check: str, identity: str, stream: str) -> Finding:
    return problem(check, format_problem(Problem(code=Code.TABLE_REPLACED, detail=identity), stream))


def newer_log(found: Finding, state: LogState) -> Finding:
    """Return the finding about a table that agrees with the log, but not with its older state record."""
    named = state.proof is not None and state.proof.decision == asked_decision(state)
    why = "the table was repaired, or an operator named its head" if named else "it lacks the newest outcomes"
    return warning(
        found.check,
        f"agrees with the log, up to decision {state.decided - (state.pending is not None)}. The state "
        f"record is older: {why}. Start a coordinator if none runs: sluicegate run",
    )


def _agreement(state: LogState, found: TableState) -> str:
    if state.pending is not None and (found.newest_decision or 0) < state.decided:
        return f"agrees with the record; decision {state.decided} is not there yet, a coordinator commits it"
    return f"agrees with the record, up to decision {state.decided}"
