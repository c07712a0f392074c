"""A query continues in another stream or assignment as the refusals advise: no row is lost or doubled."""

import re

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import delete_records
from tests.integration.orders import ADOPTION, sluicegate
from tests.integration.sparkjob import SparkThread
from tests.integration.test_locations import FilesJob, batches, holds, refused, resetting

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
FLIGHTS = ("--stream", "flights")


async def test_a_stream_whose_events_were_deleted_continues_from_its_table(
    place: Place, spark: SparkThread
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2])
        await sluicegate(place, "stream", "pause", *FLIGHTS)
        job.feed([3])
        await job.run_all()
    await delete_records(place.bootstrap, place.topics.events, "flights")
    async with running(place.settings()):
        job.feed([4])
        refusal = await refused(job)
        assert "log-discontinuous" in refusal
    (adopt,) = {*ADOPTION.findall(refusal)}
    adopted = await sluicegate(place, *adopt.split())
    assert re.search(r"r1 .*checkpoint 1\b", adopted), adopted
    assert "Before a Spark query starts again: sluicegate region reset" in adopted
    async with running(place.settings()):
        await sluicegate(place, *resetting(job))
        await job.run_all()
        await holds(place, 1, 2, 3, 4)
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)


def of_assignment(number: int, regions: str, after: int = 0) -> dict[str, str]:
    return {"regions": regions, "assignment": str(number), "assignment.after": str(after)}


async def close(place: Place) -> int:
    """Close the assignment in force; returns the decision that the next one follows."""
    closed = await sluicegate(place, "assignment", "close", *FLIGHTS, "--wait")
    found = re.search(r"assignment\.after = (\d+)", closed)
    assert found is not None, closed
    return int(found[1])


async def test_a_region_is_divided_in_the_next_assignment_where_it_has_ended(
    place: Place, spark: SparkThread
) -> None:
    """Each refusal on the way is met, and followed."""
    old = FilesJob(spark, place, options=of_assignment(1, "r1"))
    async with running(place.settings()):
        await batches(place, old, [1], [2])
        new = [FilesJob(spark, place, name, options=of_assignment(2, "r2,r3")) for name in ("r2", "r3")]
        for number, job in enumerate(new):
            job.feed([11 + 10 * number])
        refusal = await refused(new[0])
        assert "assignment-open" in refusal
        assert "sluicegate assignment close --stream flights" in refusal
        after = await close(place)
        assert f"then set `assignment.after` to {after}" in await refused(new[0])
        for job in new:
            job.options = of_assignment(2, "r2,r3", after)
            await job.run_all()
        await holds(place, 1, 2, 11, 21)
        old.feed([3])
        refusal = await refused(old)
        assert "assignment-older" in refusal
        assert "Stop this query if a newer job has replaced it" in refusal
        await holds(place, 1, 2, 11, 21)
