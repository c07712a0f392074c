"""State records in the compacted topic: all read at an assignment, written by key."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from sluicegate.coordinator.core.state_record import (
    Condition,
    StateRecord,
    base_key,
    decode_record,
    deletion_start,
    encode_record,
    is_endangered,
    read_key,
    read_listener_key,
    recovery_record,
    release_named,
)
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.log import LogRange
from sluicegate.coordinator.stream.other_groups import GROUP_HEADER, group_named
from sluicegate.events.envelope import partition_of
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.reading import read_batches
from sluicegate.kafka.topics import topic_settings


class Held(NamedTuple):
    """The records of one stream."""

    record: StateRecord | Problem | None
    """The newest one: a problem if this release cannot read it, None if there are base records alone."""
    group: str | None
    """Group of coordinators that wrote it; None if it is unsigned."""
    bases: Mapping[int, StateRecord]
    """Readable base records, by the first offset of the log that they are for."""

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
    group: str | None
    release: tuple[str, ...]
    """The release that wrote it; empty if it is not named."""


_Newest = dict[tuple[str, int | None], dict[int, _Stored]]
"""By stream and offset of the key, the last record in each partition."""


async def read_records(
    topic: str, partitions: int, options: dict[str, Any], streams: Collection[str], patience: float
) -> dict[str, StateRecord | Problem]:
    """Return the newest record of each stream that has one, as `read_held` does."""
    held = await read_held(topic, partitions, options, streams, patience)
    return {stream: each.record for stream, each in held.items() if each.record is not None}


async def read_held(
    topic: str,
    partitions: int,
    options: dict[str, Any],
    streams: Collection[str] | None,
    patience: float,
) -> dict[str, Held]:
    """Return the records of each stream that has one; `streams` None: of all streams.

    All partitions are read, because a record may be in any of them after the topic got more partitions.
    Raises KafkaError, and TimeoutError after `patience` seconds without progress.
    """
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **options)
    async with started(consumer):
        newest = await _newest(consumer, sources, streams, patience)
    latest = {key: _latest(found) for key, found in newest.items()}
    found = {key: each for key, each in latest.items() if each.value is not None}
    return {stream: _held(stream, found) for stream in dict.fromkeys(stream for stream, _ in found)}


def _held(stream: str, found: Mapping[tuple[str, int | None], _Stored]) -> Held:
    stored = found.get((stream, None))
    bases: dict[int, StateRecord] = {}
    for (name, start), each in found.items():
        if name == stream and start is not None:
            base = decode_record(stream, each.value or b"")
            if isinstance(base, StateRecord):
                bases[start] = base
    record = None if stored is None else decode_record(stream, stored.value or b"")
    if stored is not None and isinstance(record, Problem) and record.code is Code.STATE_RECORD_NEWER:
        record = record.model_copy(update={"names": stored.release})
    return Held(record, stored.group if stored is not None else None, bases)


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
    text = (record.key or b"").decode(errors="replace")
    key = read_key(text)
    if read_listener_key(text) is not None or (streams is not None and key[0] not in streams):
        return
    found = newest.setdefault(key, {})
    held = found.get(record.partition)
    if held is None or held.offset < record.offset:
        found[record.partition] = _Stored(
            record.offset,
            record.timestamp,
            record.value,
            group_named(record.headers),
            release_named(record.headers),
        )


def _latest(found: dict[int, _Stored]) -> _Stored:
    """Return the last record of a key; it has several partitions only if the topic got more of them."""
    return max(found.values(), key=lambda stored: stored.time)


# Retention: deletes records that nobody needs, after a base record of each stream is durable.

log = structlog.get_logger(__name__)

INTERVAL: Final = 600.0
"""Seconds between two passes."""
_SETTING: Final = "retention.ms"


def _deleting(topic: str, limit: int) -> Condition:
    """Return the condition of a topic that deletes events at this age in milliseconds."""
    cause = Cause(code=CauseCode.TOPIC_DELETES, number=limit, names=(topic,))
    return Condition(kind="stall", problem=Problem(code=Code.RETENTION, cause=cause))


class Stream(Protocol):
    """A stream of a partition."""

    low_water: int

    def warn(self, conditions: Sequence[Condition]) -> None:
        """Set the conditions that somebody else than the core found."""
        ...


class Partition(Protocol):
    """An assigned partition of the events topic."""

    number: int
    source: TopicPartition
    started: bool

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Return the streams by name."""
        ...

    def low_water(self) -> int:
        """Return the smallest offset that a recovery of the partition needs."""
        ...

    async def range(self) -> LogRange:
        """Return the offsets of the log. Raises KafkaError."""
        ...

    async def first_since(self, time_ms: int) -> int | None:
        """Return the first offset with an append time at or after this. Raises KafkaError."""
        ...


