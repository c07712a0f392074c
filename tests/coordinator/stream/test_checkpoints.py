"""Times and counts of single checkpoints."""

from sluicegate.coordinator.core.log import Checkpoint, Part
from sluicegate.coordinator.stream.summary import COUNTED, CheckpointHistory
from sluicegate.events.models import CheckpointCompleted


def checkpoint(parts: int) -> Checkpoint:
    """Return a completed checkpoint, with two attempts of one writer."""
    found = Checkpoint(5, 1_000)
    for number in range(parts):
        found.parts[f"e{number}"] = Part(number, 1, 10, "w0", f"a{number % 2}", 70)
    found.files, found.rows = parts, 10 * parts
    found.body = CheckpointCompleted(events=("e0",), predecessor=None, source_digest="d")
    return found


def test_facts_of_a_checkpoint() -> None:
    facts = CheckpointHistory().facts("JFK", "q1", 4, checkpoint(3), 2_000)
    assert (facts.named, facts.arrived, facts.attempts) == (1, 3, 2)
    assert (facts.files, facts.rows, facts.bytes) == (3, 30, 210)
    assert (facts.first_event, facts.completed, facts.sealed_at) == (1_000, None, 2_000)


def test_a_huge_checkpoint_is_not_counted() -> None:
    facts = CheckpointHistory().facts("JFK", "q1", 4, checkpoint(COUNTED + 1))
    assert (facts.arrived, facts.attempts, facts.bytes) == (COUNTED + 1, None, None)
