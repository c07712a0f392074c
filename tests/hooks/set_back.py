"""A reset of a region under its running query."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, RegionRegistered
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from tests.hooks.conftest import Job


def ends_when_set_back(job: Job, query: StreamingQuery, told: str) -> None:
    """Set the location of a running query back, as a reset does, and wait for the query's end.

    `told` is a pattern of its error.
    """
    known = CheckpointLocation(str(job.checkpoint))
    marker = known.marker()
    assert marker is not None
    base = known.predecessor(marker, 1)
    body = RegionRegistered(
        base=base, replaces=marker.incarnation, assignment=Assignment(number=0, regions=("JFK",))
    )
    job.log.judges.commit(job.options["stream"])
    event = SinkOptions.parse(job.options).region.event(EventType.REGION_REGISTERED, "i2", body)
    answer = job.log.judges.apply(event.envelope, event.body)
    assert answer is not None
    assert answer.accepted, answer
    known.write_marker(marker.model_copy(update={"incarnation": "i2", "base": base, "first": 1}))
    job.feed("b", 1, start=100)
    # A wait inside the JVM cannot be interrupted, so a query that goes on would hold the test for ever.
    job.log.wait(lambda: not query.isActive, "the query goes on")
    with pytest.raises(StreamingQueryException, match=told):
        query.awaitTermination()
