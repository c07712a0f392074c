"""Batches of a real query: files on disk, events in the log, and what names what."""

import json

import pytest
from pyspark.sql.functions import col, concat, lit

from sluicegate.events.envelope import partition_of
from sluicegate.events.models import CheckpointCompleted, FilesWritten, Position
from tests.hooks.conftest import Job, make_table
from tests.hooks.log import PARTITIONS

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


def test_batch_without_rows_is_completed_too(job: Job) -> None:
    job.feed("a", 3)
    job.feed("b", 3, start=100)
    job.run(job.rows().where("id >= 100"))
    job.log.wait_completed(1)

    first, second = (body for _, body in job.log.of(CheckpointCompleted))
    assert first.events == ()
    assert first.watermark is None
    assert len(second.events) == 1
    assert first.source_digest != second.source_digest


def test_sparks_watermark_goes_before_the_batchs_own_times(job: Job) -> None:
    job.feed("a", 120)
    job.feed("b", 1, start=3000)
    job.run(job.rows().withWatermark("at", "1 minute"))
    job.log.wait_completed(1)

    completions = [body for _, body in job.log.of(CheckpointCompleted)]
    newest = max(file.max_event_time or 0 for body in job.log.named_files()[0] for file in body.files)
    assert completions[0].watermark is None, "Spark's watermark has not moved yet"
    assert completions[1].watermark == newest - 60_000


def test_files_beyond_one_message_come_in_parts(job: Job) -> None:
    make_table(job.folder / "split", partitioned=True)
    job.options |= {
        "table": str(job.folder / "split" / "default.db" / "flights"),
        "message.max.bytes": "16384",
    }
    job.feed("a", 60)
    job.run(job.rows().withColumn("airport", concat(lit("A"), col("id").cast("string"))))
    job.log.wait_completed(0)

    parts = job.log.of(FilesWritten)
    assert len(parts) > 1
    assert [envelope.files for envelope, _ in parts] == [len(body.files) for _, body in parts]
    (completion,) = (body for _, body in job.log.of(CheckpointCompleted))
    assert completion.events == tuple(envelope.id for envelope, _ in parts)
    assert len({file.path for _, body in parts for file in body.files}) == 60
