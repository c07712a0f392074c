"""The log of one stream, folded from its newest state record with the rules of every coordinator."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import Dated, consumer_of, partition_count, read_dated_records, read_own_records
from sluicegate.cli.options import current_order
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import AssignmentState, LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.replay.log import Skipped, read_range
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.other_groups import NEEDS_KEYS
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, LogRecord, partition_of
from sluicegate.events.models import Body, StreamCommand
from sluicegate.events.orders import order_header
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_batches

POLL_MS: Final = 300
STUCK: Final = 120.0
"""Seconds without progress after which a read fails."""


class Unreadable(UserError):
    """The stream stalls at a record that only a newer release reads."""

    def __init__(self, record: ConsumerRecord, problem: Problem, stream: str) -> None:
        self.record = record
        super().__init__(format_problem(problem, stream))


class Step(NamedTuple):
    """One record of the log, with its effect."""

    record: LogRecord
    applied: Applied


class FoldedLog:
    """The log of a stream, folded while it is read: `replica` has the state as of the last record."""

    def __init__(
        self, settings: Settings, record: StateRecord, source: TopicPartition, consumer: AIOKafkaConsumer
    ) -> None:
        self.source = source
        self.replica = Replica(record.stream, source.partition, record.state, record.applied)
        self._stream = record.stream
        self._settings = settings
        self._consumer = consumer
        self._signatures = settings.kafka.signatures()
        self._skipped = Skipped(self._signatures.read, self._range, self._end)

    async def read_to_end(self) -> None:
        """Apply everything that is in the log now. Raises KafkaError, UserError, TimeoutError."""
        end = (await self._consumer.end_offsets([self.source]))[self.source]
        async with asyncio.timeout(STUCK) as limit:
            position = await self._consumer.position(self.source)
            while position < end:
                for _ in await self._read():
                    pass
                before, position = position, await self._consumer.position(self.source)
                if position > before:
                    limit.reschedule(asyncio.get_running_loop().time() + STUCK)
        self.replica.finish_refill()

    async def follow(self) -> AsyncIterator[Step]:
        """Yield each later record of the stream, without end. Raises KafkaError, UserError."""
        while True:
            for step in await self._read():
                yield step

    async def append(self, envelope: Envelope, body: Body) -> int:
        """Append an order to the partition; return its offset once all in-sync replicas have it.

        Raises KafkaError, and UserError if no coordinator takes its signature.
        """
        now = time.time_ns() // 1_000_000
        message = encode_event(envelope, body, now)
        message.headers.append(order_header(current_order()))
        producer = AIOKafkaProducer(
            **self._settings.kafka.client_options(), acks="all", enable_idempotence=True
        )
        async with started(producer):
            found = await producer.send_and_wait(
                self.source.topic,
                key=message.key,
                value=message.value,
                headers=self._signatures.sign(message.headers, message.value),
                partition=self.source.partition,
            )
        # No coordinator asks for the signature of a registration, but the audit shows it.
        if isinstance(body, StreamCommand) and self._signatures.late(now, found.timestamp):
            raise UserError(
                f"the order at offset {found.offset} has no effect: the clocks of this host and of the "
                f"broker differ by {abs(found.timestamp - now) // 1000} s, so its signature is too old. "
                "Correct the clock, and repeat the order"
            )
        return int(found.offset)

    async def _read(self) -> Iterator[Step]:
        # Each record is applied when its step is taken, so that the replica is as of that step.
        # Records that cannot be decoded become dead letters: no producer of the protocol wrote them.
        batches = (await read_batches(self._consumer, self.source, timeout_ms=POLL_MS)).batches
        records = batches.get(self.source, [])
        position = await self._consumer.position(self.source)
        if await self._skipped.note(records):
            self._consumer.seek(self.source, position)
        steps = (self._apply(each) for each in records)
        return (step for step in steps if step is not None)

    async def _end(self) -> int:
        end: int = (await self._consumer.end_offsets([self.source]))[self.source]
        return end

    def _range(self, start: int, end: int) -> AsyncGenerator[list[ConsumerRecord], None]:
        return read_range(self._consumer, self.source, start, end, STUCK)

    def _apply(self, raw: ConsumerRecord) -> Step | None:
        reading = self._skipped.decode(raw.offset, raw.timestamp, raw.headers, raw.value)
        if reading.flaw is not None and reading.flaw.stalls and reading.flaw.stream == self._stream:
            if raw.offset > self.replica.applied:
                raise Unreadable(raw, reading.flaw.problem, self._stream)
            return None
        record = reading.record
        if record is None or record.envelope.stream != self._stream:
            return None
        applied = self.replica.step(record)
        if applied.ignored is not None and applied.ignored.code is Code.SKIPPED_LATE:
            raise UserError(format_problem(applied.ignored, self._stream))
        return Step(record, applied)


@asynccontextmanager
async def open_log(settings: Settings, stream: str) -> AsyncIterator[FoldedLog]:
    """Open the log of a stream where its newest state record needs it, and read it to its end.

    Raises KafkaError, TimeoutError, and UserError if this release cannot read the record or the log.
    """
    async with connect_log(settings, stream) as log:
        await log.read_to_end()
        yield log


@asynccontextmanager
async def connect_log(settings: Settings, stream: str) -> AsyncIterator[FoldedLog]:
    """Open the log of a stream where its newest state record needs it. Raises as `open_log` does."""
    dated = await _dated_record(settings, stream)
    if settings.kafka.signing.mode == "off" and dated.must_sign:
        raise UserError(NEEDS_KEYS)
    record = _readable(dated, stream)
    topic = settings.kafka.topic_names().events
    home, count = record.state.partition, await partition_count(settings, topic)
    source = TopicPartition(topic, partition_of(stream, count) if home is None else home)
    async with consumer_of(settings) as consumer:
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        if record.low_water < begin:
            record = await _base_record(settings, stream, begin) or record
        if record.low_water < begin or record.applied >= end:
            # The coordinator stalls for the same reason; without these records the effect is unknown.
            problem = Problem(code=Code.LOG_DISCONTINUOUS, number=record.low_water, other=begin)
            raise UserError(format_problem(problem, stream))
        consumer.assign([source])
        consumer.seek(source, record.low_water)
        yield FoldedLog(settings, record, source, consumer)


async def _base_record(settings: Settings, stream: str, begin: int) -> StateRecord | None:
    """Return a record from which the log continues, in a log that begins at this offset.

    A former owner of the partition can have replaced the newest record by an older one.
    """
    found = (await read_own_records(settings, stream)).usable(begin)
    return found if isinstance(found, StateRecord) else None


def region_assignment(state: LogState, stream: str, region: str) -> AssignmentState:
    """Return the assignment in force if it has the region. Raises UserError."""
    current = state.assignment
    if current is None:
        raise UserError(f"stream {stream} has no assignment yet, so no region {region}. Start its query")
    if region not in current.regions:
        raise UserError(
            f"assignment {current.number} of stream {stream} has no region {region}; it has: "
            f"{', '.join(current.regions)}"
        )
    return current


async def known_record(settings: Settings, stream: str) -> StateRecord:
    """Return the newest state record of a stream.

    Raises KafkaError, and UserError if the stream has none or this release cannot read it.
    """
    return _readable(await _dated_record(settings, stream), stream)


async def _dated_record(settings: Settings, stream: str) -> Dated:
    dated = (await read_dated_records(settings)).get(stream)
    if dated is None:
        raise UserError(
            f"stream {stream} has no state record in {settings.kafka.topic_names().state}: no query has "
            "registered a region yet. Start its query first"
        )
    return dated


def _readable(dated: Dated, stream: str) -> StateRecord:
    if isinstance(dated.record, Problem):
        raise UserError(format_problem(dated.record, stream))
    return dated.record
