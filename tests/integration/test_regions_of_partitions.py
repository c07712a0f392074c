"""The example of the region runner as a process, on a Kafka source: drained, killed and divided again."""

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer
from pypaimon import CatalogFactory, Schema

from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import TopicRole, TopicSpec, ensure_topics
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.spark_kafka import Example
from tests.integration.waiting import exit_status, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]
PARTITIONS = 4


async def produce(place: Place, *numbers: int) -> None:
    """Write a row for each number, to the partition of the number."""
    producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    async with started(producer):
        for number in numbers:
            row = {"flight": str(number), "airport": "EWR", "at": "2013-01-01T00:00:00Z"}
            value = json.dumps(row).encode()
            await producer.send_and_wait(topic_of(place), value, partition=number % PARTITIONS)


def topic_of(place: Place) -> str:
    return f"departures-{place.prefix}"


def read_flights(place: Place) -> list[int]:
    """Return the numbers in the table of the example."""
    catalog = CatalogFactory.create({"warehouse": str(place.root / "warehouse")})
    builder = catalog.get_table("default.flights").new_read_builder()
    splits = builder.new_scan().plan().splits()
    if not splits:
        return []
    return sorted(int(each) for each in builder.new_read().to_arrow(splits)["flight"].to_pylist())


async def holds(place: Place, numbers: range, example: Example) -> None:
    """Wait until the table has exactly these numbers."""
    await until(
        lambda: read_flights(place), lambda found: found == [*numbers], by=example.process, log=example.log
    )


async def ends_by_a_signal(place: Place, count: int, log: Path, expected: str) -> None:
    """Run the example until it has waited for a coordinator, and stop it."""
    with Example(place, count, log) as example:
        await until(example.text, lambda text: "no coordinator has answered" in text, by=example.process)
        example.terminate()
        status = await asyncio.to_thread(exit_status, example.process, log)
        assert (status, expected in example.text()) == (0, True), example.text()[-3000:]


@pytest.fixture
def lake(place: Place) -> Place:
    """Give the place of the example's table, which has columns of its own."""
    catalog = CatalogFactory.create({"warehouse": str(place.root / "warehouse")})
    catalog.create_database("default", True)
    times = pa.timestamp("us", tz="UTC")
    columns = pa.schema([("flight", pa.string()), ("airport", pa.string()), ("at", times)])
    catalog.create_table("default.flights", Schema.from_pyarrow_schema(columns), True)
    return replace(place, table=str(place.root / "warehouse" / "default.db" / "flights"))


async def test_two_regions_become_three_while_rows_arrive(lake: Place, tmp_path: Path) -> None:
    """The first change is killed after the old regions are closed, and before the new plan exists."""
    await ensure_topics(lake.bootstrap, [TopicSpec(topic_of(lake), TopicRole.EVENTS, PARTITIONS, 1, {})])
    log, plans = tmp_path / "example.log", lake.root / "regions" / "plans"
    await produce(lake, *range(8))
    # The example waits for a coordinator without a limit.
    await ends_by_a_signal(lake, 2, tmp_path / "first.log", "left to the next run")
    async with running(lake.settings()):
        with Example(lake, 2, log) as example:
            await holds(lake, range(8), example)
            await produce(lake, *range(8, 12))
            example.terminate()
            status = await asyncio.to_thread(exit_status, example.process, log)
        assert (status, "draining" in example.text()) == (0, True), example.text()[-3000:]
        await produce(lake, *range(12, 16))
        with Example(lake, 3, log, SLUICEGATE_FAILPOINTS="hook.probe.after=kill") as killed:
            status = await asyncio.to_thread(exit_status, killed.process, log)
        assert (status, [path.name for path in plans.iterdir()]) == (-signal.SIGKILL, ["1.json"])
        with Example(lake, 3, log, SINK="foreach-batch") as example:
            await produce(lake, *range(16, 20))
            await holds(lake, range(20), example)
        # It was killed in the middle of its work: the same division continues.
        await produce(lake, *range(20, 24))
        with Example(lake, 3, log) as example:
            await holds(lake, range(24), example)
    # Nobody answers a change either.
    await ends_by_a_signal(lake, 2, tmp_path / "other.log", "the runner was stopped during")
    assert sorted(path.name for path in plans.iterdir()) == ["1.json", "2.json"]
    offsets = json.loads((plans / "2.json").read_text())["offsets"][topic_of(lake)]
    assert sum(offsets.values()) in range(8, 13)
