"""Batches of a real query: files on disk, events in the log, and what names what."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage

from sluicegate.events.envelope import EventType, partition_of
from sluicegate.events.models import CheckpointCompleted, FilesWritten, Position, RegionHeartbeat
from sluicegate.writer_hooks import ForeachBatch, NotOurs
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker
from sluicegate.writer_hooks.spark.registry import ATTACHED, require_attached
from sluicegate.writer_hooks.spark.source import SluicegateSource, StreamWriter, TaskResult
from sluicegate.writer_hooks.writer import Written
from tests.hooks.conftest import Job
from tests.hooks.foreach import start
from tests.hooks.log import PARTITIONS
from tests.hooks.set_back import ends_when_set_back
from tests.integration.gate import HELD, gate_in
from tests.integration.waiting import BACKSTOP, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.seam
def test_events_match_the_files_on_disk(job: Job) -> None:
    job.feed("a", 10)
    job.feed("b", 5, start=100)
    job.run()
    job.log.wait_completed(1)

    (probe,), (registered,) = job.log.probes(), job.log.registrations()
    assert [event.envelope.id for event in job.log.events[:2]] == [probe[0].id, registered[0].id]
    assert {probe[0].incarnation, registered[0].incarnation} == {job.incarnation()}
    assert (registered[1].base, registered[1].replaces) == (None, None)
    assert [each.checkpoint for each in registered[1].planned] == [0]
    (_, first), (_, second) = completions = job.log.of(CheckpointCompleted)
    assert [envelope.checkpoint for envelope, _ in completions] == [0, 1]
    assert first.predecessor is None
    assert second.predecessor == Position(
        incarnation=job.incarnation(), checkpoint=0, digest=first.source_digest
    )
    assert [json.loads(body.source_offsets or "") for _, body in completions] == [
        {"0": {"logOffset": 0}},
        {"0": {"logOffset": 1}},
    ]
    assert {envelope.incarnation for envelope, _ in completions} == {job.incarnation()}
    assert job.log.judges.commit(job.options["stream"]).cut["JFK"].checkpoint == 1
    assert job.log.partitions == {partition_of(job.options["stream"], PARTITIONS)}

    named = job.log.named_files()
    infos = {at: [file for body in bodies for file in body.files] for at, bodies in named.items()}
    assert [sum(file.rows for file in infos[at]) for at in (0, 1)] == [10, 5]
    listed = [file.path for at in (0, 1) for file in infos[at]]
    assert sorted(listed) == sorted(job.data_files())
    assert all((job.table / file.path).stat().st_size == file.size for file in infos[0])
    assert {envelope.writer for envelope, _ in job.log.of(FilesWritten)} == {"p00000"}
    assert completions[1][1].watermark == max(file.max_event_time or 0 for file in infos[1])


def test_sparks_watermark_goes_before_the_batchs_own_times(job: Job) -> None:
    job.feed("a", 120)
    job.feed("b", 1, start=3000)
    job.run(job.rows().withWatermark("at", "1 minute"))
    job.log.wait_completed(1)

    completions = [body for _, body in job.log.of(CheckpointCompleted)]
    newest = max(file.max_event_time or 0 for body in job.log.named_files()[0] for file in body.files)
    assert completions[0].watermark is None, "Spark's watermark has not moved yet"
    assert completions[1].watermark == newest - 60_000


def register(job: Job, kind: str, marker: Path) -> str:
    """Register a sink that fails once in a chosen place; made here, so that workers get it by value."""
    flag = str(marker)

    class Failing(StreamWriter):
        def write(self, iterator: Any) -> TaskResult:
            result = super().write(iterator)
            if kind == "first-attempt" and TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("the first attempt ends after its event was published")
            return result

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            super().commit(messages, batchId)
            if kind == "after-commit" and not Path(flag).exists():
                Path(flag).touch()
                raise RuntimeError("the driver ends before Spark has noted the batch")

    class FailingSource(SluicegateSource):
        registry_folder = str(require_attached(ATTACHED.registry)._folder)

        @classmethod
        def name(cls) -> str:
            return f"failing-{kind}"

        def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
            made = super().streamWriter(schema, overwrite)
            made.__class__ = Failing
            return made

    job.spark.dataSource.register(FailingSource)
    return FailingSource.name()


@pytest.mark.seam
def test_only_the_winning_attempt_is_named(job: Job, tmp_path: Path) -> None:
    name = register(job, "first-attempt", tmp_path / "flag")
    job.feed("a", 4)
    job.run(name=name)
    job.log.wait_completed(0)

    (winner,) = (envelope.id for envelope, _ in job.log.of(FilesWritten))
    (completion,) = (body for _, body in job.log.of(CheckpointCompleted))
    assert completion.events == (winner,)
    assert len(job.data_files()) == 2, "what may be referenced is never deleted"


def test_replayed_batch_has_the_same_source_and_other_files(job: Job, tmp_path: Path) -> None:
    name = register(job, "after-commit", tmp_path / "flag")
    job.feed("a", 4)
    with pytest.raises(StreamingQueryException, match="before Spark has noted"):
        job.run(name=name)
    job.run(name=name)
    job.log.wait(lambda: len(job.log.of(CheckpointCompleted)) == 2, "two completions")

    (one, first), (other, again) = job.log.of(CheckpointCompleted)
    assert (one.checkpoint, one.incarnation) == (other.checkpoint, other.incarnation)
    assert first.source_digest == again.source_digest
    assert set(first.events).isdisjoint(again.events)
    assert len(job.data_files()) == 2


def test_results_missing_from_a_completion_are_refused(job: Job) -> None:
    """Continuous triggers hand over None, as does anything that is not the winners' list."""
    job.feed("a", 1)
    job.run()
    job.log.wait_completed(0)
    writer = StreamWriter(
        SinkOptions.parse(job.options),
        IncarnationMarker(query="q", incarnation=job.incarnation()),
        None,
        spark_watermark=False,
    )
    with pytest.raises(NotOurs, match=r"batch 0 came without the results of its tasks"):
        writer.commit([None, None], 0)
    with pytest.raises(NotOurs, match="restart it"):
        writer.commit([TaskResult(Attempt("other", 0, "p00000"), Written(events=()))], 0)
    assert len(job.log.of(CheckpointCompleted)) == 1


def test_a_query_whose_location_was_set_back_under_it_ends(job: Job) -> None:
    """Its driver was frozen, and taken for dead: Spark would go on from the offsets that it has in memory."""
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        # The batch is at its end: what follows is another one.
        job.log.wait((job.checkpoint / "commits" / "0").exists, "the batch does not end")
        old = job.incarnation()
        ends_when_set_back(job, query, "was reset meanwhile, to the incarnation i2")
    finally:
        query.stop()
    assert {envelope.incarnation for envelope, _ in job.log.of(CheckpointCompleted)} == {old}
    assert {envelope.incarnation for envelope, _ in job.log.registrations()} == {old}
    job.run()
    job.log.wait(lambda: job.log.of(CheckpointCompleted, "i2"), "it does not start again")
    assert job.log.judges.commit(job.options["stream"]).cut["JFK"].checkpoint == 1


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


@pytest.mark.parametrize(
    "sink", ["data source", pytest.param("foreachBatch", marks=[pytest.mark.old_spark, pytest.mark.matrix])]
)
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
