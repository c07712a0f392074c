"""Times and counts of pending checkpoints, for the page."""

from sluicegate.coordinator.core.log import Checkpoint, Log, Part, PendingCheckpoints
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.web.board import COUNTED, pending_checkpoints
from sluicegate.coordinator.web.model import PendingCheckpoint
from sluicegate.events.models import CheckpointCompleted


def shown(parts: int) -> PendingCheckpoint:
    """Return a completed checkpoint with two attempts of one writer, as the page has it."""
    found = Checkpoint(5, 1_000)
    for number in range(parts):
        found.parts[f"e{number}"] = Part(number, 1, 10, "w0", f"a{number % 2}", 70)
    found.files, found.rows = parts, 10 * parts
    found.body = CheckpointCompleted(events=("e0",), predecessor=None, source_digest="d")
    log = Log("s", LogState())
    log.pending["JFK"] = PendingCheckpoints("JFK", "q1", None)
    log.pending["JFK"].checkpoints[4] = found
    (only,) = pending_checkpoints(log)
    return only


def test_facts_of_a_checkpoint() -> None:
    facts = shown(3)
    assert (facts.region, facts.incarnation, facts.checkpoint) == ("JFK", "q1", 4)
    assert (facts.named, facts.arrived, facts.attempts) == (1, 3, 2)
    assert (facts.files, facts.rows, facts.bytes) == (3, 30, 210)
    assert facts.first_event == 1_000


def test_a_huge_checkpoint_is_not_counted() -> None:
    facts = shown(COUNTED + 1)
    assert (facts.arrived, facts.attempts, facts.bytes) == (COUNTED + 1, None, None)
