"""Schedules of the simulator: their logs, tables, and the state records that were written on the way."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from aiokafka import ConsumerRecord

from sluicegate.coordinator.core.effects import Effect
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.decisions import Decoder, LogFold, LoggedDecision, Start, Step
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.events.codec import read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import StreamPolicy
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.history import TableHistory, read_history
from tests.events.examples import BODIES
from tests.simulator.plan import draw_plan
from tests.simulator.schedule import Schedule
from tests.simulator.world import STREAM, Entry, World

EVERY: Final = 10
"""Effects between two looks."""
LENGTH: Final = 400
EMPTY: Final = Start(0, LogState(), -1)


@dataclass(frozen=True)
class Look:
    """The log's end and the state record at one moment."""

    end: int
    record: str | None


class Watched(Schedule):
    """A schedule that is looked at now and then."""

    def __init__(self, seed: int) -> None:
        self.looks: list[Look] = []
        self._effects = 0
        plan = draw_plan(seed, LENGTH, ("revert", "expire", "refused"))
        # A foreign job that commits as our user makes differences; `test_comparison` has those.
        super().__init__(replace(plan, steps=tuple(each for each in plan.steps if each.kind != "impostor")))

    def _watch(self, effect: Effect) -> None:
        super()._watch(effect)
        self._effects += 1
        if self._effects % EVERY == 0:
            self.looks.append(Look(len(self.world.log), self.world.record))


@cache
def watched(seed: int) -> Watched:
    """Return a schedule that has come to its end."""
    schedule = Watched(seed)
    schedule.run()
    return schedule


def history(world: World) -> TableHistory:
    """Return what can be read of the table."""
    table = world.table
    head = table.past(table.head.id) if table.head else None
    return read_history(table.identity, head, table.parent)


def starts(schedule: Watched) -> Iterator[tuple[Look, Start]]:
    """Yield the states of the records that were written on the way, each as a start of a reading."""
    for look in schedule.looks:
        if look.record is not None:
            record = StateRecord.model_validate_json(look.record)
            yield look, Start(record.low_water, record.state, record.applied)


def encoded(entry: Entry) -> ConsumerRecord:
    """Return a record of the simulated log as Kafka has it."""
    envelope, body = entry.envelope, entry.body
    if isinstance(body, StreamPolicy):
        # The simulator's files have short names.
        body = body.model_copy(update={"file_names": "unchecked"})
    if body is None:
        # The simulator has appended an event that nobody can read.
        message = encode_event(envelope, BODIES[envelope.type], 0)._replace(value=b"?")
    else:
        message = encode_event(envelope, body, 0)
    return ConsumerRecord(
        topic="events",
        partition=0,
        offset=entry.offset,
        timestamp=entry.time,
        timestamp_type=1,
        key=message.key,
        value=message.value,
        checksum=None,
        serialized_key_size=len(message.key),
        serialized_value_size=len(message.value),
        headers=tuple(message.headers),
    )


def steps(fold: LogFold, log: Sequence[Entry]) -> Iterator[Step]:
    """Yield the effects of a part of the log."""
    for entry in log:
        record = encoded(entry)
        step = fold.read(record.offset, record.timestamp, record.headers, record.value)
        if step is not None:
            yield step


def decisions(start: Start, log: Sequence[Entry]) -> list[LoggedDecision]:
    """Return the decisions of a log that begins with this state, in order."""
    fold = LogFold(STREAM, 0, start)
    found = [step.settled for step in steps(fold, log[start.begin :])]
    return [each for each in (*found, fold.finish()) if each is not None]


class MemoryLog(StreamLog):
    """A simulated log as a replay reads it."""

    partition = 0

    def __init__(self, log: Sequence[Entry]) -> None:
        self.decode: Decoder = read_record
        self._log = log

    async def end(self) -> int:
        return len(self._log)

    async def read(self, start: int, end: int, what: str = "") -> AsyncGenerator[list[ConsumerRecord], None]:
        for first in range(start, end, 100):
            yield [encoded(entry) for entry in self._log[first : min(first + 100, end)]]

    async def bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        return {offset: WrittenEvent(self._envelope(offset), self._body(offset)) for offset in offsets}

    def _envelope(self, offset: int) -> Envelope:
        return self._log[offset].envelope

    def _body(self, offset: int) -> bytes:
        assert self._log[offset].files is not None
        value = encoded(self._log[offset]).value
        assert isinstance(value, bytes)
        return value
