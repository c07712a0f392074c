"""The checks of `sluicegate check` that compare a table with what its stream's state record says of it."""

from typing import Final, NamedTuple

from sluicegate.cli.finding import Finding, fine, problem
from sluicegate.coordinator.core.commit import mending
from sluicegate.coordinator.core.machine import PROBE
from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.lakes.port import Absent, Committer, TableReplaced, TableState, Unproven

PATIENCE: Final = 3.0
"""Seconds in which a coordinator that commits just now writes its record."""


class Comparison(NamedTuple):
    """Result of comparing a table with its state record."""

    finding: Finding
    ahead: bool = False
    """True if the table has more than the record. Right after a commit that is normal."""


def compare(name: str, committer: Committer, found: TableState, record: StateRecord) -> Comparison | None:
    """Ask the table as an idle coordinator does; None if the stream has never looked at a table.

    Raises LakeUnavailable; blocks.
    """
    state, stream = record.state, record.stream
    if state.table is None:
        return None
    named = f"{name}, history"
    match committer.ask(state.decided + 1, PROBE, state.table, state.recorded):
        case Absent():
            return Comparison(fine(named, _standing(state, found)))
        case Unproven(expired=True) if not state.pending:
            # The coordinator goes on from the head then: nothing of the stream can be in it that it misses.
            return Comparison(fine(named, f"{_standing(state, found)}; the snapshot recorded has expired"))
        case Unproven(reason):
            return Comparison(problem(named, f"the table is behind its record: {reason}. {mending(stream)}"))
        case TableReplaced(identity):
            return Comparison(
                problem(
                    named,
                    f"the table was replaced: it is {identity}, and the stream has committed to "
                    f"{state.table}. Put the old one back, or make a fresh one of what the log decided: "
                    f"sluicegate replay --stream {stream} --into TABLE",
                )
            )
    return Comparison(problem(named, _ahead(stream, state, found)), ahead=True)


def _standing(state: LightState, found: TableState) -> str:
    lacks = state.decided - (found.newest_decision or 0)
    if state.pending and lacks > 0:
        return f"goes with the record, but for {lacks} decided and not there yet: a coordinator commits them"
    return f"goes with the record, up to decision {state.decided}"


def _ahead(stream: str, state: LightState, found: TableState) -> str:
    newest = found.newest_decision or state.decided + 1
    return (
        f"the table is ahead of its record: it has decision {newest} of this stream, and the record ends at "
        f"{state.decided}. A coordinator that died left it so, and the next one goes on from there; or the "
        "topics were made anew, or another deployment commits as the same commit user. To see which: "
        f"sluicegate replay --stream {stream} --verify"
    )
