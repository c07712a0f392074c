"""What the listener tells of a query: alive, idle, at its end."""

import subprocess
import sys
import textwrap
from itertools import count

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import lit, raise_error

from sluicegate.events.envelope import EventType
from sluicegate.events.models import (
    CheckpointCompleted,
    CheckpointFailed,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.writer_hooks import BatchUnfinished, close_region
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from tests.hooks.conftest import Job
from tests.hooks.log import refuse
from tests.integration.waiting import BACKSTOP

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.seam
def test_idle_when_the_source_has_nothing_new(job: Job) -> None:
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")

    def beats() -> list[bool]:
        return [body.idle for _, body in job.log.of(RegionHeartbeat)]

    numbers = count()

    def is_busy_again() -> bool:
        # A batch may end before a heartbeat is due, so there is another one until a heartbeat has met one.
        job.feed(f"b{next(numbers)}", 1, start=100)
        return False in beats()[beats().index(True) :]

    try:
        job.log.wait(lambda: True in beats(), "never idle")
        job.log.wait(is_busy_again, "idle for ever")
        seen = len(beats())
        job.log.wait(lambda: len(beats()) >= seen + 2, "no heartbeat on the timer")
        # A region with an unfinished batch is not idle at its end.
        query.processAllAvailable()
    finally:
        query.stop()
        query.awaitTermination()
    assert job.log.of(RegionClosed) == [], "an unbounded region stays open"
    beaten = job.log.of(RegionHeartbeat)
    assert {envelope.incarnation for envelope, _ in beaten} == {job.incarnation()}
    assert {body.run for _, body in beaten} == {job.log.registrations()[-1][0].id}
    region = job.log.judges.replica(job.options["stream"]).state.regions["JFK"]
    job.log.wait(lambda: region.idle, "not idle at its end")


def test_bounded_source_is_closed_at_its_end(job: Job) -> None:
    job.options["bounded"] = "true"
    job.feed("a", 1)
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")
    ((envelope, body),) = job.log.of(RegionClosed)
    assert (envelope.incarnation, body.final) == (job.incarnation(), 1)
    assert body.run == job.log.registrations()[-1][0].id
    assert all(registered.bounded for _, registered in job.log.registrations())
    region = job.log.judges.replica(job.options["stream"]).state.regions["JFK"]
    assert (region.phase, region.final) == ("closed", 1)
    assert job.log.events[-1].envelope.id == envelope.id


def test_unfinished_batch_cannot_be_closed(job: Job) -> None:
    job.options["bounded"] = "true"
    job.log.answer = refuse("not today")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException):
        job.run()
    with pytest.raises(BatchUnfinished, match=r"planned batch 0 and completed none"):
        close_region(job.options)
    assert job.log.of(RegionClosed) == []


def is_idle(job: Job) -> bool:
    region = job.log.judges.replica(job.options["stream"]).state.regions.get("JFK")
    return region is not None and region.idle


def test_a_query_at_its_end_leaves_its_region_idle(job: Job) -> None:
    job.feed("a", 1)
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait(lambda: is_idle(job), "not idle")
    assert isinstance(job.log.events[-1].body, RegionHeartbeat), "behind everything that it wrote"
    assert job.log.of(CheckpointCompleted)[-1][0].checkpoint == 1
    assert job.log.of(RegionClosed) == [], "it may be started again"
    job.feed("c", 1, start=200)
    job.run()
    job.log.wait(lambda: isinstance(job.log.events[-1].body, RegionHeartbeat) and is_idle(job), "not again")
    assert job.log.of(CheckpointCompleted)[-1][0].checkpoint == 2


def last_word(job: Job) -> tuple[int, str]:
    """Wait for the last word of a query; return the number of its checkpoint, and its reason."""

    def found() -> list[tuple[int, str]]:
        declines = job.log.of(CheckpointFailed)
        return [(at.checkpoint, body.reason) for at, body in declines if body.code == "query-failed"]

    job.log.wait(lambda: bool(found()), "no last word")
    return found()[-1]


def test_a_query_whose_rows_do_not_fit_gives_the_error_as_its_last_word(job: Job) -> None:
    """The page, the status and the alert of the region have it from there."""
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException):
        job.run(job.rows().withColumn("gate", lit(7)))
    number, reason = last_word(job)
    assert number == 0
    assert reason.startswith("SchemaMismatch: ")
    assert "gate" in reason
    region = job.log.judges.replica(job.options["stream"]).state.regions["JFK"]
    job.log.wait(lambda: region.declined is not None and region.declined.reason == reason, "not declined")
    job.run()
    job.log.wait(lambda: is_idle(job), "not idle")
    assert region.declined is None


def test_a_query_that_fails_falls_silent(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait(lambda: is_idle(job), "not idle")
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException):
        job.run(job.rows().withColumn("airport", raise_error("broken on purpose")))
    number, reason = last_word(job)
    assert number == 1
    assert reason.startswith("the query failed: ")
    assert "broken on purpose" not in reason, "it may have a secret"
    before = len(job.log.registrations())
    # What follows in the same thread shows that the end of the run before was handled.
    job.options["bounded"] = "true"
    job.run()
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")
    kinds = [event.body for event in job.log.events]
    began = [at for at, body in enumerate(kinds) if isinstance(body, RegionRegistered) and not body.probe]
    between = [body for body in kinds[began[1] : began[before]] if isinstance(body, RegionHeartbeat)]
    assert not any(body.idle for body in between), "said to be idle with a batch unfinished"


def read_to_the_end(job: Job) -> None:
    """Append a last event of no incarnation, and wait until the log has been read up to it."""
    region = SinkOptions.parse(job.options).region
    last = region.event(EventType.REGION_HEARTBEAT, "marker", RegionHeartbeat(run="r"))
    shared_publisher(region.kafka).publish(region.events_topic, [last], BACKSTOP)
    job.log.wait(lambda: job.log.of(RegionHeartbeat, "marker"), "the marker")


_DRIVER = """
    import os, sys
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from sluicegate.writer_hooks import attach
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    attach(spark, heartbeat_interval=60.0)
    rows = spark.readStream.schema("id long, airport string, at timestamp").json({source!r})
    rows.writeStream.format("sluicegate").options(**{options!r}).trigger(
        availableNow=True).start().awaitTermination()
    {last}
"""


@pytest.mark.parametrize("last", ["spark.stop()", "pass"])
def test_a_driver_that_ends_at_once_does_not_lose_it(job: Job, last: str) -> None:
    """Its Kafka has a name, and is asked for it again: the connections are closed before."""
    options = job.options | {"kafka.bootstrap.servers": job.log.bootstrap.replace("127.0.0.1", "localhost")}
    if last == "pass":
        last = (
            textwrap.dedent("""
            from sluicegate.writer_hooks.publisher import _shared
            _shared.close()
        """)
            .strip()
            .replace("\n", "; ")
        )
    job.feed("a", 1)
    script = textwrap.dedent(_DRIVER).format(source=str(job.source), options=options, last=last)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read_to_the_end(job)
    assert is_idle(job), done.stderr
    assert isinstance(job.log.events[-2].body, RegionHeartbeat)
