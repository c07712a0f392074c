"""A real query and a real coordinator: a reset region continues with no row lost or doubled."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
STREAM = ("--stream", "flights")


def resetting(job: SparkJob, location: Path | None = None) -> tuple[str, ...]:
    where = ("--region", job.region, "--checkpoint-location", str(location or job.checkpoint))
    return ("region", "reset", *STREAM, *where, "--silence", "10ms", "--reason", "its files were lost")


async def committed(place: Place, ids: list[int]) -> None:
    await until(lambda: read_ids(place.table), lambda found: found == ids)


async def contradict(place: Place, job: SparkJob, checkpoint: int) -> None:
    """Complete a checkpoint once more, for another source range: that stalls the region."""
    known = Checkpoint(str(job.checkpoint))
    marker = known.marker()
    assert marker is not None
    body = CheckpointCompleted(
        events=(), predecessor=known.predecessor(marker, checkpoint), source_digest="another range"
    )
    async with place.job(incarnation=marker.incarnation, region=job.region) as driver:
        await driver.send(EventType.CHECKPOINT_COMPLETED, body, checkpoint=checkpoint)


@pytest.mark.seam
async def test_rows_that_were_not_committed_are_read_again(place: Place, spark: SparkThread) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1, 2], [3])
        await job.run()
        await committed(place, [1, 2, 3])
        old = job.incarnation()
        await sluicegate(place, "stream", "pause", *STREAM)
        job.feed([4], [5])
        await job.run()
        await contradict(place, job, 3)
        output = await sluicegate(place, *resetting(job))
        assert f"region r1 continues after checkpoint 1 of incarnation {old}" in output
        assert "2 later batches are in" in output
        assert job.names("offsets") == job.names("commits") == ["0", "1"]
        backup = f"sluicegate/reset-{job.incarnation()}"
        assert (job.names(f"{backup}/offsets"), job.names(f"{backup}/commits")) == (["2", "3"], ["2", "3"])
        reason = json.loads((job.checkpoint / backup / "reason.json").read_text())["reason"]
        assert reason == "its files were lost"
        await sluicegate(place, "stream", "resume", *STREAM)
        job.feed([6])
        await job.run()
        await committed(place, [1, 2, 3, 4, 5, 6])
        assert job.incarnation() != old


async def test_a_lost_location_is_refused_until_an_empty_one_is_reset(
    place: Place, spark: SparkThread
) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1, 2])
        await job.run()
        await committed(place, [1, 2])
        shutil.rmtree(job.checkpoint)
        for path in list(job.source.iterdir()):
            path.unlink()  # the source now begins after the committed rows
        job.feed([3])
        with pytest.raises(StreamingQueryException, match=r"incarnation-live.*sluicegate region reset"):
            await job.run()
        assert read_ids(place.table) == [1, 2]
        shutil.rmtree(job.checkpoint)
        output = await sluicegate(place, *resetting(job))
        assert "was empty: its source must begin right after the committed rows" in output
        await job.run()
        await committed(place, [1, 2, 3])
