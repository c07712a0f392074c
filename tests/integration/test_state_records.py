"""Reading the state topic: which record counts, and what a record of another release is met with."""

import json
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.coordinator.records import UnreadableRecord, read_records

pytestmark = pytest.mark.kafka

STREAM = "flights"
NOW = time.time_ns() // 1_000_000


class StateTopic:
    """A state topic whose records have the times that the test gives them."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._name = name

    async def make(self, partitions: int = 2) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            settings = {"message.timestamp.type": "CreateTime"}
            await admin.create_topics([NewTopic(self._name, partitions, 1, topic_configs=settings)])
        finally:
            await admin.close()

    async def put(self, value: bytes, *, partition: int = 0, written: int | None = None) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            await producer.send_and_wait(
                self._name, value, key=STREAM.encode(), partition=partition, timestamp_ms=written
            )

    async def read(self, partitions: int = 2) -> StateRecord | UnreadableRecord:
        options = {"bootstrap_servers": self._bootstrap}
        return (await read_records(self._name, partitions, options, [STREAM], 20.0))[STREAM]


@pytest.fixture
async def topic(kafka_bootstrap: str, unique: str) -> StateTopic:
    made = StateTopic(kafka_bootstrap, unique)
    await made.make()
    return made


def record(applied: int = 5, **changed: Any) -> bytes:
    body = StateRecord(stream=STREAM, applied=applied, low_water=5, state=LightState())
    return json.dumps({**body.model_dump(mode="json"), **changed}).encode()


async def test_the_last_record_counts_though_the_clock_of_the_broker_stepped_back(topic: StateTopic) -> None:
    await topic.put(record(7), written=NOW)
    await topic.put(record(8), written=NOW - 60_000)
    found = await topic.read()
    assert isinstance(found, StateRecord)
    assert found.applied == 8


async def test_the_newest_record_counts_where_the_topic_has_grown(topic: StateTopic) -> None:
    await topic.put(record(8), partition=1, written=NOW)
    await topic.put(record(7), partition=0, written=NOW - 60_000)
    found = await topic.read()
    assert isinstance(found, StateRecord)
    assert found.applied == 8


NEWER = {
    "another notification": record(due=[{"id": "x", "type": "partition.done", "body": {"a": 1}}]),
    "another body": record(due=[{"id": "x", "type": "opening.answered", "body": {"a": 1}}]),
    "another version, without a field of this one": json.dumps(
        {name: value for name, value in json.loads(record(version=2)).items() if name != "applied"}
    ).encode(),
    "no JSON": b"\x00\x01",
}


@pytest.mark.parametrize("value", NEWER.values(), ids=NEWER.keys())
async def test_a_record_of_a_newer_release_asks_for_an_upgrade(topic: StateTopic, value: bytes) -> None:
    await topic.put(value)
    found = await topic.read()
    assert isinstance(found, UnreadableRecord)
    assert "upgrade the coordinator" in str(found)
    assert STREAM in str(found)
