"""Completed checkpoints of a region's live lineages that are not committed."""

import asyncio
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.kafka import POLL_MS, partition_count
from sluicegate.coordinator.core.state import RegionState, StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.envelope import EventType
from sluicegate.events.partitioning import partition_of
from sluicegate.events.codec import read_envelope
from sluicegate.events.envelope import Poison
from sluicegate.kafka.starting import start_client

PATIENCE: Final = 30.0
"""Timeout of the read, in seconds."""


async def undecided(settings: Settings, record: StateRecord, region: str) -> set[tuple[str, int]] | None:
    """Return the completed checkpoints of a region, each with its lineage, that are in no decision yet.

    The log is read from the low-water mark of the state record to its end. None after PATIENCE seconds, if
    the log is too long. Raises KafkaError, UserError.
    """
    held = record.state.regions[region]
    topic = settings.kafka.topic_names().events
    count = await partition_count(settings, topic)
    home = record.state.partition
    source = TopicPartition(topic, partition_of(record.stream, count) if home is None else home)
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(), enable_auto_commit=False, auto_offset_reset="none"
    )
    found: set[tuple[str, int]] = set()
    try:
        await start_client(consumer)
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        consumer.assign([source])
        consumer.seek(source, max(begin, min(record.low_water, end)))
        async with asyncio.timeout(PATIENCE):
            while await consumer.position(source) < end:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    found |= {at for each in records if (at := _completed(each, record.stream, region))}
    except TimeoutError:
        return None
    finally:
        await consumer.stop()
    return {(lineage, number) for lineage, number in found if _counts(held, lineage, number)}


def _completed(record: Any, stream: str, region: str) -> tuple[str, int] | None:
    envelope = read_envelope(record.headers)
    if isinstance(envelope, Poison) or envelope.type is not EventType.CHECKPOINT_COMPLETED:
        return None
    if (envelope.stream, envelope.region) != (stream, region):
        return None
    return envelope.lineage, envelope.checkpoint


def _counts(region: RegionState, lineage: str, number: int) -> bool:
    """True if the checkpoint of the lineage can still be committed."""
    lived = region.lineages.get(lineage)
    if lived is None or lineage not in region.chain:
        return False
    beyond = lived.decided is None or number > lived.decided
    return beyond and (lived.limit is None or number <= lived.limit)
