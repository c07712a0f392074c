"""What a reset advises that is given wrong names is followed here: no row is lost or doubled."""

import shutil

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
OPTIONS = {"regions": "r1,r2", "assignment": "1"}


def resetting(region: str, job: SparkJob) -> tuple[str, ...]:
    where = ("--region", region, "--checkpoint-location", str(job.checkpoint), "--silence", "10ms")
    return ("region", "reset", "--stream", "flights", *where)


async def test_the_location_of_that_region_is_given(place: Place, spark: SparkThread) -> None:
    """Both queries have one source and one id, so that only the region tells their locations apart."""
    first, second = (SparkJob(spark, place, region, options=OPTIONS) for region in ("r1", "r2"))

    async def run_both() -> None:
        reader = spark.session.readStream.schema("id long, origin string, at timestamp_ntz")
        await first.run()
        second.checkpoint.mkdir(parents=True, exist_ok=True)
        shutil.copy(first.checkpoint / "metadata", second.checkpoint)
        await second.run(
            await spark.call(lambda: reader.option("maxFilesPerTrigger", 1).json(str(first.source)))
        )

    async with running(place.settings()):
        first.feed([1])
        await run_both()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 1])
        wrong = await invoke(place, *resetting("r1", second))
        assert wrong.exit_code == 2, wrong.output
        assert "belongs to region r2 of stream flights, not to r1 of flights" in wrong.stderr
        assert "give the checkpointLocation of that region" in wrong.stderr
        assert "region r1 continues after checkpoint 0" in await sluicegate(place, *resetting("r1", first))
        # The other location is as it was. It is set back as well, so that both have work.
        await sluicegate(place, *resetting("r2", second))
        first.feed([2])
        await run_both()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 1, 2, 2])


async def test_the_region_of_that_location_is_given(place: Place, spark: SparkThread) -> None:
    first, second = (SparkJob(spark, place, region, options=OPTIONS) for region in ("r1", "r2"))

    async def run_both(number: int) -> None:
        for job, ids in ((first, [number]), (second, [10 + number])):
            job.feed(ids)
            await job.run()

    async with running(place.settings()):
        await run_both(1)
        await until(lambda: read_ids(place.table), lambda found: found == [1, 11])
        wrong = await invoke(place, *resetting("r2", first))
        assert wrong.exit_code == 2, wrong.output
        assert "belongs to region r1 of stream flights, not to r2" in wrong.stderr
        assert "region r1 continues after checkpoint 0" in await sluicegate(place, *resetting("r1", first))
        await run_both(2)
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 11, 12])
