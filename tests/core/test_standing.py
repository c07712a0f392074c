"""Which snapshot an absence is proven from when the recorded one has expired."""

from sluicegate.coordinator.core.standing import Standing
from sluicegate.coordinator.core.state import LightState
from sluicegate.lakes.port import SnapshotRef, TableState


def seen(head: SnapshotRef | None, recorded: SnapshotRef | None) -> tuple[Standing, LightState]:
    """A stream whose table had this head when the log had been read, and which has recorded that snapshot."""
    standing, state = Standing(), LightState(table="t", recorded=recorded)
    standing.inspect(state, TableState("t", head, None))
    standing.read_to_end(state)
    return standing, state


def test_a_newer_head_is_built_on() -> None:
    newer = SnapshotRef(7, "seven")
    standing, state = seen(newer, SnapshotRef(5, "five"))
    assert standing.recall(state) == "moved"
    assert state.recorded == newer


def test_an_older_head_proves_nothing_that_the_recorded_one_does_not() -> None:
    recorded = SnapshotRef(5, "five")
    for older in (None, SnapshotRef(4, "four"), recorded):
        standing, state = seen(older, recorded)
        assert standing.recall(state) == "inspect"
        assert state.recorded == recorded
