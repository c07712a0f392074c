"""Reading on behind a record that the client library cannot decode.

A header's name that is not UTF-8 makes aiokafka raise for the whole batch, again and again. Such a batch is
fetched once more as bytes and taken apart here, so that only the record itself is put aside.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.util import decode_varint

from sluicegate.kafka.internals import RecordBatch, client_of, encoded_records, positions

_log = logging.getLogger(__name__)

_BATCH_HEAD: Final = Struct(">qiib")
"""Base offset, length of what follows it, leader epoch, magic."""
_LENGTH_FROM: Final = 12
_MAGIC: Final = 2
_FETCH_BYTES: Final = 8 << 20
_PAUSE: Final = 0.2

Batches = dict[TopicPartition, list[ConsumerRecord]]


class Reading(NamedTuple):
    """Result of one read: records by partition, in order, and the records that cannot be decoded."""

    batches: Batches
    unreadable: list[ConsumerRecord]
    ends: Mapping[TopicPartition, int] = MappingProxyType({})
    """The next offset of each assigned partition: what precedes it was handed out, or is no record."""


class NotContiguous(KafkaError):  # type: ignore[misc]
    """A reader has left out a part of the log, or has it twice. Nobody may act on what it read.

    It is a KafkaError, because the way out is the same: connect again, and read from the state records.
    """

    def __init__(self, source: TopicPartition, expected: int, found: int) -> None:
        text = (
            f"the log of partition {source.partition} is read at offset {found}, but {expected} is the next"
        )
        super().__init__(text)
        _log.error(
            "partition %d is not read in order: offset %d in place of %d", source.partition, found, expected
        )


async def read_batches(
    consumer: AIOKafkaConsumer, *sources: TopicPartition, timeout_ms: int, max_records: int | None = None
) -> Reading:
    """`getmany` that gets past undecodable records; without sources, of all. Raises KafkaError."""
    before = positions(consumer)
    try:
        batches: Batches = await consumer.getmany(*sources, timeout_ms=timeout_ms, max_records=max_records)
    except (UnicodeDecodeError, CorruptRecordException) as error:
        # Without its compiled parts, the client wraps the first in the second.
        # What was taken from other partitions before it raised is lost with the exception.
        for source, position in positions(consumer).items():
            if before.get(source, position) < position:
                consumer.seek(source, before[source])
        paused = consumer.paused()
        for source in sources or sorted(consumer.assignment()):
            if source not in paused and (found := await _rescue(consumer, source)) is not None:
                return found
        if isinstance(error, KafkaError):
            raise
        await asyncio.sleep(_PAUSE)
        return Reading({}, [], positions(consumer))
    # Nothing was awaited since the records were handed out, so these are the positions after them.
    return Reading(batches, [], positions(consumer))


async def read_on(consumer: AIOKafkaConsumer, *, timeout_ms: int, max_records: int | None = None) -> Batches:
    """`getmany` without undecodable records, for readers to whom they say nothing. Raises KafkaError."""
    return (await read_batches(consumer, timeout_ms=timeout_ms, max_records=max_records)).batches


async def _rescue(consumer: AIOKafkaConsumer, source: TopicPartition) -> Reading | None:
    """Hand out the next batches up to the first one with an undecodable record; None if there is none."""
    position = await consumer.position(source)
    records: list[ConsumerRecord] = []
    for batch in _batches(await _fetch(consumer, source, position)):
        unreadable: list[ConsumerRecord] = []
        for record, readable in _records(source, batch):
            if record.offset >= position:
                (records if readable else unreadable).append(record)
        if unreadable:
            if await consumer.position(source) != position:
                return None
            consumer.seek(source, batch.next_offset)
            return Reading({source: records}, unreadable, positions(consumer))
    return None


async def _fetch(consumer: AIOKafkaConsumer, source: TopicPartition, offset: int) -> bytes:
    """Fetch without decoding; there is no public way to."""
    client = client_of(consumer)
    place = (source.topic, [(source.partition, offset, _FETCH_BYTES)])
    request = FetchRequest(500, 1, _FETCH_BYTES, 0, [place], rack_id="")
    response = await client.send(client.cluster.leader_for_partition(source), request)
    for _, partitions in response.topics:
        for _, code, *_, records in partitions:
            if code:
                raise for_code(code)(f"partition {source.partition} cannot be fetched")
            return bytes(records or b"")
    return b""


def _batches(raw: bytes) -> Iterator[RecordBatch]:
    """The whole batches; the last one may be cut off."""
    start = 0
    while start + _BATCH_HEAD.size <= len(raw):
        _, length, _, magic = _BATCH_HEAD.unpack_from(raw, start)
        end = start + _LENGTH_FROM + length
        # Older formats have no headers.
        if end > len(raw) or magic != _MAGIC:
            return
        batch = RecordBatch(raw[start:end])
        if not batch.is_control_batch:
            yield batch
        start = end


def _records(source: TopicPartition, batch: RecordBatch) -> Iterator[tuple[ConsumerRecord, bool]]:
    """Every record of a batch, and whether the names of its headers are UTF-8."""
    buffer, start, count = encoded_records(batch)
    for _ in range(count):
        length, start = decode_varint(buffer, start)
        yield _record(source, batch, buffer, start)
        start += length


def _record(
    source: TopicPartition, batch: RecordBatch, buffer: bytearray, start: int
) -> tuple[ConsumerRecord, bool]:
    # One byte of attributes comes first.
    elapsed, at = decode_varint(buffer, start + 1)
    distance, at = decode_varint(buffer, at)
    key, at = _bytes(buffer, at)
    value, at = _bytes(buffer, at)
    count, at = decode_varint(buffer, at)
    headers: list[tuple[str, bytes | None]] = []
    readable = True
    for _ in range(count):
        name, at = _bytes(buffer, at)
        content, at = _bytes(buffer, at)
        shown = (name or b"").decode(errors="backslashreplace")
        readable = readable and shown.encode() == name
        headers.append((shown, content))
    time = batch.max_timestamp if batch.timestamp_type else batch.first_timestamp + elapsed
    sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
    place = (source.topic, source.partition, batch.base_offset + distance, time, batch.timestamp_type)
    return ConsumerRecord(*place, key, value, None, *sizes, tuple(headers)), readable


def _bytes(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(buffer, at)
    if length < 0:
        return None, at
    return bytes(buffer[at : at + length]), at + length
