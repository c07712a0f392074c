"""Time of the last event from the query of each region."""

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.kafka import POLL_MS, READ_SECONDS, partition_count
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import Flaw, read_attributes
from sluicegate.events.envelope import EventType
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.starting import start_client

_SIGNS: Final = frozenset(
    {
        EventType.FILES_WRITTEN,
        EventType.CHECKPOINT_COMPLETED,
        EventType.CHECKPOINT_FAILED,
        EventType.REGION_HEARTBEAT,
    }
)


async def last_sign(settings: Settings, record: StateRecord, region: str, seconds: float) -> float | None:
    """Return the age in seconds of the last event from the region's query; None if above `seconds`.

    Raises KafkaError, UserError, and TimeoutError after READ_SECONDS.
    """
    return (await last_signs(settings, record, seconds)).get(region)


async def last_signs(settings: Settings, record: StateRecord, seconds: float) -> dict[str, float]:
    """Return, by region, the seconds since the last event from its query.

    Regions without an event within the last `seconds` are absent, and so are regions whose last such event
    closes them. Raises KafkaError, UserError, and TimeoutError after READ_SECONDS.
    """
    topic = settings.kafka.topic_names().events
    count = await partition_count(settings, topic)
    home = record.state.partition
    source = TopicPartition(topic, partition_of(record.stream, count) if home is None else home)
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    newest: dict[str, int] = {}
    try:
        await start_client(consumer)
        since = round((time.time() - seconds) * 1000)
        found = (await consumer.offsets_for_times({source: since}))[source]
        if found is None:
            return {}
        end = (await consumer.end_offsets([source]))[source]
        consumer.assign([source])
        consumer.seek(source, found.offset)
        async with asyncio.timeout(READ_SECONDS):
            while await consumer.position(source) < end:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for each in records:
                        _note(newest, each, record.stream)
    finally:
        await consumer.stop()
    now = time.time()
    return {region: max(0.0, now - at / 1000) for region, at in sorted(newest.items())}


def _note(newest: dict[str, int], record: Any, stream: str) -> None:
    envelope = read_attributes(record.headers)
    if isinstance(envelope, Flaw) or envelope.stream != stream:
        return
    if envelope.type in _SIGNS:
        newest[envelope.region] = record.timestamp
    elif envelope.type is EventType.REGION_CLOSED:
        newest.pop(envelope.region, None)
