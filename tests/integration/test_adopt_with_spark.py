"""All topics are lost, and a Spark query continues from the table after a reset: no row lost or doubled."""

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.test_adopt import lose_topics
from tests.integration.test_region_reset import committed, resetting

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
STREAM = ("--stream", "flights")


async def test_a_query_continues_from_the_table_after_a_reset(place: Place, spark: SparkThread) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1, 2], [3])
        await job.run()
        await committed(place, [1, 2, 3])
        await sluicegate(place, "stream", "pause", *STREAM)
        # Spark has these batches in its own commit log, and the table does not have them.
        job.feed([4], [5])
        await job.run()
    await lose_topics(place)
    adopted = await sluicegate(place, "stream", "adopt", *STREAM, "--from-table")
    assert "continues after decision" in adopted
    assert "Before a Spark query starts again: sluicegate region reset" in adopted
    job.feed([6])
    async with running(place.settings()):
        with pytest.raises(StreamingQueryException, match=r"incarnation-ended"):
            await job.run()
        assert "later batches are in" in await sluicegate(place, *resetting(job))
        await job.run()
        await committed(place, [1, 2, 3, 4, 5, 6])
    verified = await invoke(place, "replay", "verify", *STREAM)
    assert verified.exit_code == 0, verified.output
    assert read_ids(place.table) == [1, 2, 3, 4, 5, 6]
