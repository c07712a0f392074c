"""Events and their parts through a real broker and the client that the coordinator uses."""

import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from sluicegate.events import (
    Envelope,
    Event,
    EventType,
    FileInfo,
    FilesWritten,
    Message,
    Poison,
    encode,
    partition_of,
    read_envelope,
    read_event,
)
from sluicegate.events.splitting import split_files
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs

pytestmark = pytest.mark.kafka

PARTITIONS = 3
LIMIT = 20_000


@pytest.fixture
async def topic(kafka_bootstrap: str) -> str:
    names = TopicNames(f"t{uuid.uuid4().hex[:12]}")
    await ensure_topics(kafka_bootstrap, topic_specs(names, partitions=PARTITIONS, max_message_bytes=LIMIT))
    return names.events


def event_of(body: FilesWritten) -> Event:
    name = "n" * 200
    envelope = Envelope(
        uuid.uuid4().hex,
        EventType.FILES_WRITTEN,
        name,
        name,
        name,
        10**18 - 1,
        name,
        len(body.files),
        "a" * 64,
    )
    return Event(envelope, body)


async def produce(bootstrap: str, topic: str, partition: int, messages: list[Message]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        for message in messages:
            await producer.send_and_wait(
                topic, message.value, message.key, partition=partition, headers=message.headers
            )


async def consume(bootstrap: str, topic: str, partition: int, count: int) -> list[ConsumerRecord]:
    place = TopicPartition(topic, partition)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        return [await consumer.getone() for _ in range(count)]


async def test_parts_of_the_largest_size_are_accepted_and_read_back(kafka_bootstrap: str, topic: str) -> None:
    files = tuple(
        FileInfo(path=f"part-{i}", size=i, rows=i, metadata=b"x" * (i * 37 % 3000)) for i in range(300)
    )
    body = FilesWritten(format="paimon", format_version=1, location="file:/t", schema_id=0, files=files)
    events = [event_of(part) for part in split_files(body, LIMIT)]
    assert max(len(encode(event).value) for event in events) > LIMIT - 4500
    partition = partition_of(events[0].envelope.stream, PARTITIONS)
    await produce(kafka_bootstrap, topic, partition, [encode(event) for event in events])
    records = await consume(kafka_bootstrap, topic, partition, len(events))
    assert [read_event(record.headers, record.value) for record in records] == events
    assert [read_envelope(record.headers) for record in records] == [event.envelope for event in events]


async def test_foreign_messages_are_poison(kafka_bootstrap: str, topic: str) -> None:
    good = encode(event_of(FilesWritten(format="f", format_version=1, location="l", schema_id=0, files=())))
    without_values = [(name, None) for name, _ in good.headers]
    messages = [
        good._replace(headers=[]),
        good._replace(headers=without_values),  # type: ignore[arg-type]
        good._replace(value=b"\xff"),
    ]
    await produce(kafka_bootstrap, topic, 0, messages)
    for record in await consume(kafka_bootstrap, topic, 0, len(messages)):
        assert isinstance(read_event(record.headers, record.value), Poison)
