"""What real queries read, and what their completions say of it: all sources, compaction, replays."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.models import CheckpointCompleted, FilesWritten
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from tests.hooks.conftest import SCHEMA, Job
from tests.hooks.log import refuse

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def lose(job: Job, batch: int, *folders: str) -> None:
    for folder in folders:
        for name in (str(batch), f".{batch}.crc"):
            (job.checkpoint / folder / name).unlink(missing_ok=True)


def digests(job: Job, batch: int) -> list[str]:
    """What was said of a batch, each time that it was completed."""
    job.log.wait_completed(batch)
    found = job.log.of(CheckpointCompleted)
    return [body.source_digest for envelope, body in found if envelope.checkpoint == batch]


def union(job: Job, beside: Path) -> Any:
    reader = job.spark.readStream.schema(SCHEMA)
    return reader.json(str(job.source)).union(reader.json(str(beside)))


def test_another_file_of_the_second_source_is_another_range(job: Job) -> None:
    beside = job.folder / "beside"
    beside.mkdir()

    def feed(name: str, start: int) -> None:
        job.feed(name, 1, start)
        (job.source / f"{name}.json").rename(beside / f"{name}.json")

    for number in range(2):
        job.feed(f"a{number}", 1, start=number)
        feed(f"b{number}", 100 + number)
        job.run(union(job, beside))
    (first,) = digests(job, 1)
    lose(job, 1, "commits")
    job.run(union(job, beside))
    job.log.wait(lambda: len(digests(job, 1)) == 2, "the batch did not run again")
    assert digests(job, 1) == [first, first]
    lose(job, 1, "commits", "offsets", "sources/0", "sources/1")
    (beside / "b1.json").unlink()
    feed("b2", 102)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*source-differs.*checkpoint 1 "):
        job.run(union(job, beside))
    _, registered = job.log.registrations()[-1]
    assert [each.checkpoint for each in registered.planned] == [1, 0]
    assert registered.planned[0].digest not in (first, registered.planned[1].digest)
    assert digests(job, 1) == [first, first]


def test_a_range_stays_the_same_when_spark_has_compacted_its_log(job: Job) -> None:
    for number in range(11):
        job.feed(f"{number:02d}", 1, start=number)
    job.run()
    job.log.wait_completed(10)
    said = [digests(job, batch) for batch in range(11)]
    assert len({digest for (digest,) in said}) == 11
    assert (job.checkpoint / "sources" / "0" / "9.compact").exists()
    for batch in range(9):
        lose(job, batch, "sources/0")  # as Spark does ten minutes after it has compacted them
    known = Checkpoint(str(job.checkpoint))
    assert [[known.batch_source(batch).digest] for batch in range(11)] == said
    lose(job, 10, "commits")
    job.run()
    job.log.wait(lambda: len(digests(job, 10)) == 2, "the batch did not run again")
    assert digests(job, 10) == said[10] * 2


def test_a_restart_that_is_refused_at_once_writes_nothing(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait_completed(0)
    written, files = len(job.log.of(FilesWritten)), job.data_files()
    job.log.answer = refuse("its checkpoint location is another one")
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*is another one"):
        job.run()
    assert (len(job.log.of(FilesWritten)), job.data_files()) == (written, files)
