"""Limits of what a query has completed without a commit, while the coordinator is away and back."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from sluicegate.writer_hooks.spark.registry import ATTACHED
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SOON = {"processingTime": "100 milliseconds"}


class Limited:
    """A query with a limit of one uncommitted batch, and a coordinator that comes and goes."""

    def __init__(self, place: Place, job: SparkJob) -> None:
        self.place, self.job = place, job
        self.coordinator = AsyncExitStack()
        self.query: StreamingQuery | None = None

    async def start(self, reaction: str) -> StreamingQuery:
        self.job.options = {"max.uncommitted.checkpoints": "1", "backpressure": reaction}
        await self.serve()
        self.query = await self.job.spark.call(lambda: self.job.start(**SOON))
        return self.query

    async def end(self) -> None:
        """End what a failure has left."""
        await self.away()
        if self.query is not None:
            await self.job.spark.call(self.query.stop)

    async def serve(self) -> None:
        await self.coordinator.enter_async_context(running(self.place.settings()))

    async def away(self) -> None:
        await self.coordinator.aclose()

    async def put(self, number: int) -> None:
        """Feed a batch, and wait until Spark has noted its end."""
        self.job.feed([number])
        await until(lambda: str(number) in self.job.names("commits"))

    async def committed(self, query: StreamingQuery, upto: int) -> None:
        """Wait until the table has the rows, and the query knows it."""
        registry = ATTACHED.registry
        assert registry is not None
        await self.visible(upto)
        await until(lambda: registry.committed(query.id, self.job.incarnation()) == upto)

    async def visible(self, upto: int) -> None:
        """Wait until the table has the rows."""
        wanted = list(range(upto + 1))
        await until(lambda: asyncio.to_thread(read_ids, self.place.table), lambda found: found == wanted)

    async def exceeds(self, query: StreamingQuery, number: int) -> None:
        """Feed a batch, and wait until a limit holds it back."""
        self.job.feed([number])
        await until(lambda: excess(query) or str(number) in self.job.names("commits"))
        assert excess(query) == (
            "1 completed checkpoints are not committed, and max.uncommitted.checkpoints is 1"
        )
        assert str(number) in self.job.names("offsets")
        assert str(number) not in self.job.names("commits")


def excess(query: StreamingQuery) -> str | None:
    assert ATTACHED.registry is not None
    return ATTACHED.registry.excess(query.id)


def failed(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as error:
        query.awaitTermination()
    return str(error.value)


async def warns(limited: Limited) -> None:
    query = await limited.start("warn")
    await limited.put(0)
    await limited.committed(query, 0)
    await limited.away()
    for number in (1, 2, 3):
        await limited.put(number)
    assert excess(query) == "2 completed checkpoints are not committed, and max.uncommitted.checkpoints is 1"
    await limited.job.spark.call(query.stop)


async def fails(limited: Limited) -> None:
    query = await limited.start("fail")
    await limited.visible(3)
    await limited.put(4)
    await limited.committed(query, 4)
    await limited.away()
    await limited.put(5)
    await limited.exceeds(query, 6)
    assert "Start the query again when they follow" in await limited.job.spark.call(lambda: failed(query))


async def waits(limited: Limited) -> None:
    query = await limited.start("wait")
    await limited.committed(query, 6)
    await limited.away()
    await limited.put(7)
    await limited.exceeds(query, 8)
    await limited.serve()
    await limited.committed(query, 8)
    assert excess(query) is None
    await limited.away()
    await limited.put(9)
    await limited.exceeds(query, 10)
    await limited.job.spark.call(query.stop)
    error = await limited.job.spark.call(lambda: failed(query))
    assert "was stopped while batch 10 waited for commits" in error
    await limited.serve()
    await limited.visible(9)


@pytest.mark.parametrize("foreach", [False, True], ids=["data source", "foreachBatch"])
async def test_a_limit_warns_or_fails_or_waits_until_commits_follow(
    place: Place, spark: SparkThread, caplog: pytest.LogCaptureFixture, *, foreach: bool
) -> None:
    limited = Limited(place, SparkJob(spark, place, foreach=foreach))
    try:
        await warns(limited)
        # The data source warns in a process of its own.
        told = [text for text in caplog.messages if "shows what the commits wait for" in text]
        assert len(told) == int(foreach), "once for each excess"
        await fails(limited)
        await waits(limited)
    finally:
        await limited.end()