class Retention:
    """Deletion of records, and warnings about a topic that deletes them by itself."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._options = links.settings.kafka.client_options()

    async def run(self, runners: Callable[[], Iterable[Partition]]) -> None:
        """Apply the retention to all started partitions again and again."""
        while True:
            await self._pass([each for each in runners() if each.started])
            await asyncio.sleep(spread(INTERVAL))

    async def _pass(self, runners: Iterable[Partition]) -> None:
        try:
            limit = await self.limit()
        except (KafkaError, TimeoutError, OSError) as error:
            log.warning("retention of the events topic not read", error=repr(error))
            return
        for runner in runners:
            try:
                await self.warn(runner, limit)
                await self.apply(runner)
            except (KafkaError, TimeoutError, OSError) as error:
                log.warning("retention not applied", partition=runner.number, error=repr(error))

    async def apply(self, runner: Partition) -> None:
        """Delete the records of a partition that are older than the replay window and that nobody needs.

        Raises KafkaError, TimeoutError or OSError.
        """
        held = await runner.range()
        window = round(self._links.settings.replay_window * 1000)
        kept_from = await self._first_since(runner, window, held.end)
        if deletion_start([runner.low_water()], kept_from, held.begin) is None:
            return
        found = await self._streams(runner.number)
        records = {name: each.record for name, each in found.items() if isinstance(each.record, StateRecord)}
        # The record of a running stream may have been deleted: without it there is no base record either.
        if lacking := {*found, *runner.streams} - records.keys():
            log.warning("no records deleted: state records cannot be read", streams=sorted(lacking))
            return
        needed = [runner.low_water(), *(record.low_water for record in records.values())]
        start = deletion_start(needed, kept_from, held.begin)
        if start is None:
            return
        await self._write_bases(records, start)
        await reach(Failpoint.DELETE_RECORDS_BEFORE)
        await self._delete(runner.source, start)
        await reach(Failpoint.DELETE_RECORDS_AFTER)
        await self._forget_bases(found, start)
        log.info("records deleted", partition=runner.number, before=start, streams=sorted(records))

    async def limit(self) -> int:
        """Return the age in milliseconds at which the topic deletes events, and show it; -1: it has no limit.

        Raises KafkaError, TimeoutError or OSError.
        """
        topic = self._links.topics.events
        limit = int((await topic_settings(self._options, topic)).get(_SETTING, "-1"))
        self._links.metrics.process.retention(topic, limit / 1000 if limit >= 0 else None)
        return limit

    async def warn(self, runner: Partition, limit: int) -> None:
        """Raise the condition RETENTION of each stream whose events have passed half of the topic's limit.

        Raises KafkaError, TimeoutError or OSError.
        """
        topic = self._links.topics.events
        half = 0
        if limit >= 0:
            held = await runner.range()
            half = await self._first_since(runner, limit // 2, held.end)
        for stream in runner.streams.values():
            # Commits continue, but somebody must act before the events are deleted.
            stream.warn((_deleting(topic, limit),) if is_endangered(stream.low_water, half) else ())

    async def _first_since(self, runner: Partition, age: int, end: int) -> int:
        """Return the first offset of records that are not older than `age` milliseconds; else the end."""
        since = time.time_ns() // 1_000_000 - age
        offset = await runner.first_since(max(0, since))
        return end if offset is None else offset

    async def _streams(self, partition: int) -> Mapping[str, Held]:
        """Return the records of all streams of a partition, also those of other groups."""
        kafka, count = self._links.settings.kafka, self._links.partitions.state
        found = await read_held(self._links.topics.state, count, self._options, None, kafka.request_timeout)
        return {name: each for name, each in found.items() if self._home(name, each) == partition}

    def _home(self, stream: str, held: Held) -> int:
        known = held.record.state.partition if isinstance(held.record, StateRecord) else None
        return partition_of(stream, self._links.partitions.events) if known is None else known

    async def _write_bases(self, records: Mapping[str, StateRecord], start: int) -> None:
        """Write the base record of each stream, and read all of them back. Raises OSError if one differs."""
        for stream, record in records.items():
            await self._put(stream, start, encode_record(record))
        kafka, count = self._links.settings.kafka, self._links.partitions.state
        found = await read_held(
            self._links.topics.state, count, self._options, list(records), kafka.request_timeout
        )
        for stream in records:
            base = found[stream].bases.get(start) if stream in found else None
            if base is None or base.low_water < start:
                raise OSError(f"the base record of stream {stream} at offset {start} was not read back")

    async def _forget_bases(self, found: Mapping[str, Held], start: int) -> None:
        """Delete the base records of logs that began earlier."""
        for stream, each in found.items():
            for former in each.bases:
                if former < start:
                    await self._put(stream, former, None)

    async def _put(self, stream: str, start: int, value: bytes | None) -> None:
        await self._links.producer.send_and_wait(
            self._links.topics.state,
            value,
            key=base_key(stream, start).encode(),
            partition=partition_of(stream, self._links.partitions.state),
            headers=[(GROUP_HEADER, self._links.settings.kafka.group_id.encode())],
        )

    async def _delete(self, source: TopicPartition, start: int) -> None:
        admin = AIOKafkaAdminClient(**self._options)
        async with started(admin):
            try:
                await admin.delete_records({source: RecordsToDelete(before_offset=start)})
            except TopicAuthorizationFailedError as error:
                grant = f"grant this client DELETE on the topic {source.topic}"
                raise TopicAuthorizationFailedError(grant) from error
