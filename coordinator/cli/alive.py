"""Whether a region's query has given a sign of life of late."""

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.coordinator.cli.kafka import POLL_MS, READ_SECONDS, partition_count
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings import Settings
from sluicegate.events import EventType, partition_of
from sluicegate.events.codec import read_envelope
from sluicegate.events.envelope import Poison

_SIGNS: Final = frozenset(
    {
        EventType.FILES_WRITTEN,
        EventType.CHECKPOINT_COMPLETED,
        EventType.CHECKPOINT_FAILED,
        EventType.REGION_HEARTBEAT,
    }
)


async def last_sign(settings: Settings, record: StateRecord, region: str, seconds: float) -> float | None:
    """How many seconds ago the region's query said something, None if not within `seconds`.

    Raises KafkaError, UserError.
    """
    topic = settings.kafka.topic_names().events
    count = await partition_count(settings, topic)
    home = record.state.partition
    source = TopicPartition(topic, partition_of(record.stream, count) if home is None else home)
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    newest: int | None = None
    try:
        await consumer.start()
        since = round((time.time() - seconds) * 1000)
        found = (await consumer.offsets_for_times({source: since}))[source]
        if found is None:
            return None
        end = (await consumer.end_offsets([source]))[source]
        consumer.assign([source])
        consumer.seek(source, found.offset)
        async with asyncio.timeout(READ_SECONDS):
            while await consumer.position(source) < end:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for each in records:
                        if _is_sign(each, record.stream, region):
                            newest = each.timestamp
    finally:
        await consumer.stop()
    return None if newest is None else max(0.0, time.time() - newest / 1000)


def _is_sign(record: Any, stream: str, region: str) -> bool:
    envelope = read_envelope(record.headers)
    if isinstance(envelope, Poison) or envelope.type not in _SIGNS:
        return False
    return (envelope.stream, envelope.region) == (stream, region)
