"""What is advised about a query or its session is done, and then the query runs."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from sluicegate.embedded.ports import free_port
from sluicegate.events.models import CheckpointCompleted, RegionClosed, RegionHeartbeat, StreamCommand
from sluicegate.writer_hooks import BatchUnfinished, HookError, NotOurs, attach, close_region
from sluicegate.writer_hooks.attempt import Written
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.spark import session
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker
from sluicegate.writer_hooks.spark.heartbeats import Heartbeats
from sluicegate.writer_hooks.spark.runs import Kind, Signal
from sluicegate.writer_hooks.spark.writer import StreamWriter, TaskResult
from tests.hooks.conftest import Job
from tests.hooks.log import refuse
from tests.hooks.test_thin_install import without
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
STATIC = "spark.sql.warehouse.dir"


def told(caplog: pytest.LogCaptureFixture, part: str) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in list(caplog.records) if part in record.getMessage()]


def by_rate(job: Job) -> Any:
    rows = job.spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    return rows.selectExpr("value AS id", "'JFK' AS airport", "timestamp AS at")


@pytest.mark.parametrize("trigger", [{"processingTime": "100 milliseconds"}, {"availableNow": True}])
def test_a_continuous_query_runs_with_a_micro_batch_trigger(job: Job, trigger: dict[str, Any]) -> None:
    with pytest.raises(StreamingQueryException) as refused:
        job.write(by_rate(job), continuous="1 second").awaitTermination()
    assert "use a micro-batch trigger (processingTime, availableNow)" in str(refused.value)
    assert job.log.of(CheckpointCompleted) == []
    job.feed("a", 1)
    # What a rate source has by now may be nothing, with which availableNow would be at its end.
    query = job.write(None if "availableNow" in trigger else by_rate(job), **trigger)
    try:
        job.log.wait_completed(0)
    finally:
        query.stop()
        query.awaitTermination()


def writer_of(job: Job) -> StreamWriter:
    marker = IncarnationMarker(query="q", incarnation=job.incarnation())
    return StreamWriter(SinkOptions.parse(job.options), marker, spark_watermark=False)


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "100 milliseconds"}])
def test_a_batch_without_results_is_done_again_with_a_micro_batch_trigger(
    job: Job, trigger: dict[str, Any]
) -> None:
    """Continuous triggers hand over None for each task."""
    job.feed("a", 1)
    job.run()
    job.feed("b", 1, start=100)
    with pytest.raises(NotOurs, match=r"use a micro-batch trigger \(availableNow, processingTime\)"):
        writer_of(job).commit([None, None], 1)
    query = job.write(**trigger)
    try:
        job.log.wait_completed(1)
    finally:
        query.stop()
        query.awaitTermination()


def test_a_query_whose_location_changed_is_restarted(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.feed("b", 1, start=100)
    foreign = TaskResult(Attempt("other", 1, "p00000"), Written(events=()))
    with pytest.raises(NotOurs, match="the checkpoint location changed under the running query: restart it"):
        writer_of(job).commit([foreign], 1)
    job.run()
    job.log.wait_completed(1)
    assert [envelope.checkpoint for envelope, _ in job.log.of(CheckpointCompleted)] == [0, 1]


def test_a_query_in_complete_mode_runs_in_append_mode(job: Job) -> None:
    job.feed("a", 1)
    every = job.rows().groupBy("id", "airport", "at").count().drop("count")
    writer = every.writeStream.format("sluicegate").options(**job.options).outputMode("complete")
    with pytest.raises(StreamingQueryException) as refused:
        writer.trigger(availableNow=True).start().awaitTermination()
    assert "rewrites the table; use append" in str(refused.value)
    writer = job.rows().writeStream.format("sluicegate").options(**job.options).outputMode("append")
    writer.trigger(availableNow=True).start().awaitTermination()
    job.log.wait_completed(0)


def test_a_stream_is_divided_into_other_regions_in_empty_locations(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.options["region"] = "EWR"
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException) as refused:
        job.run()
    assert "To divide the stream into other regions, end this one, and start the queries in empty" in str(
        refused.value
    )
    # The old query ends first, and the new source begins after the rows that it has read.
    job.options["region"] = "JFK"
    job.run()
    job.log.wait_completed(1)
    stream = job.options["stream"]
    job.log.judges.commit(stream)
    assert close_region(job.options) == 1
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")
    for path in list(job.source.iterdir()):
        path.unlink()
    job.options |= {
        "region": "EWR",
        "regions": "EWR,LGA",
        "assignment": "1",
        "assignment.after": "1",
        "checkpointLocation": str(job.folder / "empty"),
    }
    job.feed("c", 1, start=200)
    job.run()
    job.log.wait(
        lambda: [envelope for envelope, _ in job.log.of(CheckpointCompleted) if envelope.region == "EWR"],
        "nothing of the new region",
    )
    envelope, registered = job.log.registrations()[-1]
    assert (envelope.region, registered.assignment.number, registered.base) == ("EWR", 1, None)


def test_a_region_that_was_removed_is_written_again_with_the_next_assignment(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait_completed(0)
    stream = job.options["stream"]
    job.log.judges.commit(stream)
    job.log.judges.order(stream, StreamCommand(command="remove", region="JFK", number=0))
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*region-removed"):
        job.run()
    job.options |= {"assignment": "1", "assignment.after": "1"}
    job.run()
    job.log.wait_completed(1)
    assert job.log.judges.commit(stream).cut["JFK"].incarnation == job.incarnation()


def test_an_unfinished_query_is_started_again_and_then_closed(job: Job) -> None:
    job.log.answer = refuse("not today")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException):
        job.run()
    with pytest.raises(BatchUnfinished, match="completed none; start the query again, so that it finishes"):
        close_region(job.options)
    job.log.answer = None
    job.run()
    assert close_region(job.options) == 0
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")


def test_an_end_that_was_lost_is_announced_by_hand(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("made to fail")

    monkeypatch.setattr("sluicegate.writer_hooks.spark.heartbeats.end_region", fails)
    job.options["bounded"] = "true"
    job.feed("a", 1)
    job.run()
    (message,) = wait_until(told(caplog, "its end was not announced"))
    assert "announce it with sluicegate.writer_hooks.close_region(options)" in message
    assert job.log.of(RegionClosed) == []
    assert close_region(job.options) == 0
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")


def test_a_query_whose_idleness_was_lost_is_started_again(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    def idle() -> list[RegionHeartbeat]:
        return [body for _, body in job.log.of(RegionHeartbeat, job.incarnation()) if body.idle]

    job.feed("a", 1)
    job.run()
    job.log.wait(idle, "not idle")
    away = job.options | {"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}"}
    ending = Heartbeats(interval=0.2, idle_after=0.0)
    for kind in (Kind.STARTED, Kind.ENDED):
        ending.tell(Signal(kind, "q", "r", lambda: away))
    ending.stop(0.5)  # time: nobody listens
    (message,) = told(caplog, "Kafka has not acknowledged that the region is idle")()
    assert "wait for it, each up to alignment_timeout; start the query again to end that" in message
    before = len(idle())
    job.run()
    job.log.wait(lambda: len(idle()) > before, "not idle again")


def test_a_query_with_a_wrong_option_is_stopped_mended_and_started_again(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = job.options | {"regoin": "JFK"}
    right, job.options = job.options, wrong
    query = job.write(processingTime="100 milliseconds")
    try:
        (message,) = wait_until(told(caplog, "unknown option regoin"))
        assert "stop it, correct the options, and start it again" in message
    finally:
        query.stop()
        query.awaitTermination()
    job.options = right
    job.feed("a", 1)
    job.run()
    job.log.wait_completed(0)


class Fixed:
    """The settings of a session that lets nobody change them, as some managed ones do."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.conf = self

    def get(self, name: str) -> str | None:
        found: str | None = self._spark.conf.get(name)
        return found

    def set(self, _: str, value: str) -> None:
        self._spark.conf.set(STATIC, value)  # Spark's own refusal


def test_a_setting_that_could_not_be_set_is_set_by_hand(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    made: Any = spark.newSession()
    made.conf.set(BYTES, "64m")
    tune: Callable[[Any], None] = session._tune
    with pytest.raises(PySparkException):
        made.conf.set(STATIC, "")
    tune(Fixed(made))
    (message,) = told(caplog, f"{BYTES} could not be set (")()
    _, _, advised = message.rpartition("; set it to ")
    caplog.clear()
    made.conf.set(BYTES, advised)
    tune(Fixed(made))
    assert told(caplog, BYTES)() == []


def test_attach_works_with_the_pyspark_that_its_line_installs(spark: SparkSession) -> None:
    work = """
        from sluicegate.writer_hooks import HookError, attach
        try:
            attach(None)
        except HookError as error:
            print(error)
    """
    done = without({"pyspark", "py4j"}, work)
    assert "attach needs PySpark 3.5 or newer" in done.stdout, done.stderr
    assert 'install it with: pip install "sluicegate[paimon,spark]"' in done.stdout
    try:
        attach(spark.newSession())
    except HookError as error:
        pytest.fail(str(error))
