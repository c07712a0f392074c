"""Time of the last event from the query of a region."""

import asyncio
import time
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.cli.kafka import POLL_MS, READ_SECONDS
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import Flaw, read_attributes, read_body
from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_on

_SIGNS: Final = frozenset(
    {
        EventType.FILES_WRITTEN,
        EventType.CHECKPOINT_COMPLETED,
        EventType.CHECKPOINT_FAILED,
        EventType.REGION_HEARTBEAT,
    }
)


async def last_sign(
    settings: Settings, source: TopicPartition, stream: str, region: str, seconds: float
) -> float | None:
    """Return the age in seconds of the last event from the region's query; None if it has closed the region.

    The age is negative if the clock of the brokers is ahead of this one. Events older than `seconds` are not
    read. Raises KafkaError, and TimeoutError after READ_SECONDS.
    """
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    newest: int | None = None
    async with started(consumer):
        since = round((time.time() - seconds) * 1000)
        found = (await consumer.offsets_for_times({source: since}))[source]
        if found is None:
            return None
        end = (await consumer.end_offsets([source]))[source]
        consumer.assign([source])
        consumer.seek(source, found.offset)
        async with asyncio.timeout(READ_SECONDS):
            while await consumer.position(source) < end:
                for records in (await read_on(consumer, timeout_ms=POLL_MS)).values():
                    for each in records:
                        newest = _note(newest, each, stream, region)
    return None if newest is None else time.time() - newest / 1000


def _note(newest: int | None, record: ConsumerRecord, stream: str, region: str) -> int | None:
    """Return the append time of the newest sign, after this record."""
    envelope = read_attributes(record.headers)
    if isinstance(envelope, Flaw) or (envelope.stream, envelope.region) != (stream, region):
        return newest
    if envelope.type is EventType.REGION_CLOSED:
        return None
    if envelope.type not in _SIGNS:
        return newest
    if envelope.type is EventType.REGION_HEARTBEAT:
        body = read_body(envelope.type, record.value)
        if isinstance(body, RegionHeartbeat) and body.silent:
            return newest  # A coordinator sent it, because the query is silent.
    return int(record.timestamp)
