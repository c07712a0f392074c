"""A batch takes "idle" back before its first row: the region is not idle while it runs, however long."""

from typing import Final

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.writer_hooks import ForeachBatch
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from tests.hooks.conftest import Job
from tests.hooks.foreach import start
from tests.integration.gate import HELD, gate_in
from tests.integration.waiting import BACKSTOP, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.seam]

MARK: Final = "mark"


def mark(job: Job) -> None:
    """Append an event that no reader minds, and wait until the log was read up to it."""
    region = SinkOptions.parse(job.options).region
    event = region.event(EventType.REGION_HEARTBEAT, job.incarnation(), RegionHeartbeat(run=MARK))
    shared_publisher(region.kafka).publish(region.events_topic, [event], BACKSTOP)
    job.log.wait(lambda: event.envelope.id in {each.envelope.id for each in job.log.events}, "no mark")


def is_idle(job: Job) -> bool:
    return job.log.judges.replica(job.options["stream"]).log.is_idle("JFK")


def beats(job: Job) -> list[RegionHeartbeat]:
    return [body for _, body in job.log.of(RegionHeartbeat) if body.run != MARK]


@pytest.mark.parametrize("sink", ["data source", pytest.param("foreachBatch", marks=pytest.mark.old_spark)])
def test_a_long_batch_after_a_pause_is_not_idle(job: Job, sink: str) -> None:
    job.feed("a", 1)
    with gate_in(job.folder) as gate:
        rows, trigger = gate.hold(job.rows()), {"processingTime": "100 milliseconds"}
        if sink == "foreachBatch":
            query = start(job, ForeachBatch(job.options), rows, **trigger)
        else:
            query = job.write(rows, **trigger)
        try:
            job.log.wait_completed(0)
            job.log.judges.commit(job.options["stream"])
            job.log.wait(lambda: is_idle(job), "never idle")
            job.feed("b", 1, start=HELD)
            wait_until(gate.began.exists)
            # Whatever was acknowledged before the first row is in the log before this.
            mark(job)
            assert not is_idle(job)
            seen = len(beats(job))
            job.log.wait(lambda: len(beats(job)) >= seen + 2, "no heartbeats during the batch")
            assert not is_idle(job)
            assert not any(body.idle for body in beats(job)[seen:])
            gate.open()
            job.log.wait_completed(1)
            # The pause commits; the region is idle after this batch, whose number its heartbeats name.
            job.log.judges.commit(job.options["stream"])
            job.log.wait(lambda: is_idle(job), "not idle after the batch")
            assert [body.begins for body in beats(job) if body.begins is not None] == [1]
            assert {body.after for body in beats(job) if body.idle} == {0, 1}
        finally:
            gate.open()
            query.stop()
            query.awaitTermination()
