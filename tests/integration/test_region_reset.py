"""A real query and a real coordinator: a reset region continues with no row lost or doubled."""

import asyncio
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
from tests.integration.orders import invoke, invoke_here, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
STREAM = ("--stream", "flights")


def resetting(job: SparkJob, location: Path | None = None) -> tuple[str, ...]:
    where = ("--region", job.region, "--checkpoint-location", str(location or job.checkpoint))
    return ("region", "reset", *STREAM, *where, "--silence", "10ms", "--reason", "its files were lost")


async def committed(place: Place, ids: list[int]) -> None:
    await until(lambda: read_ids(place.table), lambda found: found == ids)


def data_files(place: Place) -> set[Path]:
    return {*Path(place.table).rglob("*.parquet")}


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


async def test_batches_after_a_removal_are_repeated_with_the_next_assignment(
    place: Place, spark: SparkThread
) -> None:
    """Each refusal's advice is followed. Without a coordinator, the query did not learn of the removal."""
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1])
        await job.run()
        await committed(place, [1])
        old = job.incarnation()
    removed = await invoke_here(place, "region", "remove", *STREAM, "--region", "r1", "--discard")
    assert removed.exit_code == 0, removed.output
    job.feed([2])
    await job.run()
    assert job.names("commits") == ["0", "1"]
    job.feed([3])
    async with running(place.settings()):
        with pytest.raises(
            StreamingQueryException, match=r"region-removed.*the option `assignment` 1, and with"
        ):
            await job.run()
        job.options = {"assignment": "1", "assignment.after": "1"}
        with pytest.raises(
            StreamingQueryException, match=r"base-differs.*refused too, set it to the committed position"
        ):
            await job.run()
        output = await sluicegate(place, *resetting(job))
        assert f"region r1 continues after checkpoint 0 of incarnation {old}" in output
        assert "region r1 has ended: start its query with the next assignment." in output
        closed = await sluicegate(place, "assignment", "close", *STREAM, "--wait")
        assert "assignment.after = 1 " in closed
        await job.run()
        await committed(place, [1, 2, 3])


async def test_a_location_from_a_backup_writes_nothing(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1])
        await job.run()
        shutil.copytree(job.checkpoint, tmp_path / "backup")
        job.feed([2], [3])
        await job.run()
        await committed(place, [1, 2, 3])
        files = await asyncio.to_thread(data_files, place)
        shutil.rmtree(job.checkpoint)
        shutil.copytree(tmp_path / "backup", job.checkpoint)
        with pytest.raises(StreamingQueryException, match="location-older"):
            await job.run()
        assert await asyncio.to_thread(data_files, place) == files
        refused = await invoke(place, *resetting(job))
        assert (refused.exit_code, "Put the newer location back" in refused.stderr) == (2, True)
        shutil.rmtree(job.checkpoint)
