"""The log of one stream, folded from its newest state record with the rules of every coordinator."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import partition_count, read_own_records
from sluicegate.cli.options import current_order
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import AssignmentState, LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.log import open_log as open_replay_log
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.other_groups import NEEDS_KEYS
from sluicegate.coordinator.stream.records import Held
from sluicegate.events.envelope import Envelope, LogRecord, partition_of
from sluicegate.events.models import Body
from sluicegate.events.problems import Code, Problem

_PAUSE: Final = 0.2
"""Seconds between two looks at the end of the log."""


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

    def __init__(self, log: StreamLog, record: StateRecord) -> None:
        self.topic, self.partition = log.topic, log.partition
        self.replica = Replica(record.stream, log.partition, record.state, record.applied)
        self.log = log
        self._stream = record.stream
        self._position = record.low_water

    async def read_to_end(self) -> None:
        """Apply everything that is in the log now. Raises KafkaError, UserError, TimeoutError."""
        async for _ in self._steps():
            pass
        self.replica.finish_refill()

    async def follow(self) -> AsyncIterator[Step]:
        """Yield each later record of the stream, without end. Raises KafkaError, UserError, TimeoutError."""
        while True:
            async for step in self._steps():
                yield step
            await asyncio.sleep(_PAUSE)

    async def append(self, envelope: Envelope, body: Body) -> int:
        """Append an order to the partition, as `StreamLog.append` does, and return its offset."""
        return await self.log.append(envelope, body, current_order())

    async def _steps(self) -> AsyncGenerator[Step, None]:
        """Yield the records of the stream that are in the log now, from the position on."""
        async with aclosing(self.log.read(self._position, end := await self.log.end())) as batches:
            async for batch in batches:
                for raw in batch:
                    # Each record is applied when its step is taken, so that the replica is as of that step.
                    if (step := self._apply(raw)) is not None:
                        yield step
                    self._position = raw.offset + 1
        # The last offsets may have no record, such as the marks of transactions.
        self._position = max(self._position, end)

    def _apply(self, raw: ConsumerRecord) -> Step | None:
        reading = self.log.decode(raw.offset, raw.timestamp, raw.headers, raw.value)
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
    held = await _held(settings, stream)
    if settings.kafka.signing.mode == "off" and held.must_sign:
        raise UserError(NEEDS_KEYS)
    record = _readable(held, stream)
    home, count = record.state.partition, await partition_count(settings, settings.kafka.topic_names().events)
    async with open_replay_log(
        settings, stream, partition_of(stream, count) if home is None else home
    ) as log:
        begin = await log.begin()
        if record.low_water < begin and isinstance(base := held.usable(begin), StateRecord):
            # A former owner of the partition can have replaced the newest record by an older one.
            record = base
        if record.low_water < begin or record.applied >= await log.end():
            # The coordinator stalls for the same reason; without these records the effect is unknown.
            problem = Problem(code=Code.LOG_DISCONTINUOUS, number=record.low_water, other=begin)
            raise UserError(format_problem(problem, stream))
        yield FoldedLog(log, record)


def region_assignment(state: LogState, stream: str, region: str) -> AssignmentState:
    """Return the assignment in force if it has the region. Raises UserError."""
    current = state.assignment
    if current is None:
        raise UserError(f"stream {stream} has no assignment yet, so no region {region}. Start its driver")
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
    return _readable(await _held(settings, stream), stream)


async def _held(settings: Settings, stream: str) -> Held:
    held = await read_own_records(settings, stream)
    if held.record is None:
        raise UserError(
            f"stream {stream} has no state record in {settings.kafka.topic_names().state}: no driver has "
            "registered a region yet. Start it first"
        )
    return held


def _readable(held: Held, stream: str) -> StateRecord:
    if not isinstance(held.record, StateRecord):
        raise UserError(format_problem(held.record or Problem(code=Code.STATE_RECORD_MALFORMED), stream))
    return held.record
