"""Reading the state topic: the newest record counts, and records of other releases have a code."""

import json
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord
from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.coordinator.stream.records import read_held
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import TopicNames

pytestmark = pytest.mark.kafka

STREAM = "flights"
NOW = time.time_ns() // 1_000_000


class StateTopic:
    """A state topic whose records have the times that the test gives them."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._name = TopicNames(prefix).state

    async def make(self, partitions: int = 2) -> None:
        async with started(AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            settings = {"message.timestamp.type": "CreateTime"}
            await admin.create_topics([NewTopic(self._name, partitions, 1, topic_configs=settings)])

    async def put(self, value: bytes, *, partition: int = 0, written: int | None = None) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            await producer.send_and_wait(
                self._name, value, key=STREAM.encode(), partition=partition, timestamp_ms=written
            )

    async def read(self, partitions: int = 2) -> StateRecord | Problem:
        kafka = KafkaSettings(
            bootstrap_servers=self._bootstrap, topic_prefix=self._prefix, request_timeout=20
        )
        found = (await read_held(kafka, partitions, [STREAM]))[STREAM].record
        assert found is not None
        return found


@pytest.fixture
async def topic(kafka_bootstrap: str, unique: str) -> StateTopic:
    made = StateTopic(kafka_bootstrap, unique)
    await made.make()
    return made


def record(applied: int = 5, **changed: Any) -> bytes:
    body = StateRecord(stream=STREAM, applied=applied, low_water=5, state=LogState())
    return json.dumps({**json.loads(encode_record(body)), **changed}).encode()


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


OTHERS = {
    "of another stream": (record(stream="other"), Code.STATE_RECORD_MALFORMED),
    "of a newer release": (record(version=RECORD_VERSION + 1), Code.STATE_RECORD_NEWER),
}


@pytest.mark.seam
@pytest.mark.parametrize(("value", "code"), OTHERS.values(), ids=OTHERS.keys())
async def test_a_record_that_this_release_does_not_read_is_a_problem(
    topic: StateTopic, value: bytes, code: Code
) -> None:
    await topic.put(value)
    found = await topic.read()
    assert isinstance(found, Problem)
    assert found.code is code
