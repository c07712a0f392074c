"""One assigned partition of the events topic: its streams, and the routing of its records."""

import asyncio
import hashlib
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.effects import MachineSettings
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.appends import announce
from sluicegate.coordinator.stream.continuity import (
    Home,
    LogRange,
    committed_with_note,
    deleted,
    lacking,
    last_events,
    obstacle,
)
from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.coordinator.stream.links import Links, Rivals
from sluicegate.coordinator.stream.other_groups import refuse_other_groups
from sluicegate.coordinator.stream.rate_limit import Holding
from sluicegate.coordinator.stream.records import Held, read_held
from sluicegate.coordinator.stream.reload import Changes
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.tasks import PAUSE, end, in_pieces
from sluicegate.events.codec import Flaw
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.notifications import Notification, NotificationType, RegistrationAnswered
from sluicegate.events.orders import Skips, is_note
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit, reach
from sluicegate.kafka.clients import spread
from sluicegate.kafka.reading import NotContiguous

# Turns of the streams of a partition: there may be hundreds, and most have no part in a batch of records.

MANY: Final = 50
"""Streams of a partition above which quiet ones have fewer turns."""


def quiet_turns(streams: int) -> int:
    """Return the timer ticks for each turn of a quiet stream, of so many in its partition.

    Reactions to its next record count from its last turn.
    """
    return 2 if streams <= MANY else 4


def is_due(runner: "StreamRunner") -> bool:
    """Return True if records or the position of the partition may have made effects due."""
    return runner.touched or not runner.machine.has_read_all


def is_quiet(runner: "StreamRunner") -> bool:
    """Return True if only slow timers can make effects due: nothing runs, and nothing is to be committed."""
    log = runner.machine.replica.log
    if is_due(runner) or runner.running or log.state.unresolved is not None or not runner.machine.ready:
        return False
    return not any(each.checkpoints for each in log.pending.values())


# Append times of the records that were read, by offset, in little memory.

STEP: Final = 1_000
"""Milliseconds between two times that are kept, as long as they are few."""
MOST: Final = 4_096
"""Times that are kept; of more, every other one goes."""


class Record(Protocol):
    """A record of Kafka."""

    offset: int
    timestamp: int


