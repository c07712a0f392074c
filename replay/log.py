"""Reads one stream's partition and its state records, without joining a consumer group."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from pydantic import ValidationError

from sluicegate.coordinator.core.state import RECORD_VERSION, StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.continuity import LogRange
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.bodies import BodyFetcher
from sluicegate.kafka.fetching import read_batches
from sluicegate.kafka.internals import client_of
from sluicegate.kafka.starting import start_client
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.progress import Progress

MOST_RECORDS: Final = 5_000
POLL_MS: Final = 300


class Patience(NamedTuple):
    """Limit for the time without progress, in seconds."""

    seconds: float
    since: float

    def check(self, what: str) -> None:
        """Raise TimeoutError if the limit is exceeded."""
        if time.monotonic() - self.since > self.seconds:
            raise TimeoutError(f"{what} could not be read on for {self.seconds:g} s")


class StreamLog:
    """The partition of a stream in the events topic."""

    def __init__(
        self, settings: Settings, source: TopicPartition, consumer: AIOKafkaConsumer, fetcher: BodyFetcher
    ) -> None:
        self.source = source
        self.fetcher = fetcher
        self._settings = settings
        self._consumer = consumer

    async def range(self) -> LogRange:
        """Return the range of offsets that the partition holds now. Raises KafkaError."""
        begin = (await self._consumer.beginning_offsets([self.source]))[self.source]
        return LogRange(begin, await self.end())

    async def end(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        end: int = (await self._consumer.end_offsets([self.source]))[self.source]
        return end

    async def read(
        self, start: int, end: int, progress: Progress | None = None
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Yield the records from `start` to before `end`, once, in order. Raises KafkaError, TimeoutError."""
        async for batch in _read(
            self._consumer, self.source, start, end, self._settings.kafka.request_timeout * 4
        ):
            yield batch
            if progress is not None and batch:
                progress.at(batch[-1].offset + 1)


async def _read(
    consumer: AIOKafkaConsumer, source: TopicPartition, start: int, end: int, seconds: float
) -> AsyncGenerator[list[ConsumerRecord], None]:
    consumer.assign([source])
    consumer.seek(source, start)
    position, patience = start, Patience(seconds, time.monotonic())
    while position < end:
        reading = await read_batches(consumer, source, timeout_ms=POLL_MS, max_records=MOST_RECORDS)
        # Records that cannot be decoded are skipped: no producer of the protocol wrote them.
        found = [record for record in reading.batches.get(source, []) if record.offset < end]
        before, position = position, await consumer.position(source)
        if position > before:
            patience = Patience(seconds, time.monotonic())
        patience.check(f"{source.topic}, partition {source.partition},")
        if found:
            yield found


@asynccontextmanager
async def open_log(settings: Settings, stream: str) -> AsyncIterator[StreamLog]:
    """Connect to a stream's partition. Raises ReplayRefused, KafkaError."""
    options = settings.kafka.client_options()
    topic = settings.kafka.topic_names().events
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_bytes=64 << 20,
        max_partition_fetch_bytes=8 << 20,
        **options,
    )
    fetcher = BodyFetcher(topic, options, settings.kafka.request_timeout)
    try:
        await start_client(consumer)
        home = partition_of(stream, len(await partitions_of(consumer, topic)))
        yield StreamLog(settings, TopicPartition(topic, home), consumer, fetcher)
    finally:
        await fetcher.close()
        await consumer.stop()


async def read_topic(
    settings: Settings, topic: str, start: int = 0
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """Yield every record of a topic from an offset, partition by partition. Raises KafkaError, TimeoutError.

    Raises ReplayRefused if the topic does not exist.
    """
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        # Dead letters are the largest messages of any topic.
        max_partition_fetch_bytes=max(1 << 20, 2 * settings.kafka.max_message_bytes),
        **settings.kafka.client_options(),
    )
    try:
        await start_client(consumer)
        numbers = await partitions_of(consumer, topic)
        sources = [TopicPartition(topic, number) for number in numbers]
        begins = await consumer.beginning_offsets(sources)
        ends = await consumer.end_offsets(sources)
        for source in sources:
            patience = settings.kafka.request_timeout * 4
            first = max(start, begins[source])
            async for batch in _read(consumer, source, first, ends[source], patience):
                yield batch
    finally:
        await consumer.stop()


async def partitions_of(consumer: AIOKafkaConsumer, topic: str) -> list[int]:
    """Return the partition numbers of a topic. Raises KafkaError, and ReplayRefused if it does not exist."""
    # Request all topics: brokers may create a missing topic that is requested by name.
    found = (await client_of(consumer).fetch_all_metadata()).partitions_for_topic(topic)
    if not found:
        raise ReplayRefused(
            f"the topic {topic} does not exist; check kafka.topic_prefix, or create it: sluicegate topics "
            "create"
        )
    return sorted(found)


async def stream_records(settings: Settings, stream: str) -> list[StateRecord]:
    """Return every state record of the stream that the topic still has, the newest last.

    Raises ReplayRefused if the newest cannot be read, KafkaError, TimeoutError.
    """
    topic = settings.kafka.topic_names().state
    found: dict[int, list[ConsumerRecord]] = {}
    async for batch in read_topic(settings, topic):
        for each in batch:
            if each.key == stream.encode() and each.value is not None:
                found.setdefault(each.partition, []).append(each)
    # Append times matter only if the topic got more partitions, because the broker's clock may step back.
    ordered = sorted(found.values(), key=lambda held: held[-1].timestamp)
    records = [_parse(each.value) for held in ordered for each in held]
    if records and records[-1] is None:
        raise ReplayRefused(
            f"the state record of {stream} cannot be read by this release (it reads version "
            f"{RECORD_VERSION}); upgrade it"
        )
    return [record for record in records if record is not None]


def _parse(value: bytes) -> StateRecord | None:
    try:
        record = StateRecord.model_validate_json(value)
    except (ValidationError, ValueError, KeyError):
        return None
    return record if record.version <= RECORD_VERSION else None
