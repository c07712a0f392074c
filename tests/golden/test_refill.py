"""A recovery collects again what its state record leaves out, and says so if the log lacks a part of it."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.problems import Code
from tests.golden.coordinator import STREAM, World
from tests.golden.script import Script

UNRESOLVED = """regions r1
register r1 q.0
away Publish
batch r1 q.0 0 f0
command resume
"""
REMOVED = """register r1 q.0
register r2 p.0
batch r1 q.0 0 a0 &
batch r2 p.0 0 b0
settings partial=never
batch r1 q.0 2 lost after=1
batch r1 q.0 3 a3 after=0
command remove region=r1 number=0
"""


def recovered(world: World, without: EventType | None = None) -> Replica:
    """Return a replica that starts from the newest record, and reads a log without events of a type."""
    assert world.record is not None
    record = StateRecord.model_validate_json(world.record)
    replica = Replica(STREAM, 0, record.state, record.applied)
    for offset, entry in enumerate(world.log):
        if offset >= record.low_water and entry.envelope.type is not without:
            replica.step(LogRecord(offset, entry.time, entry.envelope, entry.body))
    replica.finish_refill()
    return replica


def run(text: str) -> World:
    script = Script()
    script.run(text)
    return script.world


def test_events_of_an_unresolved_decision_that_the_log_lacks_are_noticed() -> None:
    world = run(UNRESOLVED)
    assert recovered(world).problem(0) is None
    problem = recovered(world, EventType.FILES_WRITTEN).problem(0)
    assert problem is not None
    assert problem.code is Code.LOG_DISCONTINUOUS


def test_what_a_removal_has_discarded_stays_discarded() -> None:
    """Numbers of checkpoints have gaps, so some of that is before the final checkpoint."""
    replica = recovered(run(REMOVED))
    assert replica.state.regions["r1"].final == 3
    assert [each.position.checkpoint for each in replica.log.pending["r1"].sealed] == [3]
    assert replica.log.pending["r1"].gap() is None


@pytest.mark.parametrize(
    "test",
    [
        test_events_of_an_unresolved_decision_that_the_log_lacks_are_noticed,
        test_what_a_removal_has_discarded_stays_discarded,
    ],
)
def test_a_planted_defect_is_seen(test: Callable[[], None]) -> None:
    """Planted: the reading again has no end. Schedules lose no events, so they do not see it."""
    with patch.object(Replica, "finish_refill", lambda self: None), pytest.raises(AssertionError):
        test()
