"""Batches of a real query: files on disk, events in the log, and what names what."""

import pytest

from sluicegate.events import CheckpointCompleted, FilesWritten, RegionOpened, partition_of
from tests.hooks.conftest import Job
from tests.hooks.log import PARTITIONS

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_events_match_the_files_on_disk(job: Job) -> None:
    job.feed("a", 10)
    job.feed("b", 5, start=100)
    job.run()
    job.log.wait_completed(1)

    openings = job.log.of(RegionOpened)
    assert [body.parents for _, body in openings] == [()]
    assert job.log.events[0].envelope.id == openings[0][0].id, "opened before anything is written"
    completions = job.log.of(CheckpointCompleted)
    assert [(envelope.checkpoint, body.predecessor) for envelope, body in completions] == [(0, None), (1, 0)]
    assert {envelope.lineage for envelope, _ in completions} == {job.lineage()}
    assert job.log.partitions == {partition_of(job.options["stream"], PARTITIONS)}

    named = job.log.named_files()
    infos = {at: [file for body in bodies for file in body.files] for at, bodies in named.items()}
    assert [sum(file.rows for file in infos[at]) for at in (0, 1)] == [10, 5]
    listed = [file.path for at in (0, 1) for file in infos[at]]
    assert sorted(listed) == sorted(job.data_files())
    assert all((job.table / file.path).stat().st_size == file.size for file in infos[0])
    assert {envelope.writer for envelope, _ in job.log.of(FilesWritten)} == {"p00000"}
    assert completions[1][1].watermark == max(file.max_event_time or 0 for file in infos[1])
