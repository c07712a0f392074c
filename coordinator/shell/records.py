"""State records in the compacted topic: read whole at an assignment, written by key."""

import asyncio
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from pydantic import ValidationError

from sluicegate.coordinator.core.state import RECORD_VERSION, StateRecord
from sluicegate.coordinator.shell.reading import read_batches


class UnreadableRecord(Exception):
    """A state record that this release cannot read; the text says what to do."""


async def read_records(
    topic: str, partitions: int, options: dict[str, Any], streams: Collection[str], patience: float
) -> dict[str, StateRecord | UnreadableRecord]:
    """The newest record of each of the streams that has one. Raises KafkaError or TimeoutError.

    All partitions are read, so that a record is found wherever it was written.
    """
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **options)
    await consumer.start()
    try:
        newest = await _newest(consumer, sources, {stream.encode(): stream for stream in streams}, patience)
    finally:
        await consumer.stop()
    return {stream: _parse(stream, value) for stream, (_, value) in newest.items()}


async def _newest(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    streams: dict[bytes, str],
    patience: float,
) -> dict[str, tuple[int, bytes]]:
    async with asyncio.timeout(patience) as limit:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, begins[partition])
        newest: dict[str, tuple[int, bytes]] = {}
        positions, behind = begins, {each for each in partitions if begins[each] < ends[each]}
        while behind:
            # What cannot be decoded was not written by a coordinator.
            for records in (await read_batches(consumer, timeout_ms=200)).batches.values():
                _keep_newest(newest, records, streams)
            before, positions = positions, {each: await consumer.position(each) for each in behind}
            if any(positions[each] > before[each] for each in behind):
                # However much there is to read, what counts is that it goes on.
                limit.reschedule(asyncio.get_running_loop().time() + patience)
            behind = {each for each in behind if positions[each] < ends[each]}
    return newest


def _keep_newest(
    newest: dict[str, tuple[int, bytes]], records: list[ConsumerRecord], streams: dict[bytes, str]
) -> None:
    for record in records:
        stream = streams.get(record.key or b"")
        held = newest.get(stream) if stream else None
        if stream and record.value is not None and (held is None or held[0] <= record.timestamp):
            newest[stream] = (record.timestamp, record.value)


def _parse(stream: str, value: bytes) -> StateRecord | UnreadableRecord:
    try:
        record = StateRecord.model_validate_json(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        return UnreadableRecord(f"the state record of {stream} cannot be read: {problem['msg']}")
    if record.version > RECORD_VERSION:
        return UnreadableRecord(
            f"the state record of {stream} is of version {record.version}, this release reads "
            f"{RECORD_VERSION}; upgrade the coordinator"
        )
    return record