class AppendTimes:
    """The append time of each offset from the first needed one on, never later than the true one."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._step = STEP
        self._end = 0

    def saw(self, records: Sequence[Record]) -> None:
        """Note the next records of the partition, in their order."""
        if not records:
            return
        for record in records if self._is_news(records[-1]) else ():
            if self._is_news(record):
                self._offsets.append(record.offset)
                self._times.append(record.timestamp)
        self._end = records[-1].offset + 1
        if len(self._offsets) > MOST:
            del self._offsets[1::2], self._times[1::2]
            self._step *= 2

    def _is_news(self, record: Record) -> bool:
        return not self._times or record.timestamp >= self._times[-1] + self._step

    def at(self, offset: int) -> int | None:
        """Return the append time of the first record at or after an offset, in milliseconds.

        None if no such record was read yet.
        """
        if offset >= self._end or not self._times:
            return None
        return self._times[max(0, bisect_right(self._offsets, offset) - 1)]

    def forget_before(self, offset: int) -> None:
        """Forget the offsets before this one."""
        kept = max(0, bisect_right(self._offsets, offset) - 1)
        del self._offsets[:kept], self._times[:kept]
        if self._offsets and offset >= self._end:
            # Nothing is needed: the next record is noted with its own time.
            self._offsets, self._times, self._step = [], [], STEP


# Events that belong to no stream of their partition: dead letters, and answers to their registrations.

log = structlog.get_logger(__name__)

RETRY = 1.0
FRESH = 600.0
"""Seconds for which a job may wait for the answer to a registration."""


class UnroutableEvents:
    """Unroutable events of one partition: unknown streams, and events on the wrong partition.

    An event on the wrong partition is lost to its stream until somebody sends its dead letter again. Until
    then, its checkpoint is not sealed, so nothing after it is committed.
    """

    def __init__(self, partition: int, links: Links, letters: Letterbox) -> None:
        self._partition = partition
        self._links = links
        self._letters = letters
        self._first = self._since = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def skip_before(self, offset: int, since: int) -> None:
        """Skip events before the group's offset: they were handled before.

        A previous owner may have logged those before `since`.
        """
        self._first, self._since = offset, since

    def apply(self, record: ConsumerRecord, envelope: Envelope) -> None:
        """Send an event to the dead letters, and refuse a registration."""
        problem = self._problem(envelope.stream, envelope.id)
        self._letters.put(record, problem, envelope.stream)
        fresh = time.time() - record.timestamp / 1000 < FRESH
        if envelope.type is EventType.REGION_REGISTERED and record.offset >= self._first and fresh:
            self._refuse(record, envelope, problem)

    def put(self, record: ConsumerRecord, stream: str) -> None:
        """Send a record to the dead letters that only a newer release can read; nobody here waits for it."""
        self._letters.put(record, self._problem(stream), stream)

    async def stop(self) -> None:
        """Stop sending; the next owner reads the events again."""
        await end(self._tasks)

    def _problem(self, stream: str, event: str | None = None) -> Problem:
        if stream not in self._links.settings.streams:
            return Problem(code=Code.UNKNOWN_STREAM, event=event)
        home = partition_of(stream, self._links.partitions.events)
        return Problem(code=Code.WRONG_PARTITION, number=home, other=self._partition, event=event)

    def _refuse(self, record: ConsumerRecord, envelope: Envelope, problem: Problem) -> None:
        """Refuse a registration, while a driver may wait for the answer.

        The state of the stream is not here, so the answer has no position.
        """
        stream = envelope.stream
        reason = format_problem(problem, stream)
        answer = RegistrationAnswered(
            registration=envelope.id, accepted=False, problem=problem, reason=reason
        )
        # An event that is read again after a restart was logged before.
        tell = log.warning if record.offset >= self._since else log.debug
        tell(
            "registration refused",
            stream=stream,
            region=envelope.region,
            incarnation=envelope.incarnation,
            code=problem.code,
            reason=reason,
        )
        identity = hashlib.sha256(f"{stream}/{problem.code}/{envelope.id}".encode()).hexdigest()[:32]
        found = Notification(
            identity,
            NotificationType.REGISTRATION_ANSWERED,
            stream,
            envelope.region,
            envelope.incarnation,
            answer,
        )
        task = asyncio.create_task(self._answer(found, record.timestamp / 1000 + FRESH))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Notification, until: float) -> None:
        """Send an answer; retry while a job may wait for it."""
        while time.time() < until:
            try:
                await announce(answer, self._links)
            except Exception as error:
                # Nobody else reads the errors of this task.
                trace = None if isinstance(error, KafkaError) else error
                log.warning("refusal not sent yet", stream=answer.stream, error=str(error), exc_info=trace)
                await asyncio.sleep(spread(RETRY))
            else:
                return


class PartitionRunner:
    """Streams of one partition for one assignment epoch. After `stop` it has no effect any more."""

    def __init__(self, number: int, epoch: int, consumer: AIOKafkaConsumer, links: Links) -> None:
        self.number = number
        self.epoch = epoch
        self.source = TopicPartition(links.topics.events, number)
        self.position = 0
        self.started = False
        self.trouble: str | None = None
        """Reason of the last failed start; None if none failed."""
        self.rivals = Rivals(links.settings.kafka.group_id)
        self.skips = Skips()
        self.streams: dict[str, StreamRunner] = {}
        self._consumer = consumer
        self._links = links
        self._decode = links.settings.kafka.signatures(self._count_not_signed).read
        self.letters = links.dead_letters.box(links.topics.events, number)
        self._unroutable = UnroutableEvents(number, links, self.letters)
        self._times = AppendTimes()
        self._stopped = False
        self._released: int | None = None
        kafka = links.settings.kafka
        self.changes = Changes(self, kafka.client_options(), kafka.request_timeout)
        self.holding = Holding(self, self.changes)
        self._changing: set[asyncio.Task[None]] = set()

    def _count_not_signed(self, cause: Cause) -> None:
        self._links.metrics.not_signed.add(1, cause.code)

    # --- assignment -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the state records and seek to the smallest needed offset.

        Raises KafkaError, TimeoutError or OwnedElsewhere; it may be called again then.
        """
        names = list(self.wanted())
        await reach(Failpoint.READ_RECORDS_BEFORE)
        found = await self._read_records(names)
        await reach(Failpoint.READ_RECORDS_AFTER)
        held = await self.range()
        records = {name: each.usable(held.begin) for name, each in found.items()}
        readable = [record for record in records.values() if isinstance(record, StateRecord)]
        events = await last_events(self._links.fetcher, self.number, readable, held)
        committed, note = await committed_with_note(self._consumer, self.source)
        await reach(Failpoint.TAKE_OVER_BEFORE)
        if self._stopped:  # the partition was revoked while the records were read
            return
        self.letters.open(committed or 0, note)
        self._unroutable.skip_before(committed or 0, held.end)
        self._released, settings = committed, self.wanted()
        for name in names:
            if name in settings:
                self.streams[name] = self._make(name, records.get(name), held, events)
        # Unroutable events have no state record, so they are read from the group's offset.
        needed = [runner.reads_from for runner in self.streams.values()]
        unhandled = held.begin if committed is None else committed
        self.position = max(held.begin, min([*needed, unhandled, held.end]))
        self._consumer.seek(self.source, self.position)
        self._consumer.resume(self.source)
        self.started = True
        log.debug(
            "partition assigned", partition=self.number, position=self.position, end=held.end, streams=names
        )
        hit(Failpoint.TAKE_OVER_AFTER)
        self.reached()

    async def _read_records(self, names: Sequence[str]) -> Mapping[str, Held]:
        """Return the streams' state records. Raises KafkaError, TimeoutError or OwnedElsewhere."""
        kafka = self._links.settings.kafka
        found = await read_held(kafka, self._links.partitions.state, names)
        wrote = {name: each.group for name, each in found.items()}
        await refuse_other_groups(kafka.client_options(), kafka.group_id, wrote)
        return found

    def _make(
        self, name: str, known: StateRecord | Problem | None, held: LogRange, events: Mapping[int, str | None]
    ) -> StreamRunner:
        wanted = self._links.settings.streams[name]
        record = StateRecord(stream=name, applied=-1, low_water=held.begin, state=LogState())
        problem = known if isinstance(known, Problem) else None
        if isinstance(known, StateRecord):
            record = known
            problem = obstacle(record, Home(self.number, wanted.commit_user), held, events)
        machine = StreamMachine(name, self.number, record, self._machine_settings(wanted))
        if problem is not None:
            machine.block(problem, held.end, keep_record=isinstance(known, Problem))
        return StreamRunner(machine, wanted, self._links, self, held.end, record)

    def _machine_settings(self, wanted: StreamSettings) -> MachineSettings:
        settings = self._links.settings
        return MachineSettings(
            policy=wanted.policy(),
            commit_interval=round(wanted.commit_interval * 1000),
            commit_max_files=wanted.commit_max_files,
            commit_max_bytes=wanted.commit_max_bytes,
            head_interval=max(1, round(settings.table_check_interval * 1000)),
            record_interval=round(settings.state_record_interval * 1000),
            stall_after=round(settings.stall_after * 1000),
            alignment_timeout=max(1, round(wanted.alignment_timeout * 1000)),
            alignment_timeouts={
                name: max(1, round(own * 1000)) for name, own in wanted.alignment_timeouts.items()
            },
            silence=max(1, round(wanted.silence * 1000)),
            max_position_age=max(1, round(wanted.max_position_age * 1000)),
        )

    async def stop(self, grace: float, *, last_record: bool = False) -> None:
        """End the streams' work, with up to `grace` seconds for running effects."""
        self._stopped = True
        await self.holding.stop()
        await end(self._changing)
        await self._unroutable.stop()
        await self._links.dead_letters.close(self.letters)
        await asyncio.gather(*(runner.stop(grace) for runner in self.streams.values()))
        if last_record and self.started:
            for runner in self.streams.values():
                await runner.write_last_record()
            with suppress(KafkaError):
                await self._release()
        for name in self.streams:
            self.forget(name)
        self._links.metrics.forget_partition(self.number)

    # --- records ----------------------------------------------------------------------------------

    def check_position(self, position: int) -> None:
        """Raise NotContiguous unless the consumer reads on from the position of the partition."""
        if self.started and not self._stopped and position != self.position:
            raise NotContiguous(self.source, self.position, position)

    def check_order(self, begin: int, records: Sequence[ConsumerRecord], end: int) -> None:
        """Raise NotContiguous unless these records are between `begin` and `end`."""
        if end < begin:
            raise NotContiguous(self.source, begin, end)
        if records and records[0].offset < begin:
            raise NotContiguous(self.source, begin, records[0].offset)
        if records and records[-1].offset >= end:
            raise NotContiguous(self.source, end, records[-1].offset)

    def take(self, records: Sequence[ConsumerRecord], end: int) -> None:
        """Pass the records between the position of the partition and `end` to their streams, in order.

        There may be none: offsets of transaction markers have no record. Raises NotContiguous.
        """
        if not self.started or self._stopped or (not records and end == self.position):
            return
        self.check_order(self.position, records, end)
        if records:
            hit(Failpoint.BATCH_BEFORE)
        counts = Counter(map(self._route, records))
        self.position = end
        self._times.saw(records)
        for event_type, count in counts.items():
            if event_type is not None:
                self._links.metrics.events.add(count, event_type)
        if records:
            hit(Failpoint.BATCH_AFTER)
        self.reached()

    def _route(self, record: ConsumerRecord) -> EventType | None:
        """Pass one record to its stream; return the type of its event, if it is one."""
        read, flaw = self._decode(record.offset, record.timestamp, record.headers, record.value)
        if read is None:
            if flaw is not None:
                self._flawed(record, flaw)
            return None
        envelope = read.envelope
        runner = self.streams.get(envelope.stream)
        if runner is not None:
            runner.deliver(record, read, flaw)
            self.holding.saw(runner, record.timestamp)
        elif not self._is_home(envelope.stream) and not is_note(read.body):
            self._unroutable.apply(record, envelope)
        # Otherwise the stream is joining: it reads this record with its own consumer.
        return envelope.type

    def _flawed(self, record: ConsumerRecord, flaw: Flaw) -> None:
        stream = flaw.stream or ""
        runner = self.streams.get(stream)
        if not flaw.stalls:
            self.letters.put(record, flaw.problem, flaw.stream)
        elif runner is not None:
            runner.unreadable(record, flaw.problem)
        elif not self._is_home(stream):
            self._unroutable.put(record, stream)

    def feed(self, runner: StreamRunner, record: ConsumerRecord) -> bool:
        """Pass a record to a joining stream. Return False for one of another stream, which is ignored."""
        read, flaw = self._decode(record.offset, record.timestamp, record.headers, record.value)
        if read is not None:
            if read.envelope.stream == runner.stream:
                runner.deliver(record, read, flaw)
            return read.envelope.stream == runner.stream
        if flaw is not None and flaw.stalls and flaw.stream == runner.stream:
            runner.unreadable(record, flaw.problem)
        return flaw is not None and flaw.stream == runner.stream

    def put_aside(self, record: ConsumerRecord) -> None:
        """Send a record that cannot be decoded to the dead letters."""
        if self.started and not self._stopped:
            self.letters.put(record, Problem(code=Code.UNDECODABLE, number=record.offset), None)

    def reached(self) -> None:
        """Pass the position of the partition to all streams, and start the effects that it makes due."""
        for runner in self.streams.values():
            runner.machine.reached(self.position)
            if is_due(runner):
                runner.pump()

    def pump(self) -> None:
        """Let every stream start its due effects."""
        for runner in self.streams.values():
            runner.pump()

    async def tick(self, turn: int) -> None:
        """Let streams start the effects that time makes due, and report their conditions."""
        turns = quiet_turns(len(self.streams))
        async for number, runner in in_pieces(list(enumerate(self.streams.values())), pause=PAUSE):
            due = (turn + number) % turns == 0 or not is_quiet(runner)
            if due and not runner.closed:
                runner.tick()
        for runner in self.holding.runners.values():
            runner.report()
        if not self._changing and any(each.reads_again for each in self.streams.values()):
            self.change()

    async def refuse(self) -> None:
        """Stall every stream of the partition: its log cannot be read further. Raises KafkaError."""
        begin, end = await self.range()
        problem = (
            deleted(self.position, begin)
            if self.position < begin
            else lacking(self.position, Cause(code=CauseCode.LOG_END_LOST, number=end))
        )
        for runner in self.streams.values():
            runner.machine.block(problem, self.position)
        self.pump()

    # --- streams ----------------------------------------------------------------------------------

    def change(self) -> None:
        """Let streams leave and join, to match the settings in force."""
        if self.started and not self._stopped:
            task = asyncio.create_task(self.changes.apply(), name=f"changes/{self.number}")
            self._changing.add(task)
            task.add_done_callback(self._changed)

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("streams not changed", partition=self.number, exc_info=error)

    async def prepare(self, names: list[str]) -> list[StreamRunner]:
        """Make streams from their records. Raises KafkaError, TimeoutError or OwnedElsewhere."""
        found = await self._read_records(names)
        held = await self.range()
        records = {name: each.usable(held.begin) for name, each in found.items()}
        readable = [record for record in records.values() if isinstance(record, StateRecord)]
        events = await last_events(self._links.fetcher, self.number, readable, held)
        settings = self.wanted()
        return [self._make(name, records.get(name), held, events) for name in names if name in settings]

    def forget(self, name: str) -> None:
        """Remove the metrics of a stream."""
        self._links.metrics.forget_stream(name)

    def wanted(self) -> dict[str, StreamSettings]:
        """Return the streams that the settings have for this partition."""
        return {name: each for name, each in self._links.settings.streams.items() if self._is_home(name)}

    def _is_home(self, stream: str) -> bool:
        settings, partitions = self._links.settings, self._links.partitions
        return stream in settings.streams and partition_of(stream, partitions.events) == self.number

    # --- offsets ----------------------------------------------------------------------------------

    async def measure(self, now_ms: int) -> None:
        """Update the gauges."""
        metrics = self._links.metrics
        highwater = self._consumer.highwater(self.source)
        if highwater is not None:
            metrics.lag.set(max(0, highwater - self.position), str(self.number))
        needed = self.first_needed()
        metrics.position.set(self.position, str(self.number))
        metrics.low_water.set(needed, str(self.number))
        self._times.forget_before(needed)
        async for runner in in_pieces(list(self.streams.values()), pause=PAUSE):
            if not runner.closed:
                oldest = self._times.at(runner.recorded_low_water)
                metrics.oldest_needed.set(None if oldest is None else oldest / 1000, runner.stream)
                runner.measure(now_ms)

    def offsets(self) -> dict[str, int | None]:
        """Return the end offset, the group's offset and the records that a restart reads; None if unknown."""
        end = self._consumer.highwater(self.source)
        group = self._released
        return {
            "partition": self.number,
            "end_offset": end,
            "group_offset": group,
            "read_by_restart": None if end is None else end - min(group or 0, end),
        }

    def first_needed(self) -> int:
        """Return the smallest offset that a recovery of the partition needs.

        A stream needs everything from the low-water mark of its newest record that is acknowledged.
        """
        recorded = [runner.recorded_low_water for runner in self.streams.values()]
        first = self.letters.first_waiting()
        waiting = [] if first is None else [first]
        return min([self.position, *recorded, *waiting, *self.changes.joining.values()])

    async def end_offset(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        return await self._links.ends.of(self.source)

    async def range(self) -> LogRange:
        """Return the offsets of the log. Raises KafkaError."""
        begins = await self._consumer.beginning_offsets([self.source])
        return LogRange(begins[self.source], await self.end_offset())

    async def first_since(self, time_ms: int) -> int | None:
        """Return the first offset with an append time at or after this; None if there is none.

        Raises KafkaError.
        """
        found = await self._consumer.offsets_for_times({self.source: time_ms})
        return found[self.source].offset if found[self.source] is not None else None

    async def release_offsets(self) -> None:
        """Commit the smallest offset that any stream of the partition needs. Raises KafkaError."""
        if self.started and not self._stopped:
            await self._release()

    async def _release(self) -> None:
        # Never move back: unroutable events before the released offset are already handled.
        if (offset := self.first_needed()) > (-1 if self._released is None else self._released):
            await self._consumer.commit({self.source: (offset, self.letters.note(offset))})
            self._released = offset
            self.letters.released(offset)

    # --- health -----------------------------------------------------------------------------------

    def hindrances(self) -> Iterator[str]:
        """Yield the reasons why the partition and its streams make no progress."""
        if not self.started:
            why = f" ({self.trouble})" if self.trouble else ""
            yield f"partition {self.number}: its state records are not read yet{why}"
        # A stream that reads at its limit hinders no other one.
        for name in self.changes.joining.keys() - self.changes.held:
            why = f" ({self.changes.trouble})" if self.changes.trouble else ""
            yield f"stream {name}: its log is being read, since the settings were reloaded{why}"
        if other := self.rivals.seen:
            yield f"partition {self.number}: the group {other} decides for its streams, too"
        for runner in self.streams.values():
            yield from runner.hindrances()

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the view of each stream as JSON values, with the offsets of its partition."""
        offsets = self.offsets()
        return {
            name: {**offsets, "ready": runner.machine.ready, **runner.view().model_dump(mode="json")}
            for name, runner in self.shown().items()
        }

    def shown(self) -> dict[str, StreamRunner]:
        """Return the streams, and those that are read at their limit."""
        return {**self.holding.runners, **self.streams}
