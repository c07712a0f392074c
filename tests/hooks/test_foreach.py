"""Queries that write with `foreachBatch`, on every supported release of Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import col, lit

from sluicegate.events.models import CheckpointCompleted, FilesWritten, RegionHeartbeat
from sluicegate.failpoints import points
from sluicegate.writer_hooks import ForeachBatch
from tests.hooks.conftest import Job, make_table
from tests.hooks.foreach import completions, environment, run, start
from tests.hooks.set_back import ends_when_set_back
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def armed() -> Iterator[Callable[[str], None]]:
    """Arm failpoints of the driver, which is this process."""
    yield points.arm
    points.arm("")


def idle_streams(job: Job) -> set[str]:
    return {envelope.stream for envelope, body in job.log.of(RegionHeartbeat) if body.idle}


@pytest.mark.seam
@pytest.mark.old_spark
def test_events_match_the_files_on_disk(job: Job) -> None:
    job.feed("a", 10)
    job.feed("b", 5, start=100)
    job.feed("c", 0)
    run(job, rows=job.rows().withColumn("airport", lit("JFK")))
    job.log.wait_completed(2)

    (probe,), (registered,) = job.log.probes(), job.log.registrations()
    assert [event.envelope.id for event in job.log.events[:2]] == [probe[0].id, registered[0].id]
    named = job.log.named_files()
    infos = {at: [file for body in bodies for file in body.files] for at, bodies in named.items()}
    assert [sum(file.rows for file in infos[at]) for at in (0, 1, 2)] == [10, 5, 0]
    assert sorted(file.path for at in infos for file in infos[at]) == sorted(job.data_files())
    assert completions(job)[1].watermark == max(file.max_event_time or 0 for file in infos[1])
    assert job.log.judges.commit(job.options["stream"]).cut["JFK"].checkpoint == 2
    # The end of the query makes the region idle.
    job.log.wait(lambda: idle_streams(job), "no last heartbeat")


@pytest.mark.old_spark
def test_a_batch_whose_completion_was_not_noted_is_a_replay(job: Job, armed: Callable[[str], None]) -> None:
    job.feed("a", 4)
    for moment in ("before", "after"):
        armed(f"hook.completion.{moment}=fail@1")
        with pytest.raises(StreamingQueryException, match="was told to fail"):
            run(job)
    armed("")
    run(job)
    job.log.wait(lambda: len(completions(job)) == 2, "two completions")
    first, again = completions(job)
    assert first.source_digest == again.source_digest
    assert set(first.events).isdisjoint(again.events)
    assert len(job.data_files()) == 3, "what may have been published is never deleted"
    assert len({envelope.incarnation for envelope, _ in job.log.registrations()}) == 1
    # The listener may register a restart before its first batch does.
    assert len(job.log.registrations()) >= 3, "each run registers"


@pytest.mark.old_spark
def test_two_tables_get_the_rows_of_one_batch(job: Job) -> None:
    make_table(job.folder / "other")
    others = job.options | {
        "stream": f"{job.options['stream']}-evening",
        "table": str(job.folder / "other" / "default.db" / "flights"),
    }

    def split(frame: Any, batch: int) -> dict[str, Any]:
        evening = frame.where("id >= 100")
        return {"day": frame.where("id < 100"), **({} if batch == 0 else {"evening": evening})}

    job.feed("a", 4)
    job.feed("b", 4, start=98)
    streams = job.options["stream"], others["stream"]
    sink = ForeachBatch({"day": job.options, "evening": others}, split=split)
    run(job, sink)
    job.log.wait(lambda: [len(completions(job, each)) for each in streams] == [2, 2], "four completions")
    rows = {
        stream: [
            sum(envelope.rows for envelope, _ in job.log.of(FilesWritten) if envelope.id in body.events)
            for body in completions(job, stream)
        ]
        for stream in streams
    }
    assert rows == {streams[0]: [4, 2], streams[1]: [0, 2]}
    first, second = (job.log.judges.commit(stream).cut["JFK"] for stream in streams)
    assert (first.checkpoint, second.checkpoint) == (1, 1)
    assert first.incarnation != second.incarnation
    job.log.wait(lambda: idle_streams(job).issuperset(streams), "each stream becomes idle")
    # The query continues with one of the streams, and with its own marker.
    job.feed("c", 1, start=200)
    run(job)
    job.log.wait(lambda: len(completions(job)) == 3, "the third completion")
    assert job.log.judges.commit(streams[0]).cut["JFK"].incarnation == first.incarnation


@pytest.mark.old_spark
@pytest.mark.parametrize(("files", "losers"), [(1, 0), (200, 1)])
def test_only_the_winning_attempt_is_named(job: Job, files: int, losers: int) -> None:
    """The first attempt fails after its hand-over: few files are left to the driver, many are in the log."""
    make_table(job.folder / "other", partitioned=True)
    job.options |= {"table": str(job.folder / "other" / "default.db" / "flights")}
    ticket = job.folder / "ticket"
    ticket.touch()
    job.feed("a", files)
    with environment(job, SLUICEGATE_FAILPOINTS=f"hook.files-written.after=fail?{ticket}"):
        run(job, rows=job.rows().withColumn("airport", col("id").cast("string")))
    job.log.wait_completed(0)
    *lost, winner = (envelope.id for envelope, _ in job.log.of(FilesWritten))
    assert [body.events for body in completions(job)] == [(winner,)]
    assert len(lost) == losers
    assert [len(body.files) for body in job.log.named_files()[0]] == [files]
    written = list((job.folder / "other").rglob("*.parquet"))
    assert len(written) == 2 * files, "what may have been published is never deleted"


@pytest.mark.seam
@pytest.mark.old_spark
def test_a_query_stopped_in_a_batch_continues_with_it(job: Job) -> None:
    """The registration of a batch waits for the coordinator, and the batch for its tasks."""
    sink = ForeachBatch(job.options)
    go = job.folder / "go"

    def slow(frame: Any, batch: int) -> None:
        def wait(batches: Iterator[Any]) -> Iterator[Any]:
            Path(began).touch()
            while not Path(end).exists():
                pass
            yield from batches

        began, end = str(job.folder / "began"), str(go)
        sink(frame.mapInArrow(wait, frame.schema), batch)

    job.feed("a", 4)
    query = start(job, slow, processingTime="100 milliseconds")
    try:
        wait_until((job.folder / "began").exists, what="the task")
        query.stop()
        assert query.exception() is None
    finally:
        go.touch()
    assert completions(job) == []
    run(job)
    job.log.wait_completed(0)
    assert len(completions(job)) == 1
    assert len({envelope.incarnation for envelope, _ in job.log.registrations()}) == 1


@pytest.mark.old_spark
def test_the_driver_that_was_replaced_completes_nothing(job: Job) -> None:
    job.feed("a", 1)
    query = start(job, ForeachBatch(job.options), processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        job.log.wait((job.checkpoint / "commits" / "0").exists, "the batch does not end")
        old = job.incarnation()
        ends_when_set_back(job, query, "was reset meanwhile, to the incarnation i2")
    finally:
        query.stop()
    assert {envelope.incarnation for envelope, _ in job.log.of(CheckpointCompleted)} == {old}
    run(job)
    job.log.wait(lambda: job.log.of(CheckpointCompleted, "i2"), "it does not start again")


@pytest.mark.old_spark
def test_a_restart_without_a_batch_becomes_idle(job: Job) -> None:
    """Else full commits wait for a region that has nothing new."""
    job.feed("a", 1)
    function = ForeachBatch(job.options)
    run(job, function)
    job.log.wait_completed(0)

    def own(frame: Any, batch: int) -> None:
        function(frame, batch)

    query = start(job, own, processingTime="100 milliseconds")
    try:
        job.log.wait(lambda: len(job.log.registrations()) == 2, "the restart does not register")
        newest = job.log.registrations()[-1][0].id

        def idle() -> list[bool]:
            return [body.idle for _, body in job.log.of(RegionHeartbeat) if body.run == newest]

        job.log.wait(lambda: True in idle(), "not idle")
    finally:
        query.stop()
