"""State records in the compacted topic: all read at an assignment, written by key."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.settings.model import KafkaSettings, MemberKeys, keys_of
from sluicegate.coordinator.stream.other_groups import group_named, must_sign
from sluicegate.coordinator.stream.state_records import (
    decode_record,
    read_key,
    recovery_record,
    release_named,
)
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_batches


class Held(NamedTuple):
    """The records of one stream."""

    record: StateRecord | Problem | None = None
    """The newest one: a problem if this release cannot read it, None if there are base records alone."""
    bases: Mapping[int, StateRecord] = MappingProxyType({})
    """Readable base records, by the first offset of the log that they are for."""
    time: int = 0
    """Append time of the newest record, in milliseconds by the broker's clock."""
    group: str | None = None
    """Group of coordinators that wrote it; None if it is unsigned."""
    must_sign: bool = False
    """True if its coordinator refuses orders without a signature."""
    keys: MemberKeys | None = None
    """Signing keys of its coordinator, as fingerprints."""

    def usable(self, begin: int) -> StateRecord | Problem | None:
        """Return the record to recover from, in a log that begins at this offset."""
        if isinstance(self.record, Problem):
            return self.record
        return recovery_record(self.record, self.bases, begin)


class _Stored(NamedTuple):
    offset: int
    time: int
    """Append time in milliseconds by the broker's clock, which may step back."""
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


_Newest = dict[tuple[str, int | None], dict[int, _Stored]]
"""By stream and offset of the key, the last record in each partition."""


async def read_held(
    kafka: KafkaSettings, partitions: int, streams: Collection[str] | None
) -> dict[str, Held]:
    """Return the records of each stream that has one; `streams` None: of all streams.

    All `partitions` of the topic are read, because a record may be in any of them after the topic got more.
    Raises KafkaError, and TimeoutError after the request timeout without progress.
    """
    topic, options = kafka.topic_names().state, kafka.client_options()
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **options)
    async with started(consumer):
        newest = await _newest(consumer, sources, streams, kafka.request_timeout)
    held: dict[str, dict[int | None, _Stored]] = {}
    for (stream, start), found in newest.items():
        if (stored := _latest(found)).value is not None:
            held.setdefault(stream, {})[start] = stored
    return {stream: _held(stream, found) for stream, found in held.items()}


def _held(stream: str, found: Mapping[int | None, _Stored]) -> Held:
    read = {start: decode_record(stream, each.value or b"") for start, each in found.items()}
    bases = {
        start: base for start, base in read.items() if start is not None and isinstance(base, StateRecord)
    }
    if (stored := found.get(None)) is None:
        return Held(bases=bases)
    record, headers = read[None], stored.headers
    if isinstance(record, Problem) and record.code is Code.STATE_RECORD_NEWER:
        record = record.model_copy(update={"names": release_named(headers)})
    return Held(record, bases, stored.time, group_named(headers), must_sign(headers), keys_of(headers))


async def _newest(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    streams: Collection[str] | None,
    patience: float,
) -> _Newest:
    newest: _Newest = {}
    await read_topic(consumer, partitions, patience, lambda each: _keep_newest(newest, each, streams))
    return newest


async def read_topic(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    patience: float,
    keep: Callable[[ConsumerRecord], None],
) -> None:
    """Pass every record of these partitions to `keep`, up to the end at the time of the call.

    Raises KafkaError, and TimeoutError after `patience` seconds without progress.
    """
    async with asyncio.timeout(patience) as limit:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, begins[partition])
        positions, behind = begins, {each for each in partitions if begins[each] < ends[each]}
        while behind:
            # Records that cannot be decoded were not written by a coordinator.
            for records in (await read_batches(consumer, timeout_ms=200)).batches.values():
                for record in records:
                    keep(record)
            before, positions = positions, {each: await consumer.position(each) for each in behind}
            if any(positions[each] > before[each] for each in behind):
                # The timeout limits the time without progress, not the whole read.
                limit.reschedule(asyncio.get_running_loop().time() + patience)
            behind = {each for each in behind if positions[each] < ends[each]}


def _keep_newest(newest: _Newest, record: ConsumerRecord, streams: Collection[str] | None) -> None:
    key = read_key((record.key or b"").decode(errors="replace"))
    if key is None or (streams is not None and key[0] not in streams):
        return
    found = newest.setdefault(key, {})
    held = found.get(record.partition)
    if held is None or held.offset < record.offset:
        found[record.partition] = _Stored(record.offset, record.timestamp, record.value, record.headers)


def _latest(found: dict[int, _Stored]) -> _Stored:
    """Return the last record of a key; it has several partitions only if the topic got more of them."""
    return max(found.values(), key=lambda stored: stored.time)
