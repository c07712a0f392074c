"""Checkpoint locations that differ from the committed data are refused, and no row is lost or doubled."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

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


@pytest.mark.seam
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
        assert "checkpoint 2 of its checkpoint location has another source range" in refusal
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


async def test_a_query_with_state_finishes_its_batch_before_it_is_set_back(
    place: Place, spark: SparkThread
) -> None:
    """Spark died between the completion and its own log."""
    job = FilesJob(spark, place)

    async def run(*ids: int) -> None:
        if ids:
            job.feed(ids)
        await job.run(await spark.call(lambda: job.rows().dropDuplicates(["id"])))

    async with running(place.settings()):
        for number in (1, 2, 3):
            await run(number)
        await holds(place, 1, 2, 3)
        for name in ("2", ".2.crc"):
            (job.checkpoint / "commits" / name).unlink()
        reset = await invoke(place, *resetting(job))
        assert (reset.exit_code, "start it once, so that it does, and repeat" in reset.stderr) == (2, True)
        await run()
        assert "region r1 continues after checkpoint 2 of" in await sluicegate(place, *resetting(job))
        await run(4)
        await holds(place, 1, 2, 3, 4)
