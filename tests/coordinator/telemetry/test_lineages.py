"""Completions that never count, judged when they are fresh and when they are only read again."""

from sluicegate.coordinator.telemetry.lineages import not_live, not_live_then
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Parent
from sluicegate.simulator.world import STREAM
from tests.core.scene import opened


def completion(lineage: str, checkpoint: int) -> Envelope:
    """A completion's attributes."""
    return Envelope("e", EventType.CHECKPOINT_COMPLETED, STREAM, "r1", lineage, checkpoint)


def test_what_is_read_again_is_judged_as_it_was_when_it_was_fresh() -> None:
    scene = opened()
    for number in range(2):
        scene.batch(number)
        scene.settle()
    replaced = completion("q.0", 5)
    while_live = len(scene.world.log)
    scene.open("r1", "q.1", (Parent(region="r1", lineage="q.0", checkpoint=1),))
    book, end = scene.machine.book, len(scene.world.log)
    assert not_live(book, replaced) is not None
    assert not_live_then(book, replaced, end) is not None, "its query ran on"
    assert not_live_then(book, replaced, while_live - 1) is None, "it was live then"
    assert not_live(book, completion("q.0", 1)) is None
    assert not_live_then(book, completion("q.0", 1), end) is None, "a replay of what counts"
    assert not_live_then(book, completion("q.1", 2), end) is None
    assert "was not opened then" in (not_live_then(book, completion("q.1", 2), while_live - 1) or "")
    assert not_live_then(book, completion("ghost.0", 0), end) is not None
