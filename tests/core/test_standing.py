"""Which snapshot an absence is proven from when the recorded one has expired."""

from sluicegate.coordinator.core.standing import Standing
from sluicegate.coordinator.core.state import LightState
from sluicegate.lakes.port import SnapshotRef, TableState

RECORDED = SnapshotRef(5, "five")
NEWER = SnapshotRef(7, "seven")


def seen(head: SnapshotRef | None, recorded: SnapshotRef | None) -> tuple[Standing, LightState]:
    """A stream whose table had this head when the log had been read, and which has recorded that snapshot."""
    standing, state = Standing(), LightState(table="t", recorded=recorded)
    inspect(standing, state, head)
    return standing, state


def inspect(standing: Standing, state: LightState, head: SnapshotRef | None) -> None:
    standing.inspect(state, TableState("t", head, None))
    standing.read_to_end(state)


def test_a_newer_head_is_asked_from_and_not_recorded_before_the_table_has_answered() -> None:
    standing, state = seen(NEWER, RECORDED)
    assert standing.recall(state, expired=True) == "moved"
    assert standing.proves(state) == NEWER
    assert state.recorded == RECORDED


def test_an_older_head_proves_nothing_that_the_recorded_one_does_not() -> None:
    for older in (None, SnapshotRef(4, "four"), RECORDED):
        standing, state = seen(older, RECORDED)
        assert standing.recall(state, expired=True) == "inspect"
        assert standing.proves(state) == RECORDED


def test_a_head_of_a_branch_that_was_given_up_is_forgotten() -> None:
    standing, state = seen(SnapshotRef(7, "seven of a branch that was undone"), RECORDED)
    assert standing.recall(state, expired=True) == "moved"
    assert standing.recall(state, expired=False) == "inspect"
    assert standing.proves(state) == RECORDED
    inspect(standing, state, NEWER)
    assert standing.recall(state, expired=True) == "moved"
    assert standing.proves(state) == NEWER


def test_a_recorded_snapshot_that_was_overwritten_is_no_expired_one() -> None:
    standing, state = seen(NEWER, RECORDED)
    assert standing.recall(state, expired=False) == "lost"
    assert standing.proves(state) == RECORDED


def test_what_is_recorded_later_counts_more_than_what_was_tried() -> None:
    standing, state = seen(NEWER, RECORDED)
    standing.recall(state, expired=True)
    state.recorded = SnapshotRef(8, "eight")
    assert standing.proves(state) == state.recorded
    assert standing.recall(state, expired=False) == "lost"
