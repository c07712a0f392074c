"""What goes wrong in a query: retried tasks, replayed batches, lost brokers, wrong rows."""

from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.models import (
    CheckpointCompleted,
    FilesWritten,
    RegionHeartbeat,
)
from sluicegate.writer_hooks import NotOurs, publisher
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker
from sluicegate.writer_hooks.spark.source import SluicegateSource, StreamWriter, TaskResult
from sluicegate.writer_hooks.writer import Written
from tests.hooks.conftest import Job
from tests.hooks.log import Log
from tests.hooks.set_back import ends_when_set_back

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


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
        spark_watermark=False,
    )
    with pytest.raises(NotOurs, match=r"batch 0 came without the results of its tasks"):
        writer.commit([None, None], 0)
    with pytest.raises(NotOurs, match="restart it"):
        writer.commit([TaskResult(Attempt("other", 0, "p00000"), Written(events=()))], 0)
    assert len(job.log.of(CheckpointCompleted)) == 1


def test_broker_away_during_a_batch(job: Job, own_kafka: EmbeddedKafka, unique: str) -> None:
    patient = job.options["publish.timeout"]
    job.options |= {"kafka.bootstrap.servers": own_kafka.bootstrap, "publish.timeout": "3"}
    with Log(own_kafka.bootstrap, unique) as log:
        job.feed("a", 4)
        query = job.write(processingTime="100 milliseconds")

        def first_batch_is_there() -> bool:
            nonlocal query
            if not query.isActive:  # a slow machine may have missed the short timeout
                query = job.write(processingTime="100 milliseconds")
            return bool(log.of(CheckpointCompleted))

        log.wait(first_batch_is_there, "the first completion")
        own_kafka.suspend()
        job.feed("b", 4, start=100)
        try:
            with pytest.raises(StreamingQueryException, match=r"did not acknowledge.*trying again is safe"):
                query.awaitTermination()
        finally:
            own_kafka.resume()
        assert not (job.checkpoint / "commits" / "1").exists()
        job.options["publish.timeout"] = patient
        job.run()
        log.wait_completed(1)
        assert sum(file.rows for body in log.named_files()[1] for file in body.files) == 4
        # The last heartbeat is tried until it is acknowledged, so it would be tried during other tests.
        log.wait(lambda: any(each.interval is None for _, each in log.of(RegionHeartbeat)), "not idle")
    # The connection to this Kafka would outlive it, and look for it during other tests.
    publisher._shared.close()


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
