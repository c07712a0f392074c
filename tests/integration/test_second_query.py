"""A second query is refused; once the region is reset to it, the first one fails, and the end is exact."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import invoke
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


async def reset(place: Place, job: SparkJob) -> None:
    """Reset the region to the job's location, again while a heartbeat that comes meanwhile refuses it."""
    where = ("--region", job.region, "--checkpoint-location", str(job.checkpoint), "--silence", "1ms")
    order = ("region", "reset", "--stream", "flights", *where)
    done = await until(lambda: invoke(place, *order), lambda done: "was alive" not in done.stderr)
    assert done.exit_code == 0, done.output


def told(error: BaseException | None) -> str:
    """The messages of an error and of its causes: Spark's own names no cause at the end of a batch."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or getattr(error, "_cause", None)
    return "\n".join(texts)


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
