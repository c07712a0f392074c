"""Checkpoint locations that differ from the committed data are refused, and no row is lost or doubled."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from tests.hooks.locations import told
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class FilesJob(SparkJob):
    """A query that reads all files that are new in one batch, so that offsets do not tell what it read."""

    def rows(self) -> Any:
        reader = self.spark.session.readStream.schema("id long, origin string, at timestamp_ntz")
        return reader.json(str(self.source))

    async def run_all(self) -> None:
        await self.run(await self.spark.call(self.rows))

    def set_back(self, batches: int = 1, *, sources: bool = True) -> None:
        """Lose the newest batches, as a backup from before them has, with or without the sources' logs."""
        newest = max(int(name) for name in self.names("offsets"))
        for number in range(newest - batches + 1, newest + 1):
            for folder in ("offsets", "commits", *(("sources/0",) if sources else ())):
                for name in (str(number), f".{number}.crc"):
                    (self.checkpoint / folder / name).unlink(missing_ok=True)

    def elsewhere(self, *ids: Sequence[int]) -> "FilesJob":
        """Return the query in an empty location, whose source begins with these."""
        job = FilesJob(self.spark, self.place, self.region, "elsewhere", self.options)
        job.feed(*ids)
        return job


async def holds(place: Place, *ids: int) -> None:
    """Wait until the table has exactly these rows."""
    await until(lambda: read_ids(place.table), lambda found: found == list(ids))


async def batches(place: Place, job: FilesJob, *groups: Sequence[int]) -> None:
    """Run a batch for each group, and wait until all of them are committed."""
    for group in groups:
        job.feed(group)
        await job.run_all()
    await holds(place, *sorted(n for group in groups for n in group))


def backup(job: FilesJob, root: Path) -> Path:
    return Path(shutil.copytree(job.checkpoint, root / "newest"))


def restore(job: FilesJob, copy: Path) -> None:
    shutil.rmtree(job.checkpoint)
    shutil.copytree(copy, job.checkpoint)


def data_files(place: Place) -> set[Path]:
    return {*Path(place.table).rglob("*.parquet")}


async def refused(job: FilesJob) -> str:
    """Run into a refusal, which writes no file, and return its text."""
    files = data_files(job.place)
    with pytest.raises(StreamingQueryException, match="RegistrationRefused") as failure:
        await job.run_all()
    assert data_files(job.place) == files
    return str(failure.value)


def resetting(job: FilesJob) -> tuple[str, ...]:
    where = ("--stream", "flights", "--region", job.region, "--checkpoint-location", str(job.checkpoint))
    return ("region", "reset", *where, "--silence", "10ms")


async def test_a_location_one_batch_behind_is_refused_and_put_back(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        newest = backup(job, tmp_path)
        job.set_back()
        job.feed([4])
        refusal = await refused(job)
        assert "source-differs" in refusal
        assert "checkpoint 2 of its driver has another source range" in refusal
        restore(job, newest)
        await job.run_all()
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)
        verified = json.loads(await sluicegate(place, "replay", "verify", "--stream", "flights", "--json"))
        assert not verified["different"], verified


async def test_a_location_that_is_lost_for_good_is_followed_by_an_empty_one(
    place: Place, spark: SparkThread
) -> None:
    """The newest state of the location does not exist any more; each advice is followed in its turn."""
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        job.set_back()
        job.feed([4])
        assert "sluicegate region reset" in await refused(job)
        reset = await invoke(place, *resetting(job))
        assert (reset.exit_code, "reset the region with an empty location" in reset.stderr) == (2, True)
        other = job.elsewhere([4], [5])
        assert "was empty: its source must begin right after" in await sluicegate(place, *resetting(other))
        await other.run_all()
        await holds(place, 1, 2, 3, 4, 5)
        assert "incarnation-ended" in await refused(job)
        await holds(place, 1, 2, 3, 4, 5)


async def reset(place: Place, job: SparkJob) -> None:
    """Reset the region to the job's location, again while a heartbeat that comes meanwhile refuses it."""
    where = ("--region", job.region, "--checkpoint-location", str(job.checkpoint), "--silence", "1ms")
    order = ("region", "reset", "--stream", "flights", *where)
    done = await until(lambda: invoke(place, *order), lambda done: "was alive" not in done.stderr)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("first_is_right", [True, False], ids=["the first", "the second"])
async def test_a_running_query_fails_once_another_has_its_region(
    place: Place, spark: SparkThread, first_is_right: bool
) -> None:
    """Nothing of the region is committed, so that each of the two may be the one that counts."""
    options = {"regions": "r1,r2", "assignment": "1"}
    first, second, other = (
        SparkJob(spark, place, region, folder, options)
        for region, folder in (("r1", "first"), ("r1", "second"), ("r2", ""))
    )
    async with running(place.settings()):
        first.feed([1])
        query = await spark.call(lambda: first.start(processingTime="100 milliseconds"))
        commits = first.checkpoint / "commits"
        await until(lambda: (commits / "0").exists() or not query.isActive)
        assert query.isActive, query.exception()
        second.feed([1], [2])
        with pytest.raises(StreamingQueryException, match=r"incarnation-live.*sluicegate region reset"):
            await second.run()
        assert query.isActive, query.exception()
        shutil.rmtree(second.checkpoint)
        await reset(place, second)
        await second.run()
        numbers = iter(range(2, 100_000))

        def has_failed() -> bool:
            # It learns of the other one in the background: some batches may still run, and never count.
            first.feed([next(numbers)])
            return not query.isActive

        await until(has_failed)
        with pytest.raises(StreamingQueryException) as failure:
            query.awaitTermination()
        assert "RegionReplaced" in told(failure.value)
        assert "does not write the region r1" in told(failure.value)
        assert "If another driver was started there, leave this one stopped" in told(failure.value)
        if first_is_right:
            await reset(place, first)
        await _write_the_rest(place, first if first_is_right else second, other)


async def _write_the_rest(place: Place, *jobs: SparkJob) -> None:
    """Run each job once more; then the table has the rows of these jobs, and no others."""
    for number, job in enumerate(jobs, 1):
        job.feed([number * 100_000])
        await job.run()
    fed = sorted(int(path.stem) for job in jobs for path in job.source.iterdir())
    await until(lambda: read_ids(place.table), lambda found: found == fed)


STREAM = ("--stream", "flights")


def resetting_region(job: SparkJob, location: Path | None = None) -> tuple[str, ...]:
    where = ("--region", job.region, "--checkpoint-location", str(location or job.checkpoint))
    return ("region", "reset", *STREAM, *where, "--silence", "10ms", "--reason", "its files were lost")


async def committed(place: Place, ids: list[int]) -> None:
    await until(lambda: read_ids(place.table), lambda found: found == ids)


async def contradict(place: Place, job: SparkJob, checkpoint: int) -> None:
    """Complete a checkpoint once more, for another source range: that stalls the region."""
    known = CheckpointLocation(str(job.checkpoint))
    marker = known.marker()
    assert marker is not None
    body = CheckpointCompleted(
        events=(), predecessor=known.predecessor(marker, checkpoint), source_digest="another range"
    )
    async with place.job(incarnation=marker.incarnation, region=job.region) as driver:
        await driver.send(EventType.CHECKPOINT_COMPLETED, body, checkpoint=checkpoint)


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
        output = await sluicegate(place, *resetting_region(job))
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
