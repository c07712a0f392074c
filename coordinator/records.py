"""State records in the compacted topic: all read at an assignment, written by key."""

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.coordinator.core.record_codec import decode_record
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.ownership import group_named
from sluicegate.events.problems import Problem
from sluicegate.kafka.fetching import read_batches
from sluicegate.kafka.starting import start_client


class Held(NamedTuple):
    """The newest record of a stream."""

    record: StateRecord | Problem
    """A problem if this release cannot read it."""
    group: str | None
    """Group of coordinators that wrote it; None if it is unsigned."""


class _Stored(NamedTuple):
    offset: int
    time: int
    """Append time in milliseconds by the broker's clock, which may step back."""
    value: bytes
    group: str | None


_Newest = dict[str, dict[int, _Stored]]
"""By stream, the last record in each partition."""


async def read_records(
    topic: str, partitions: int, options: dict[str, Any], streams: Collection[str], patience: float
) -> dict[str, StateRecord | Problem]:
    """Return the newest record of each stream that has one, as `read_held` does."""
    held = await read_held(topic, partitions, options, streams, patience)
    return {stream: each.record for stream, each in held.items()}


async def read_held(
    topic: str, partitions: int, options: dict[str, Any], streams: Collection[str], patience: float
) -> dict[str, Held]:
    """Return the newest record of each stream that has one, with the group that wrote it.

    All partitions are read, because a record may be in any of them after the topic got more partitions.
    Raises KafkaError, and TimeoutError after `patience` seconds without progress.
    """
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **options)
    try:
        await start_client(consumer)
        newest = await _newest(consumer, sources, {stream.encode(): stream for stream in streams}, patience)
    finally:
        await consumer.stop()
    latest = {stream: _latest(found) for stream, found in newest.items()}
    return {stream: Held(decode_record(stream, each.value), each.group) for stream, each in latest.items()}


async def _newest(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    streams: dict[bytes, str],
    patience: float,
) -> _Newest:
    async with asyncio.timeout(patience) as limit:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, begins[partition])
        newest: _Newest = {}
        positions, behind = begins, {each for each in partitions if begins[each] < ends[each]}
        while behind:
            # Records that cannot be decoded were not written by a coordinator.
            for records in (await read_batches(consumer, timeout_ms=200)).batches.values():
                _keep_newest(newest, records, streams)
            before, positions = positions, {each: await consumer.position(each) for each in behind}
            if any(positions[each] > before[each] for each in behind):
                # The timeout limits the time without progress, not the whole read.
                limit.reschedule(asyncio.get_running_loop().time() + patience)
            behind = {each for each in behind if positions[each] < ends[each]}
    return newest


def _keep_newest(newest: _Newest, records: list[ConsumerRecord], streams: dict[bytes, str]) -> None:
    for record in records:
        stream = streams.get(record.key or b"")
        if stream is None or record.value is None:
            continue
        found = newest.setdefault(stream, {})
        held = found.get(record.partition)
        if held is None or held.offset < record.offset:
            found[record.partition] = _Stored(
                record.offset, record.timestamp, record.value, group_named(record.headers)
            )


def _latest(found: dict[int, _Stored]) -> _Stored:
    """Return a stream's last record; it has several partitions only if the topic got more of them."""
    return max(found.values(), key=lambda stored: stored.time)
