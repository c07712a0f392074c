"""A stream's part of the log, and its state records, read without joining a consumer group.

`StreamLog` reads the log for commands that replay a stream, and folds nothing. It leaves out the records that
an operator's orders skip, as coordinators do.
"""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import duration, format_problem
from sluicegate.coordinator.replay.decisions import ReplayRefused, Start, start_of
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.continuity import Home, LogRange, last_events, obstacle
from sluicegate.coordinator.stream.other_groups import NEEDS_KEYS
from sluicegate.coordinator.stream.records import Held, read_held
from sluicegate.events.codec import EVENT_SHAPES, Reading
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, RawHeader, partition_of
from sluicegate.events.models import Body, StreamCommand
from sluicegate.events.orders import Order, Skips, digest_of, order_header, skipped_record
from sluicegate.events.problems import Problem
from sluicegate.events.signing import Decoder
from sluicegate.kafka.authorized import hidden_topics
from sluicegate.kafka.bodies import BodyFetcher, WrittenEvent
from sluicegate.kafka.clients import patiently, started
from sluicegate.kafka.internals import client_of
from sluicegate.kafka.reading import read_batches

# Records of a partition that orders skip, for readers of a range of it.

Batches = AsyncGenerator[list[ConsumerRecord], None]


class Skipped:
    """Finds the orders that skip records, and decodes each record with regard to them.

    An order follows its record. So the first record that only a newer release reads has the rest of the log
    searched for orders, once. A log without such a record is read once.
    """

    def __init__(
        self, read: Decoder, batches: Callable[[int, int], Batches], end: Callable[[], Awaitable[int]]
    ) -> None:
        """`read` decodes a record, `batches` reads a range of the partition, `end` returns its end offset."""
        self._decode = read
        self._batches = batches
        self._end = end
        self._skips = Skips()
        self._digests: dict[int, str] = {}
        """By offset, the digests of the records that an order skips, as far as they were read."""
        self._searched = 0

    async def note(self, batch: Sequence[ConsumerRecord]) -> bool:
        """Note the records of a batch that orders skip; return True if the log was searched for orders.

        Raises KafkaError, TimeoutError.
        """
        newer = [(each, stream) for each in batch if (stream := self._stalled(each)) is not None]
        searched = bool(newer) and newer[-1][0].offset >= self._searched
        if searched:
            end = await self._end()
            async with aclosing(self._batches(newer[0][0].offset, end)) as batches:
                async for later in batches:
                    for each in later:
                        if (record := self._read(each).record) is not None:
                            self._skips.note(record)
            self._searched = end
        for each, stream in newer:
            digest = digest_of(each.key, each.headers, each.value)
            if self._skips.name(stream, each.offset, digest):
                self._digests[each.offset] = digest
        return searched

    def decode(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Reading:
        """Decode a record of a batch that was noted."""
        if (digest := self._digests.get(offset)) is not None:
            return Reading(skipped_record(offset, time, headers, digest), None)
        return self._decode(offset, time, headers, value)

    def _stalled(self, record: ConsumerRecord) -> str | None:
        """Return the stream that a record stalls; None if it stalls none."""
        if any(name == "ce_type" and value in EVENT_SHAPES for name, value in record.headers):
            # Nearly every record.
            return None
        flaw = self._read(record).flaw
        return flaw.stream if flaw is not None and flaw.stalls else None

    def _read(self, record: ConsumerRecord) -> Reading:
        return self._decode(record.offset, record.timestamp, record.headers, record.value)


# Reads one stream's partition and its state records, without joining a consumer group.

MOST_RECORDS: Final = 5_000
POLL_MS: Final = 300
INTERVAL: Final = 0.5
"""Seconds between two notes of the progress."""

Print = Callable[[str], None]


def quiet(_: str) -> None:
    """Show nothing."""


class Progress:
    """Shows the progress through a range, at most every `interval` seconds."""

    def __init__(self, show: Print, what: str, start: int, end: int, interval: float = INTERVAL) -> None:
        self._show = show
        self._what = what
        self._start, self._end = start, end
        self._interval = interval
        self._begun = self._shown = time.monotonic()

    def at(self, position: int) -> None:
        """Note that every offset before `position` is read."""
        now = time.monotonic()
        done, whole = position - self._start, self._end - self._start
        if now - self._shown < self._interval or done <= 0 or position >= self._end:
            return
        self._shown = now
        took = now - self._begun
        self._show(
            f"{self._what}: {done:,} of {whole:,} ({done / whole:.0%}), {done / took:,.0f}/s, "
            f"about {duration(took * (whole - done) / done)} left"
        )


class Patience(NamedTuple):
    """Limit for the time without progress, in seconds."""

    seconds: float
    since: float

    def check(self, what: str) -> None:
        """Raise TimeoutError if the limit is exceeded."""
        if time.monotonic() - self.since > self.seconds:
            raise TimeoutError(f"{what} gave no further record for {self.seconds:g} s")


class StreamLog:
    """The partition of a stream in the events topic."""

    progress = Progress(quiet, "", 0, 0)
    """That of the reading under way."""

    def __init__(
        self,
        settings: Settings,
        source: TopicPartition,
        consumer: AIOKafkaConsumer,
        fetcher: BodyFetcher,
        show: Print = quiet,
    ) -> None:
        """`show` gets the progress of each reading."""
        self.topic: str = source.topic
        self.partition: int = source.partition
        self.fetcher = fetcher
        self.signatures = settings.kafka.signatures()
        self.must_verify = settings.kafka.signing.mode == "required"
        """True if records without a valid signature are refused."""
        self._skipped = Skipped(self.signatures.read, self._range, self.end)
        self.decode: Decoder = self._skipped.decode
        self._source = source
        self._settings = settings
        self._consumer = consumer
        self._show = show

    async def begin(self) -> int:
        """Return the offset of the first record that the partition still has. Raises KafkaError."""
        begin: int = (await self._consumer.beginning_offsets([self._source]))[self._source]
        return begin

    async def end(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        end: int = (await self._consumer.end_offsets([self._source]))[self._source]
        return end

    async def first_since(self, time_ms: int) -> int:
        """Return the first offset with an append time at or after this, else the end. Raises KafkaError."""
        found = await self._consumer.offsets_for_times({self._source: time_ms})
        return await self.end() if (at := found[self._source]) is None else int(at.offset)

    async def read(
        self, start: int, end: int, what: str = "reading the log"
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Yield the records from `start` to before `end`, once, in order. Raises KafkaError, TimeoutError.

        Its progress is shown as that of `what`, after each batch. A caller whose batches take long can note
        places in between with `progress`.

        Records that only a newer release reads are skipped by orders that follow them. So the first such
        record has the rest of the log searched for orders.
        """
        position = start
        progress = self.progress = Progress(self._show, what, start, end)
        while position < end:
            async with aclosing(self._range(position, end)) as batches:
                async for batch in batches:
                    position = batch[-1].offset + 1
                    searched = await self._skipped.note(batch)
                    yield batch
                    progress.at(position)
                    if searched:
                        # The search has moved the consumer.
                        break
                else:
                    return

    def _range(self, start: int, end: int) -> AsyncGenerator[list[ConsumerRecord], None]:
        patience = self._settings.kafka.request_timeout * 4
        return read_range(self._consumer, self._source, start, end, patience)

    async def bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        """Read the events with files at these offsets. Raises BodyUnavailable, KafkaError, TimeoutError."""
        return await self.fetcher.fetch(self.partition, offsets)

    async def append(self, envelope: Envelope, body: Body, claim: Order) -> int:
        """Append an order of an operator; return its offset once all in-sync replicas have it.

        Raises KafkaError, and ReplayRefused if no coordinator takes its signature.
        """
        now = time.time_ns() // 1_000_000
        key, value, headers = encode_event(envelope, body, now)
        headers = self.signatures.sign([*headers, order_header(claim)], value)
        producer = AIOKafkaProducer(
            **self._settings.kafka.client_options(), acks="all", enable_idempotence=True
        )
        async with started(producer):
            found = await producer.send_and_wait(
                self._source.topic, value, key=key, headers=headers, partition=self.partition
            )
        # No coordinator asks for the signature of a registration, but the audit shows it.
        if isinstance(body, StreamCommand) and self.signatures.late(now, found.timestamp):
            raise ReplayRefused(
                f"the order at offset {found.offset} has no effect: the clocks of this host and of the "
                f"broker differ by {abs(found.timestamp - now) // 1000} s, so its signature is too old. "
                "Correct the clock, and repeat the order"
            )
        return int(found.offset)

    async def start(self, stream: str, held: Held, before: int = 0) -> Start:
        """Return the state with which a reading of the log begins. Raises ReplayRefused, KafkaError.

        The records of the stream must be about this log, and about the settings' commit user.
        `before`: only the effects from this offset on are needed; 0: those of the whole log.
        """
        begin, newest = await self.begin(), held.record
        if isinstance(newest, StateRecord):
            log = LogRange(begin, await self.end())
            home = Home(self.partition, self._settings.streams[stream].commit_user)
            # A record that needs deleted events is not a broken log: `start_of` judges that.
            reached = newest.model_copy(update={"low_water": max(newest.low_water, begin)})
            events = await last_events(self.fetcher, self.partition, [newest], log)
            if (problem := obstacle(reached, home, log, events)) is not None:
                raise ReplayRefused(format_problem(problem, stream))
            other = any(not base.is_of_course(newest) for base in held.bases.values())
            if begin <= newest.low_water and (other or newest.applied < before):
                # The newest record needs the least reading.
                return Start(newest.low_water, newest.state, newest.applied)
        return start_of(stream, begin, held.bases)


async def read_range(
    consumer: AIOKafkaConsumer, source: TopicPartition, start: int, end: int, seconds: float
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """Yield the records of a partition between two offsets. Raises KafkaError.

    Raises TimeoutError if nothing arrives for so many seconds.
    """
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


def order_envelope(stream: str) -> Envelope:
    """Return the envelope of an order to a stream."""
    return Envelope(uuid.uuid4().hex, EventType.STREAM_COMMAND, stream)


@asynccontextmanager
async def open_log(
    settings: Settings, stream: str, home: int | None = None, show: Print = quiet
) -> AsyncIterator[StreamLog]:
    """Connect to a stream's partition; `home`: it is known. Raises ReplayRefused, KafkaError.

    `show` gets the progress of each reading.
    """
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
    async with started(consumer):
        if home is None:
            home = partition_of(stream, len(await partitions_of(consumer, topic)))
        try:
            yield StreamLog(settings, TopicPartition(topic, home), consumer, fetcher, show)
        finally:
            await fetcher.close()


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
    async with started(consumer):
        numbers = await partitions_of(consumer, topic)
        sources = [TopicPartition(topic, number) for number in numbers]
        begins = await consumer.beginning_offsets(sources)
        ends = await consumer.end_offsets(sources)
        for source in sources:
            patience = settings.kafka.request_timeout * 4
            first = max(start, begins[source])
            async for batch in read_range(consumer, source, first, ends[source], patience):
                yield batch


async def partitions_of(consumer: AIOKafkaConsumer, topic: str) -> list[int]:
    """Return the partition numbers of a topic. Raises KafkaError, and ReplayRefused if it does not exist."""
    # Request all topics: brokers may create a missing topic that is requested by name.
    found = (await patiently(client_of(consumer).fetch_all_metadata)).partitions_for_topic(topic)
    if not found:
        if await patiently(lambda: hidden_topics(consumer, [topic])):
            raise TopicAuthorizationFailedError(topic)
        raise ReplayRefused(
            f"the topic {topic} does not exist; check kafka.topic_prefix, or create it: sluicegate topics "
            "create"
        )
    return sorted(found)


async def stream_records(settings: Settings, stream: str) -> Held:
    """Read the state records of a stream.

    Raises ReplayRefused if one of them cannot be read, KafkaError, TimeoutError.
    """
    topic, options = settings.kafka.topic_names().state, settings.kafka.client_options()
    async with started(AIOKafkaConsumer(enable_auto_commit=False, **options)) as consumer:
        count = len(await partitions_of(consumer, topic))
    held = (await read_held(settings.kafka, count, [stream])).get(stream, Held())
    if settings.kafka.signing.mode == "off" and held.must_sign:
        raise ReplayRefused(NEEDS_KEYS)
    if isinstance(held.record, Problem):
        raise ReplayRefused(format_problem(held.record, stream))
    return held
