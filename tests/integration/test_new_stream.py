"""A query continues in another stream or assignment as the refusals advise: no row is lost or doubled."""

import asyncio
import re

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.writer_hooks import BadCheckpointLocation, PreflightFailed, preflight, start_incarnation
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import delete_records
from tests.integration.orders import ADOPTION, invoke, sluicegate
from tests.integration.sparkjob import SparkThread
from tests.integration.test_locations import FilesJob, batches, holds, refused, resetting

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
FLIGHTS = ("--stream", "flights")
NEW = {"stream": "flights2"}


async def told_to_begin(job: FilesJob) -> tuple[str, int]:
    """Run into the refusal of a location that wrote to another stream; returns it, and the batch it names."""
    with pytest.raises(StreamingQueryException, match="wrote to the stream flights so far") as failure:
        await job.run_all()
    return str(failure.value), number_in(str(failure.value))


def number_in(text: str) -> int:
    """Return the batch that an advice names."""
    found = re.search(r"start_incarnation\(location, first=(\d+)\)", text)
    assert found is not None, text
    return int(found[1])


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


async def test_a_query_is_taken_along_to_a_new_stream(place: Place, spark: SparkThread) -> None:
    """It was stopped cleanly, and then has another option. The check before the start names the batch."""
    job = FilesJob(spark, place)
    async with running(place.settings("flights", "flights2")):
        await batches(place, job, [1], [2])
        job.options = NEW
        with pytest.raises(PreflightFailed) as failure:
            await asyncio.to_thread(preflight, job.sink_options)
        first = number_in(str(failure.value))
        assert first == 2
        with pytest.raises(BadCheckpointLocation, match=rf"first={first}\)"):
            start_incarnation(str(job.checkpoint), first=first - 1)
        with pytest.raises(BadCheckpointLocation, match=rf"first={first}\)"):
            start_incarnation(str(job.checkpoint), first=first + 1)
        start_incarnation(str(job.checkpoint), first=first)
        job.feed([3])
        await job.run_all()
        await holds(place, 1, 2, 3)


async def test_a_planned_batch_is_finished_in_the_old_stream(place: Place, spark: SparkThread) -> None:
    """The query died between its last completion and Spark's own note of it: Spark runs that batch again."""
    job = FilesJob(spark, place)
    async with running(place.settings("flights", "flights2")):
        await batches(place, job, [1], [2])
        for name in ("1", ".1.crc"):
            (job.checkpoint / "commits" / name).unlink(missing_ok=True)
        job.options = NEW
        refusal, first = await told_to_begin(job)
        assert "batch 1 is planned and not finished, and may be there already" in refusal
        with pytest.raises(BadCheckpointLocation, match="Start the query once more with the stream flights"):
            start_incarnation(str(job.checkpoint), first=first)
        job.options = {}
        await job.run_all()
        start_incarnation(str(job.checkpoint), first=first)
        job.options = NEW
        job.feed([3])
        await job.run_all()
        await holds(place, 1, 2, 3)


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


async def test_a_region_that_was_left_out_is_reset_for_the_next_assignment(
    place: Place, spark: SparkThread
) -> None:
    """A refused reset leaves the query as it was."""
    old = FilesJob(spark, place, options=of_assignment(1, "r1"))
    async with running(place.settings()):
        await batches(place, old, [1], [2])
        after, incarnation = await close(place), old.incarnation()
        other = FilesJob(spark, place, region="r2", options=of_assignment(2, "r2", after))
        other.feed([11])
        await other.run_all()
        await holds(place, 1, 2, 11)
        unknown = [each.replace("r1", "r9") if each == "r1" else each for each in resetting(old)]
        refusal = await invoke(place, *unknown)
        assert refusal.exit_code == 2
        assert "assignment 2 of stream flights has no region r9; it has: r2" in refusal.stderr
        assert old.incarnation() == incarnation
        done = await sluicegate(place, *resetting(old))
        assert "region r1 has ended: start its query with the next assignment" in done
        assert old.incarnation() != incarnation
        both = of_assignment(3, "r1,r2", await close(place))
        for job, ids in ((old, [3]), (other, [12])):
            job.options = both
            job.feed(ids)
            await job.run_all()
        await holds(place, 1, 2, 3, 11, 12)
        assert "continues after checkpoint 2" in await sluicegate(place, *resetting(old))
        for job, ids in ((old, [4]), (other, [13])):
            job.feed(ids)
            await job.run_all()
        await holds(place, 1, 2, 3, 4, 11, 12, 13)
