"""A second query of a region: the first one is told, and fails; the advice ends exact."""

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("first_is_right", [True, False], ids=["the first", "the second"])
async def test_a_running_query_fails_once_another_has_its_region(
    place: Place, spark: SparkThread, first_is_right: bool
) -> None:
    """Nothing of the region is committed, so that the second one may have lost the first one's location."""
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
        await second.run()
        numbers = iter(range(2, 100_000))

        def has_failed() -> bool:
            # It learns of the other one in the background: some batches may still run, and never count.
            first.feed([next(numbers)])
            return not query.isActive

        await until(has_failed)
        with pytest.raises(StreamingQueryException, match="one query writes a region") as failure:
            query.awaitTermination()
        assert "OpeningRefused" in str(failure.value)
        assert "is the right one, start it from its own checkpoint location" in str(failure.value)
        right = second
        if first_is_right:
            first.checkpoint.rename(first.root / "aside")
            right = first
        right.feed([100_000])
        await right.run()
        other.feed([200_000])
        await other.run()
        fed = sorted(int(path.stem) for path in [*right.source.iterdir(), *other.source.iterdir()])
        await until(lambda: read_ids(place.table), lambda found: found == fed)
