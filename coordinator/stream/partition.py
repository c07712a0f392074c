"""One assigned partition of the events topic: its streams, and the routing of its records."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.gauges import oldest_uncut, oldest_unsealed, pending_files
from sluicegate.coordinator.core.ignoring import rule_of
from sluicegate.coordinator.core.intake import VOID
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.owing import joined
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.ownership import Rivals, refuse_other_groups
from sluicegate.coordinator.records import UnreadableRecord, read_held
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.continuity import (
    Home,
    LogRange,
    committed_with_note,
    deleted,
    failed_at,
    last_events,
    newer,
    obstacle,
)
from sluicegate.coordinator.stream.joining import Changes
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.stream.unroutable import StrayEvents
from sluicegate.coordinator.tasks import end
from sluicegate.coordinator.telemetry.lineages import (
    not_live,
    not_live_then,
    tell_acceptance,
    tell_replacement,
    undecided,
)
from sluicegate.events.codec import BadBody, read_body, read_envelope
from sluicegate.events.dead_letters import LetterCode
from sluicegate.events.envelope import Envelope, EventType, Poison
from sluicegate.events.models import Body
from sluicegate.events.partitioning import partition_of
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit, reach
from sluicegate.kafka.fetching import UNREADABLE_NAME

log = structlog.get_logger(__name__)

Known = StateRecord | UnreadableRecord


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
        self.streams: dict[str, StreamRunner] = {}
        self._consumer = consumer
        self._links = links
        self.letters = links.dead_letters.box(links.topics.events, number)
        self._stray = StrayEvents(number, links, self.letters)
        self._stopped = False
        self._released: int | None = None
        kafka = links.settings.kafka
        self.changes = Changes(self, kafka.client_options(), kafka.request_timeout)
        self._changing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Read the state records and seek to the smallest needed offset.

        Raises KafkaError, TimeoutError or OwnedElsewhere; it may be called again then.
        """
        names = list(self.wanted())
        await reach(Failpoint.READ_RECORDS_BEFORE)
        records = await self._read_records(names)
        await reach(Failpoint.READ_RECORDS_AFTER)
        held = await self._range()
        readable = [record for record in records.values() if isinstance(record, StateRecord)]
        events = await last_events(self._links.fetcher, self.number, readable, held)
        committed, note = await committed_with_note(self._consumer, self.source)
        await reach(Failpoint.TAKE_OVER_BEFORE)
        if self._stopped:  # the partition was revoked while the records were read
            return
        self.letters.open(committed or 0, note)
        self._stray.skip_before(committed or 0, held.end)
        self._released, settings = committed, self.wanted()
        for name in names:
            if name in settings:
                self.streams[name] = self._make(name, records.get(name), held, events)
        # Unroutable events have no state record, so they are read from the group's offset.
        needed = [runner.machine.low_water for runner in self.streams.values()]
        strays = held.begin if committed is None else committed
        self.position = max(held.begin, min([*needed, strays, held.end]))
        self._consumer.seek(self.source, self.position)
        self._consumer.resume(self.source)
        self.started = True
        log.debug(
            "partition assigned", partition=self.number, position=self.position, end=held.end, streams=names
        )
        hit(Failpoint.TAKE_OVER_AFTER)
        self.reached()

    async def _read_records(self, names: Sequence[str]) -> Mapping[str, Known]:
        """Return the streams' state records. Raises KafkaError, TimeoutError or OwnedElsewhere."""
        kafka = self._links.settings.kafka
        options, count = kafka.client_options(), self._links.partitions.state
        found = await read_held(self._links.topics.state, count, options, names, kafka.request_timeout)
        wrote = {name: each.group for name, each in found.items()}
        await refuse_other_groups(options, kafka.group_id, wrote)
        return {name: each.record for name, each in found.items()}

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

    async def stop(self, grace: float, *, last_record: bool = False) -> None:
        """End the streams' work, with up to `grace` seconds for running effects."""
        self._stopped = True
        await end(self._changing)
        await self._stray.stop()
        await self._links.dead_letters.close(self.letters)
        await asyncio.gather(*(runner.stop(grace) for runner in self.streams.values()))
        if last_record and self.started:
            for runner in self.streams.values():
                await runner.write_last_record()
            with suppress(KafkaError):
                await self._release()
        for name in self.streams:
            self._links.metrics.forget_stream(name)
        self._links.metrics.forget_partition(self.number)

    def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Pass records of the log to their streams, in order."""
        if not self.started or self._stopped:
            return
        hit(Failpoint.BATCH_BEFORE)
        counts: Counter[EventType] = Counter()
        for record in records:
            envelope = read_envelope(record.headers)
            if isinstance(envelope, Poison):
                self._poison(record, envelope)
                continue
            counts[envelope.type] += 1
            runner = self.streams.get(envelope.stream)
            if runner is not None:
                self._take_in(runner, record, envelope)
            elif not self._is_home(envelope.stream):
                self._stray.take(record, envelope)
            # Otherwise the stream is joining: it reads this record with its own consumer.
        self.position = records[-1].offset + 1
        for event_type, count in counts.items():
            self._links.metrics.events_read(event_type, count)
        hit(Failpoint.BATCH_AFTER)
        self.reached()

    async def prepare(self, names: list[str]) -> list[StreamRunner]:
        """Make streams from their records. Raises KafkaError, TimeoutError or OwnedElsewhere."""
        records = await self._read_records(names)
        held = await self._range()
        readable = [record for record in records.values() if isinstance(record, StateRecord)]
        events = await last_events(self._links.fetcher, self.number, readable, held)
        settings = self.wanted()
        return [self._make(name, records.get(name), held, events) for name in names if name in settings]

    def feed(self, runner: StreamRunner, record: ConsumerRecord) -> None:
        """Pass a record to a stream; records of other streams are ignored."""
        envelope = read_envelope(record.headers)
        if envelope.stream == runner.stream:
            if not isinstance(envelope, Poison):
                self._take_in(runner, record, envelope)
            elif envelope.newer_version:
                runner.machine.unreadable(record.offset, newer(record.offset, self.number, envelope.reason))

    def forget(self, name: str) -> None:
        """Remove the metrics of a stream."""
        self._links.metrics.forget_stream(name)

    def put_aside(self, record: ConsumerRecord) -> None:
        """Send a record that cannot be decoded to the dead letters."""
        if self.started and not self._stopped:
            reason = f"offset {record.offset}: {UNREADABLE_NAME}"
            self.letters.put(record, LetterCode.UNDECODABLE, reason)

    def passed(self, position: int) -> None:
        """Note that no further record precedes this offset."""
        if self.started and not self._stopped and position > self.position:
            self.position = position
            self.reached()

    def reached(self) -> None:
        """Pass the position of the partition to all streams, and start their effects."""
        for runner in self.streams.values():
            runner.machine.reached(self.position)
        self.pump()

    def pump(self) -> None:
        """Let every stream start its due effects."""
        for runner in self.streams.values():
            runner.pump()

    async def refuse(self) -> None:
        """Stall every stream of the partition: its log cannot be read further. Raises KafkaError."""
        begin, end = await self._range()
        reason = (
            deleted(self.position, begin)
            if self.position < begin
            else f"offset {self.position} was reached, but the log ends at {end}: a broker lost its end, or "
            "the events topic was made anew. Put it back, or restart the coordinator if it is whole"
        )
        for runner in self.streams.values():
            runner.machine.unreadable(max(self.position, runner.machine.book.applied + 1), reason)
        self.pump()

    def measure(self, now_ms: int) -> None:
        """Update the gauges."""
        metrics = self._links.metrics
        highwater = self._consumer.highwater(self.source)
        if highwater is not None:
            metrics.lag(self.number, max(0, highwater - self.position))
        metrics.offsets(self.number, self.position, self.low_water())
        for name, runner in self.streams.items():
            book = runner.machine.book
            oldest = oldest_unsealed(book)
            age = 0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1000)
            metrics.pending(name, pending_files(book), age)
            sealed = oldest_uncut(book)
            metrics.uncut(name, 0.0 if sealed is None else max(0.0, (now_ms - sealed) / 1000))
            machine = runner.machine
            failing = [f"{each.effect} fails: {each.reason}" for each in machine.retries]
            runner.waiting.look(book, now_ms, machine.stall_reason, machine.paused, *failing)
            metrics.paused(name, machine.paused is not None)
            metrics.stalled(name, runner.machine.stall_reason is not None)
            counts = {region: state.fallbacks for region, state in book.state.regions.items()}
            metrics.regions(name, counts, machine.heard, joined=joined(book) is not None)

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

    def low_water(self) -> int:
        """Return the smallest offset that a recovery of the partition needs."""
        waiting = (self.letters.first_waiting(), self._stray.first_untold(), *self.changes.joining.values())
        return min([self.position, *self._needed(), *(offset for offset in waiting if offset is not None)])

    async def end_offset(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        return await self._links.ends.of(self.source)

    async def _range(self) -> LogRange:
        begins = await self._consumer.beginning_offsets([self.source])
        return LogRange(begins[self.source], await self.end_offset())

    async def release_offsets(self) -> None:
        """Commit the smallest offset that any stream of the partition needs. Raises KafkaError."""
        if self.started and not self._stopped:
            await self._release()

    async def _release(self) -> None:
        # Never move back: unroutable events before the released offset are already handled.
        if (offset := self.low_water()) > (-1 if self._released is None else self._released):
            await self._consumer.commit({self.source: (offset, self.letters.note(offset))})
            self._released = offset
            self.letters.released(offset)

    def _needed(self) -> Iterable[int]:
        for runner in self.streams.values():
            yield runner.machine.book.low_water(runner.machine.position)

    def _is_home(self, stream: str) -> bool:
        settings, partitions = self._links.settings, self._links.partitions
        return stream in settings.streams and partition_of(stream, partitions.events) == self.number

    def wanted(self) -> dict[str, StreamSettings]:
        """Return the streams that the settings have for this partition."""
        return {name: each for name, each in self._links.settings.streams.items() if self._is_home(name)}

    def _make(
        self, name: str, record: Known | None, held: LogRange, events: Mapping[int, str | None]
    ) -> StreamRunner:
        settings = self._links.settings
        wanted = settings.streams[name]
        readable = record if isinstance(record, StateRecord) else None
        machine = StreamMachine(
            name,
            self.number,
            readable,
            MachineSettings(
                policy=wanted.policy(),
                probe_interval=max(1, round(settings.table_check_interval * 1000)),
                record_interval=round(settings.state_record_interval * 1000),
                carry_after=round(settings.kafka.carry_after * 1000),
                stall_after=round(settings.stall_after * 1000),
                alignment_timeout=max(1, round(wanted.alignment_timeout * 1000)),
            ),
        )
        if readable is None:
            machine.low_water = held.begin
        elif problem := obstacle(readable, Home(self.number, wanted.commit_user), held, events):
            machine.lost(problem, held.end)
        if isinstance(record, UnreadableRecord):
            machine.lost(str(record), held.end, keep_record=True)
        return StreamRunner(machine, wanted, self._links, self, held.end, readable)

    def _take_in(self, runner: StreamRunner, record: ConsumerRecord, envelope: Envelope) -> None:
        """Pass a record to its stream; an exception of the core stalls this stream and no other."""
        try:
            if envelope.type is not EventType.FILES_WRITTEN:
                self._control(runner, record)
            elif runner.machine.arrived(record.offset, record.timestamp, envelope, None) is None:
                runner.bodies.keep(record.offset, envelope, record.value or b"")
        except Exception as error:
            log.exception("record not taken in", stream=runner.stream, offset=record.offset)
            # The state may be half changed, so it is never recorded, and nothing is decided from it.
            runner.machine.lost(failed_at(record.offset, error), record.offset, keep_record=True)

    def _control(self, runner: StreamRunner, record: ConsumerRecord) -> None:
        envelope = read_envelope(record.headers)
        if isinstance(envelope, Poison):
            return
        try:
            body = read_body(envelope.type, record.value)
        except BadBody as error:
            self.letters.put(record, LetterCode.MALFORMED_BODY, str(error))
            runner.machine.garbled(record.offset, record.timestamp, envelope, str(error))
            return
        fresh = record.offset > runner.machine.book.applied
        if envelope.type is EventType.REGION_OPENED and record.offset < runner.since:
            runner.news.known_openings.add(envelope.id)
        if envelope.type is EventType.CUT_DECIDED and record.offset >= runner.since:
            self.rivals.look(runner.stream, record)
        ignored = self._hand_in(runner, record, envelope, body)
        if ignored is None:
            return
        if envelope.type is EventType.CHECKPOINT_COMPLETED:
            # On a second read too: the letter of the first read may not be acknowledged.
            book = runner.machine.book
            problem = not_live(book, envelope) if fresh else not_live_then(book, envelope, record.offset)
            if problem is not None:
                self.letters.put(record, LetterCode.LINEAGE_NOT_LIVE, problem)
        refused = ignored.startswith(VOID) or envelope.type is EventType.REGION_OPENED
        if refused and record.offset > runner.machine.low_water:
            self._links.metrics.refused(runner.stream, VOID if ignored.startswith(VOID) else "opening")
        if envelope.type is EventType.REGION_OPENED:
            # The answer to the opening is logged, with the full reason.
            return
        tell = log.info if fresh else log.debug
        place = {"stream": runner.stream, "type": envelope.type, "offset": record.offset}
        tell("no effect", **place, rule=rule_of(envelope.type, ignored), reason=ignored)

    def _hand_in(
        self, runner: StreamRunner, record: ConsumerRecord, envelope: Envelope, body: Body
    ) -> str | None:
        """Pass a control event to its stream, and log its effect on the region's lineages."""
        book = runner.machine.book
        fresh = record.offset > book.applied
        if not fresh or envelope.type not in (EventType.REGION_OPENED, EventType.STREAM_COMMAND):
            return runner.machine.arrived(record.offset, record.timestamp, envelope, body)
        region = book.state.regions.get(envelope.region)
        lived, before = region.live if region else None, undecided(book, envelope.region)
        ignored = runner.machine.arrived(record.offset, record.timestamp, envelope, body)
        if ignored is None:
            tell_acceptance(book, body)
        if ignored is None and lived is not None and lived != envelope.lineage:
            tell_replacement(book, envelope, body, before)
        return ignored

    def _poison(self, record: ConsumerRecord, poison: Poison) -> None:
        runner = self.streams.get(poison.stream or "")
        if poison.newer_version and runner is not None:
            runner.machine.unreadable(record.offset, newer(record.offset, self.number, poison.reason))
        elif not poison.newer_version or not self._is_home(poison.stream or ""):
            self.letters.put(record, poison.flaw, poison.reason)
