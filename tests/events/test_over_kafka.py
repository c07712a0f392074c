"""Every message through a real broker and the client that the coordinator uses."""

import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from sluicegate.events.codec import Reading, read_files, read_record
from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import EventType, LogRecord, partition_of
from sluicegate.events.notifications import NotificationType, read_notification
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from tests.events.examples import BODIES, FILES, TIME, envelope_of, notification_of

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

PARTITIONS = 3
PARTITION = partition_of("flights", PARTITIONS)


@pytest.fixture
async def topics(kafka_bootstrap: str) -> TopicNames:
    names = TopicNames(f"t{uuid.uuid4().hex[:12]}")
    await ensure_topics(kafka_bootstrap, topic_specs(names, partitions=PARTITIONS))
    return names


async def produce(bootstrap: str, topic: str, messages: list[Message]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        for message in messages:
            await producer.send_and_wait(
                topic, message.value, message.key, partition=PARTITION, headers=message.headers
            )


async def consume(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    place = TopicPartition(topic, PARTITION)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        return [await consumer.getone() for _ in range(count)]


async def test_every_event_is_read_as_it_was_written(kafka_bootstrap: str, topics: TopicNames) -> None:
    messages = [encode_event(envelope_of(kind), BODIES[kind], TIME) for kind in EventType]
    await produce(kafka_bootstrap, topics.events, messages)
    records = await consume(kafka_bootstrap, topics.events, len(messages))
    assert [(each.key, each.value) for each in records] == [(each.key, each.value) for each in messages]
    for kind, record in zip(EventType, records, strict=True):
        body = None if kind is EventType.FILES_WRITTEN else BODIES[kind]
        expected = LogRecord(record.offset, record.timestamp, envelope_of(kind), body)
        assert read_record(record.offset, record.timestamp, record.headers, record.value) == Reading(
            expected, None
        )
        if body is None:
            assert read_files(envelope_of(kind), record.value) == FILES


async def test_every_notification_is_read_as_it_was_written(kafka_bootstrap: str, topics: TopicNames) -> None:
    messages = [encode_notification(notification_of(kind), TIME) for kind in NotificationType]
    await produce(kafka_bootstrap, topics.commits, messages)
    records = await consume(kafka_bootstrap, topics.commits, len(messages))
    found = [read_notification(each.headers, each.value) for each in records]
    assert found == [notification_of(kind) for kind in NotificationType]
