"""What ForeachBatch refuses, before it writes or before it completes."""

import os
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.functions import lit, raise_error

from sluicegate.events.models import Assignment, CheckpointCompleted, CheckpointFailed, FilesWritten
from sluicegate.writer_hooks import BadCheckpointLocation, BadOption, ForeachBatch, HookError, NotOurs
from sluicegate.writer_hooks.attempt import Written
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.result import WriterResult
from sluicegate.writer_hooks.spark.attached import ATTACHED
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from sluicegate.writer_hooks.spark.foreach import _outcomes
from sluicegate.writer_hooks.spark.location import may_be_same
from sluicegate.writer_hooks.spark.reset import Reset, ResetOrder
from sluicegate.writer_hooks.spark.running import _require_append, _run_of
from sluicegate.writer_hooks.spark.versions import has_data_source
from tests.hooks.conftest import Job
from tests.hooks.foreach import completions, environment, run, start
from tests.hooks.log import refuse, silent
from tests.hooks.test_thin_install import without
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_executors_without_the_package_are_told(job: Job) -> None:
    (job.folder / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys

            class Refused:
                def find_spec(self, name, path=None, target=None):
                    if name == "sluicegate":
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

            sys.meta_path.insert(0, Refused())
            """
        )
    )
    job.feed("a", 4)
    path = os.pathsep.join([str(job.folder), os.environ.get("PYTHONPATH", "")])
    with environment(job, PYTHONPATH=path), pytest.raises(StreamingQueryException) as refused:
        run(job)
    assert "HookError: the Python of Spark's executors cannot import sluicegate" in str(refused.value)
    run(job)
    job.log.wait_completed(0)


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


def test_continuous_queries_are_refused(job: Job) -> None:
    """Spark itself refuses the trigger for foreachBatch, so that this query has another sink."""
    rows = job.spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(job.checkpoint))
    running = query.trigger(continuous="1 second").start()
    try:
        with pytest.raises(NotOurs, match=r"use a micro-batch trigger \(processingTime, availableNow\)"):
            _require_append(running._jsq.streamingQuery())
    finally:
        # Spark 4.1 hangs in stop() if the query has no job yet.
        wait_until(lambda: job.spark.sparkContext.statusTracker().getActiveJobsIds())
        running.stop()
    with pytest.raises(PySparkException):
        rows.writeStream.foreachBatch(ForeachBatch(job.options)).trigger(continuous="1 second").start()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"checkpointLocation": "/c#stream=other"}, "names the stream other"),
        ({"cluster.by": "a,,b"}, "must list columns"),
        ({"day": {}}, r"use ForeachBatch\({...}, split=function\)"),
    ],
)
def test_wrong_options_are_refused_when_the_sink_is_made(job: Job, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        ForeachBatch(job.options | wrong)


def test_streams_of_one_name_are_refused(job: Job) -> None:
    with pytest.raises(BadOption, match="give each its own option stream"):
        ForeachBatch({"a": job.options, "b": job.options}, split=lambda frame, _: {"a": frame})
    with pytest.raises(BadOption, match=r"use ForeachBatch\({name: options, ...}, split=function\)"):
        ForeachBatch(job.options, split=lambda frame, _: {"a": frame})


@pytest.mark.parametrize(
    ("location", "other", "same"),
    [
        ("/a/b", "file:/a/b/", True),
        ("file:///a/b%20c", "file:/a/b c", True),
        ("/a/b", "file:/a/c", False),
        ("s3://bucket/a", "s3a://bucket/a", True),
        ("s3://bucket/a", "s3a://other/a", False),
        ("hdfs:///a", "hdfs://name:8020/a", True),
        ("/dbfs/a", "dbfs:/a", True),
    ],
)
def test_names_of_one_location(location: str, other: str, same: bool) -> None:
    assert may_be_same(location, other) is same


def test_a_refused_registration_writes_nothing(job: Job) -> None:
    job.log.answer = refuse("its checkpoint location is another one")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*is another one"):
        run(job)
    assert (job.log.of(FilesWritten), job.data_files()) == ([], set())


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
    assert (envelope.checkpoint, body.outcome) == (1, "redone")


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


def test_a_job_group_of_the_user_does_not_hide_a_replay(job: Job) -> None:
    sink = ForeachBatch(job.options)

    def grouped(frame: Any, batch: int) -> None:
        frame.sparkSession.sparkContext.setJobGroup("always", "a group of the user")
        sink(frame, batch)

    job.feed("a", 4)
    run(job, grouped)
    for path in (job.checkpoint / "commits").iterdir():
        path.unlink()
    run(job, grouped)
    job.log.wait(lambda: len(completions(job)) == 2, "two completions")
    first, again = completions(job)
    assert first.source_digest == again.source_digest


def test_without_the_query_in_the_jvm_the_job_group_names_the_run() -> None:
    run_id = "c2a4f0de-2a66-4bd5-9d9a-4e4c7d7d0f3b"
    assert _run_of(None, run_id) == run_id
    with pytest.raises(NotOurs, match="Set no job group before the call"):
        _run_of(None, "always")


def test_a_batch_that_is_left_out_at_the_beginning_of_a_run_is_refused(job: Job) -> None:
    sink = ForeachBatch(job.options)
    job.feed("a", 4)
    run(job, sink)

    def careless(frame: Any, batch: int) -> None:
        if batch != 1:
            sink(frame, batch)

    job.feed("b", 1, start=100)
    run(job, careless)
    job.feed("c", 1, start=200)
    with pytest.raises(StreamingQueryException, match="left batches out, or caught their errors"):
        run(job, sink)
    assert [envelope.checkpoint for envelope, _ in job.log.of(CheckpointCompleted)] == [0]
    # The format `sluicegate` is called for every batch, so it keeps no note.
    Checkpoint(job.options["checkpointLocation"]).forget_completed()
    run(job, sink)
    job.log.wait(lambda: len(completions(job)) == 2, "the next completion")


def test_two_spellings_of_a_location_are_one_stream(job: Job) -> None:
    other = ForeachBatch({**job.options, "checkpointLocation": f"file://{job.checkpoint}"})
    sink = ForeachBatch(job.options)

    def twice(frame: Any, batch: int) -> None:
        sink(frame.where("id < 2"), batch)
        other(frame.where("id >= 2"), batch)

    job.feed("a", 4)
    with pytest.raises(StreamingQueryException, match="a second time for batch 0"):
        run(job, twice)


def test_a_location_that_is_set_back_before_the_first_batch_of_a_run_ends_it(job: Job) -> None:
    sink = ForeachBatch(job.options)
    job.feed("a", 4)
    run(job, sink)
    query = start(job, sink, processingTime="100 milliseconds")
    registry, checkpoint = ATTACHED.registry, Checkpoint(job.options["checkpointLocation"])
    assert registry is not None
    wait_until(lambda: registry.incarnation(query.id) is not None, what="the start of the run")
    marker = checkpoint.marker()
    assert marker is not None
    checkpoint.write_marker(marker.model_copy(update={"incarnation": "another"}))
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match="was reset meanwhile, to the incarnation another"):
        query.awaitTermination()
    assert len(completions(job)) == 1


def test_rows_of_an_unknown_stream_are_refused(job: Job) -> None:
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match="Correct the names that split returns"):
        run(job, ForeachBatch({"day": job.options}, split=lambda frame, _: {"night": frame}))
    assert job.log.of(FilesWritten) == []
    run(job, ForeachBatch({"day": job.options}, split=lambda frame, _: {"day": frame}))
    job.log.wait_completed(0)


def test_two_results_of_one_partition_are_refused() -> None:
    one, other = (WriterResult(Attempt("i", 0, "p00000"), Written(events=())).to_json() for _ in range(2))
    assert len(_outcomes([one])) == 1
    with pytest.raises(NotOurs, match=r"Nothing of this batch counts\. Start the query again"):
        _outcomes([one, other])


def test_a_location_of_several_streams_is_not_set_back_for_one(tmp_path: Path) -> None:
    (tmp_path / "sluicegate" / "streams").mkdir(parents=True)
    (tmp_path / "sluicegate" / "streams" / "day.json").write_text("{}")
    order = ResetOrder("day", "JFK", f"{tmp_path}#stream=day", Assignment(number=0, regions=("JFK",)))
    with pytest.raises(BadCheckpointLocation, match="Write this stream with a query of its own"):
        Reset(order)
    shutil.rmtree(tmp_path / "sluicegate")
    with pytest.raises(BadCheckpointLocation, match="whose name states no stream"):
        Reset(order)
    assert Reset(replace(order, location=str(tmp_path))).is_empty


@pytest.mark.skipif(not has_data_source(), reason="this release has no data source")
def test_the_data_source_does_not_cluster_rows(job: Job) -> None:
    job.options |= {"cluster.by": "airport"}
    job.feed("a", 4)
    with pytest.raises(StreamingQueryException, match=r"or use foreachBatch\(ForeachBatch\(options\)\)"):
        job.run()
    run(job)
    job.log.wait_completed(0)


def test_an_older_spark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(HookError, match=r"ForeachBatch needs PySpark 3\.5 or newer \(found 3\.4\.4\)"):
        ForeachBatch({})


def test_a_query_stopped_while_it_registers_ends(job: Job) -> None:
    job.log.answer = silent
    job.feed("a", 1)
    query = start(job, ForeachBatch(job.options), processingTime="100 milliseconds")
    job.log.wait(job.log.probes, "no question")
    query.stop()
    assert not query.isActive
    job.log.answer = None
    run(job)
    job.log.wait_completed(0)


def test_a_missing_package_of_spark_is_told() -> None:
    work = """
        from sluicegate.writer_hooks import ForeachBatch, HookError
        try:
            ForeachBatch({})
        except HookError as error:
            print(error)
    """
    assert "pip install pyarrow pandas setuptools" in without({"pandas"}, work).stdout
    assert "ForeachBatch needs PySpark 3.5 or newer" in without({"pyspark", "py4j"}, work).stdout


def test_spark_connect_is_refused(job: Job) -> None:
    """Spark gives the function a session without a JVM there."""
    with pytest.raises(NotOurs, match=r'Use writeStream\.format\("sluicegate"\) there'):
        ForeachBatch(job.options)(SimpleNamespace(sparkSession=object()), 0)


def test_several_streams_have_no_limits_of_uncommitted_checkpoints(job: Job) -> None:
    limited = {**job.options, "max.uncommitted.checkpoints": "3"}
    with pytest.raises(BadOption, match="Leave them out with split, or write each stream with its own query"):
        ForeachBatch({"all": limited}, split=lambda frame, _: {"all": frame})
