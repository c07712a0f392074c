"""A query that ends with what its source has holds back nobody, and goes on when it is started again."""

import asyncio

import pytest

from sluicegate.events.notifications import Committed, NotificationType
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_OPTIONS = {"assignment": "1", "regions": "r1,r2"}


async def committed(place: Place, ids: range) -> None:
    wanted = list(ids)
    await until(lambda: asyncio.to_thread(read_ids, place.table), lambda found: found == wanted)


async def test_a_finished_query_holds_nobody_back_and_goes_on(place: Place, spark: SparkThread) -> None:
    """A region that says nothing would hold up each of the other's commits for an hour."""
    settings = place.settings(options={"partial": "allow", "alignment_timeout": "1h"})
    finished = SparkJob(spark, place, "r1", options=_OPTIONS)
    steady = SparkJob(spark, place, "r2", options=_OPTIONS)
    async with running(settings), place.job() as watcher:
        finished.feed([0], [1])
        steady.feed([2])
        query = await spark.call(lambda: steady.start(processingTime="100 milliseconds"))
        try:
            await finished.run()
            await committed(place, range(3))
            for number in (3, 4, 5):
                steady.feed([number])
                await committed(place, range(number + 1))
            finished.feed([6])
            await finished.run()
            await committed(place, range(7))
            steady.feed([7])
            await committed(place, range(8))
        finally:
            await spark.call(query.stop)
        announced = {
            (event.type, tuple(event.body.fallbacks))
            for event in await until(watcher.notifications)
            if isinstance(event.body, Committed)
        }
    assert announced == {(NotificationType.COMMITTED, ())}
    assert finished.names("commits") == ["0", "1", "2"]
