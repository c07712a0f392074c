"""`start_incarnation` accepts the one batch at which a location continues, and its text names it."""

import re
from pathlib import Path

import pytest

from sluicegate.writer_hooks import BadCheckpointLocation, start_incarnation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from tests.hooks.locations import finish, plan


@pytest.fixture(params=[None, "old"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Batches 0 to 2 were planned and completed, for another sink or for the stream `old`."""
    plan(tmp_path, 0, 1, 2)
    finish(tmp_path, 0, 1, 2)
    if request.param is not None:
        query = Checkpoint(str(tmp_path)).query_id()
        marker = IncarnationMarker(query=query, incarnation="a", stream=request.param, region="r1")
        Checkpoint(str(tmp_path)).write_marker(marker)
    return tmp_path


@pytest.mark.parametrize("first", [1, 2, 4, 7])
def test_another_batch_than_the_next_one_is_refused(root: Path, first: int) -> None:
    """One before is written twice, and one after leaves the rows between out."""
    before = Checkpoint(str(root)).marker()
    for unwritten in (False, True):
        with pytest.raises(BadCheckpointLocation, match=r"up to batch 2 be committed there.* first=3\)"):
            start_incarnation(str(root), first=first, unwritten=unwritten)
    assert Checkpoint(str(root)).marker() == before
    start_incarnation(str(root), first=3)
    found = Checkpoint(str(root)).marker()
    assert found is not None
    assert (found.first, found.stream, found.former) == (3, None, before)


def test_a_text_is_no_number_of_a_batch(root: Path) -> None:
    """It would be recorded, and no batch is equal to it."""
    before = Checkpoint(str(root)).marker()
    with pytest.raises(TypeError, match="first is the number of a batch, and not '3'"):
        start_incarnation(str(root), first="3")  # type: ignore[arg-type]
    assert Checkpoint(str(root)).marker() == before


def test_a_planned_batch_is_finished_before(root: Path) -> None:
    """The former target may have it: Spark may have ended between the two."""
    plan(root, 3)
    ours = Checkpoint(str(root)).marker() is not None
    former = "the stream old" if ours else "the former sink"
    for first in (3, 4):
        told = f"batch 3 is planned and not finished.*once more with {former}.* first=4\\)"
        with pytest.raises(BadCheckpointLocation, match=told) as refused:
            start_incarnation(str(root), first=first)
        assert ("unwritten=True" in str(refused.value)) is not ours
    finish(root, 3)
    named = re.search(r"first=(\d+)", str(refused.value))
    assert named is not None
    start_incarnation(str(root), first=int(named[1]))


def test_only_another_sink_may_be_known_not_to_have_the_batch(root: Path) -> None:
    plan(root, 3)
    if Checkpoint(str(root)).marker() is not None:
        with pytest.raises(BadCheckpointLocation, match="once more with the stream old"):
            start_incarnation(str(root), first=3, unwritten=True)
        return
    start_incarnation(str(root), first=3, unwritten=True)
    found = Checkpoint(str(root)).marker()
    assert found is not None
    assert (found.first, found.former) == (3, None)


def test_more_batches_than_the_text_knew_are_seen(root: Path) -> None:
    plan(root, 3)
    finish(root, 3)
    plan(root, 4)
    finish(root, 4)
    with pytest.raises(BadCheckpointLocation, match=r"first=5\)"):
        start_incarnation(str(root), first=4)
    start_incarnation(str(root), first=5)
    # A repetition changes the id alone, and the stream before stays known.
    with pytest.raises(BadCheckpointLocation, match="from batch 5 on"):
        start_incarnation(str(root), first=5)
