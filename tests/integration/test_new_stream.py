"""A query goes on in another stream, or under another assignment: what is advised on the way ends exact."""

import re

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.writer_hooks import start_lineage
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.letters import stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkThread
from tests.integration.test_locations import FilesJob, batches, holds, refused, rewinding
from tests.integration.test_refusals import delete_records
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
NEW = {"stream": "flights2"}


async def told_to_begin(job: FilesJob) -> tuple[str, int]:
    """Run into the refusal of a location that wrote to another stream; returns it, and the batch it names."""
    with pytest.raises(StreamingQueryException, match="wrote to the stream flights so far") as failure:
        await job.run_all()
    found = re.search(r"start_lineage\(location, first=(\d+)\)", str(failure.value))
    assert found is not None, failure.value
    return str(failure.value), int(found[1])


async def test_a_stream_whose_events_were_deleted_goes_on_in_a_new_one(
    place: Place, spark: SparkThread
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2])
    job.feed([3])
    await job.run_all()
    await delete_records(place, -1)
    async with running(place.settings("flights", "flights2")):
        job.feed([4])
        said = await refused(job)
        assert "were deleted before they were committed" in said
        assert "go on in a new stream with a commit_user of its own, in empty checkpoint locations" in said
        assert "with sources that begin right after the committed rows" in said
        shown = await sluicegate(place, "status", "--stream", "flights")
        assert "checkpoint 1" in shown
        anew = FilesJob(spark, place, folder="anew", options=NEW)
        anew.feed([3], [4])
        await anew.run_all()
        anew.feed([5])
        await anew.run_all()
        await holds(place, 1, 2, 3, 4, 5)


async def taken_along(place: Place, job: FilesJob) -> None:
    """Go on in the new stream as the refusal says, behind two batches that the old one has."""
    job.options = NEW
    job.feed([3])
    _, first = await told_to_begin(job)
    start_lineage(str(job.checkpoint), first=first)
    await job.run_all()
    await holds(place, 1, 2, 3)


async def test_a_query_is_taken_along_to_a_new_stream(place: Place, spark: SparkThread) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings("flights", "flights2")):
        await batches(place, job, [1], [2])
        await taken_along(place, job)


async def test_a_batch_that_the_old_stream_has_is_finished_there(place: Place, spark: SparkThread) -> None:
    """The query died between its last completion and Spark's own note of it: Spark runs that batch again."""
    job = FilesJob(spark, place)
    async with running(place.settings("flights", "flights2")):
        await batches(place, job, [1], [2])
        for name in ("1", ".1.crc"):
            (job.checkpoint / "commits" / name).unlink(missing_ok=True)
        job.options = NEW
        said, first = await told_to_begin(job)
        assert first == 1
        assert "If batch 1 is committed in flights too, start the query in that stream once more" in said
        job.options = {}
        await job.run_all()
        await taken_along(place, job)


async def test_a_region_that_others_went_on_from_begins_a_new_lineage_there(
    place: Place, spark: SparkThread
) -> None:
    old = FilesJob(spark, place, options={"regions": "r1", "assignment": "1"})
    async with running(place.settings()):
        await batches(place, old, [1], [2])
        both = {"regions": "r1,r2", "assignment": "2"}
        other = FilesJob(spark, place, region="r2", options={**both, "parents.from": str(old.checkpoint)})
        other.feed([11])
        await other.run_all()
        old.options = both
        old.feed([3])
        said = await refused(old)
        assert "once checkpoint 1 is committed, sluicegate rewind" in said
        assert "is set back to checkpoint 1" in await sluicegate(place, *rewinding(old))
        await old.run_all()
        await holds(place, 1, 2, 3, 11)


async def test_a_location_that_has_forgotten_its_old_stream_begins_anew(
    place: Place, spark: SparkThread
) -> None:
    """A refusal in the old stream makes the location forget it; the numbers go on in the new one."""
    job = FilesJob(spark, place)
    async with running(place.settings("flights", "flights2")), place.job("flights2") as ear:
        await batches(place, job, [1], [2])
        Checkpoint(str(job.checkpoint)).forget_opened(job.lineage())
        job.options = NEW
        job.feed([3])
        await job.run_all()
        reasons = await until(lambda: stalls(ear))
        assert "checkpoint 2 of lineage" in reasons[-1]
        assert "follows 1, which was never completed in this stream" in reasons[-1]
        assert (
            "start it in an empty checkpoint location, with a source that begins right after" in reasons[-1]
        )
        anew = job.anew([3])
        await anew.run_all()
        anew.feed([4])
        await anew.run_all()
        await holds(place, 1, 2, 3, 4)


async def test_a_refused_rewind_leaves_the_query_as_it_was(place: Place, spark: SparkThread) -> None:
    """What mends the refusal is a start of the query, under a higher assignment."""
    old = FilesJob(spark, place, options={"regions": "r1", "assignment": "1"})
    async with running(place.settings()):
        await batches(place, old, [1], [2])
        other = FilesJob(spark, place, region="r2", options={"regions": "r2", "assignment": "2"})
        other.feed([11])
        await other.run_all()
        await holds(place, 1, 2, 11)
        refusal = await invoke(place, *rewinding(old))
        assert refusal.exit_code == 2
        assert "start the job with assignment 2 or a higher number. Mend that and repeat" in refusal.stderr
        old.options = {"regions": "r1,r2", "assignment": "3"}
        old.feed([3])
        await old.run_all()
        await holds(place, 1, 2, 3, 11)
        assert "is set back to checkpoint 2" in await sluicegate(place, *rewinding(old))
        old.feed([4])
        await old.run_all()
        await holds(place, 1, 2, 3, 4, 11)
