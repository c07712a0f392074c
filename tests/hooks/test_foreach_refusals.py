"""What ForeachBatch refuses, before it writes or before it completes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import lit, raise_error

from sluicegate.events.models import CheckpointFailed, FilesWritten
from sluicegate.writer_hooks import BadOption, ForeachBatch, HookError, NotOurs
from tests.hooks.conftest import Job
from tests.hooks.foreach import completions, run

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_batch_whose_source_range_changes_meanwhile_does_not_count(job: Job) -> None:
    sink = ForeachBatch(job.options)
    offsets = job.checkpoint / "offsets" / "0"
    kept: list[str] = []

    def overwritten(frame: Any, batch: int) -> None:
        def change(batches: Iterator[Any]) -> Iterator[Any]:
            yield from batches
            Path(place).write_text(changed)

        place, kept[:] = str(offsets), [offsets.read_text()]
        changed = kept[0].replace('{"logOffset":0}', '{"logOffset":7}')
        sink(frame.mapInArrow(change, frame.schema), batch)

    job.feed("a", 4)
    with pytest.raises(StreamingQueryException, match=r"lacks files that Spark has planned|range of batch 0"):
        run(job, overwritten)
    assert completions(job) == []
    offsets.write_text(kept[0])
    (offsets.parent / ".0.crc").unlink(missing_ok=True)
    run(job)
    job.log.wait_completed(0)
    assert len(completions(job)) == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"checkpointLocation": "/c#stream=other"}, "names the stream other"),
        ({"day": {}}, r"use ForeachBatch\({...}, split=function\)"),
    ],
)
def test_wrong_options_are_refused_when_the_sink_is_made(job: Job, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        ForeachBatch(job.options | wrong)


def test_a_batch_whose_error_was_caught_ends_the_query_at_the_next_one(job: Job) -> None:
    sink = ForeachBatch(job.options)

    def careless(frame: Any, batch: int) -> None:
        rows = frame if batch != 1 else frame.withColumn("id", raise_error(lit("lost")).cast("long"))
        try:
            sink(rows, batch)
        except Exception:
            if batch != 1:
                raise

    for number in range(3):
        job.feed(f"{number}", 1, start=number)
    with pytest.raises(StreamingQueryException, match="not called for batch 1, or its error was caught"):
        run(job, careless)
    assert len(completions(job)) == 1
    ((envelope, body),) = job.log.of(CheckpointFailed)
    assert (envelope.checkpoint, body.outcome) == (1, "declined")


@pytest.mark.old_spark
def test_another_checkpoint_location_is_refused(job: Job) -> None:
    """Its query had the same id once, so that only the path tells them apart."""
    job.feed("a", 1)
    run(job)
    job.log.wait_completed(0)
    copied = job.folder / "copied"
    shutil.copytree(job.checkpoint, copied)
    job.feed("b", 1, start=100)
    before = len(job.log.events)
    writer = job.rows().writeStream.foreachBatch(ForeachBatch(job.options))
    for location in (copied, job.folder / "new"):
        with pytest.raises(StreamingQueryException, match="Give both the same location"):
            writer.option("checkpointLocation", str(location)).trigger(
                availableNow=True
            ).start().awaitTermination()
    assert len(job.log.of(FilesWritten)) == 1
    run(job)
    job.log.wait_completed(1)
    assert before


@pytest.mark.old_spark
def test_what_cannot_be_committed_is_refused_before_a_task(job: Job) -> None:
    sink = ForeachBatch(job.options | {"stream": "x"})
    with pytest.raises(NotOurs, match=r"Call it only in the function of writeStream\.foreachBatch"):
        sink(job.spark.range(1), 0)
    job.feed("a", 1)
    counted = job.rows().groupBy("id", "airport", "at").count().drop("count")
    for mode in ("update", "complete"):
        writer = counted.writeStream.foreachBatch(ForeachBatch(job.options)).outputMode(mode)
        query = writer.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException, match=f"output mode {mode} rewrites rows.*use append"):
            query.awaitTermination()
        shutil.rmtree(job.checkpoint)
    assert job.log.events == []
    run(job)
    job.log.wait_completed(0)


@pytest.mark.old_spark
def test_a_second_call_in_a_batch_is_refused_before_it_writes(job: Job) -> None:
    sink = ForeachBatch(job.options)

    def twice(frame: Any, batch: int) -> None:
        sink(frame.where("id < 2"), batch)
        frame.sparkSession.sparkContext.setJobGroup("second", "a group of the user")
        ForeachBatch(job.options)(frame.where("id >= 2"), batch)

    job.feed("a", 4)
    with pytest.raises(StreamingQueryException, match=r"a second time for batch 0.*frame\.union"):
        run(job, twice)
    assert [envelope.rows for envelope, _ in job.log.of(FilesWritten)] == [2]

    def together(frame: Any, batch: int) -> None:
        sink(frame.where("id < 2").union(frame.where("id >= 2")), batch)

    run(job, together)
    job.log.wait(lambda: len(completions(job)) == 2, "two completions")


def test_an_older_spark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(HookError, match=r"ForeachBatch needs PySpark 3\.5 or newer \(found 3\.4\.4\)"):
        ForeachBatch({})


def test_spark_connect_is_refused(job: Job) -> None:
    """Spark gives the function a session without a JVM there."""
    with pytest.raises(NotOurs, match=r'Use writeStream\.format\("sluicegate"\) there'):
        ForeachBatch(job.options)(SimpleNamespace(sparkSession=object()), 0)
