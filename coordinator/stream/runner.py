"""One stream of an assigned partition: its records go to the core, and the effects of the core are run."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Ask,
    CheckFiles,
    Done,
    Effect,
    EndOffset,
    Failed,
    FetchEnd,
    InspectTable,
    Publish,
    ReleaseOffsets,
    Result,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.observe.view import committed_decision, view_of
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.appends import UNSENDABLE, StreamAppender
from sluicegate.coordinator.stream.failpoints import around_last_record, between_failpoints
from sluicegate.coordinator.stream.files import StreamFiles
from sluicegate.coordinator.stream.links import Links, LogPartition
from sluicegate.coordinator.stream.outcomes import outcomes_after
from sluicegate.coordinator.stream.state_records import release_named
from sluicegate.coordinator.stream.summary import Summaries
from sluicegate.coordinator.stream.table_watch import TableWatch
from sluicegate.coordinator.stream.telemetry import StreamTelemetry, Traces, log_order, name_of
from sluicegate.coordinator.stream.views import is_another, write_view
from sluicegate.coordinator.tasks import end
from sluicegate.events.codec import Flaw
from sluicegate.events.envelope import FILES_WRITTEN, EventType, LogRecord
from sluicegate.events.orders import digest_of, skipped_record
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.kafka.reading import NotContiguous
from sluicegate.lakes.port import Found, OutcomeUnknown, Published, TableState
from sluicegate.state_store import ListenerView, StateStore, StateStoreUnavailable, StreamView

log = structlog.get_logger(__name__)

PATIENCE: Final = 3.0
"""Seconds that an effect may fail before the service is unready: conflicts and new leaders are short."""


class StreamRunner:
    """Runs the effects of one machine and returns their results, for one assignment."""

    last_view: StateRecord | None = None
    touched = True
    """True if a record has arrived since the core was polled."""
    reads_again = False
    """True if an order skips the record at which the stream stalls: the log is read again, without it."""

    def __init__(
        self,
        machine: StreamMachine,
        settings: StreamSettings,
        links: Links,
        partition: LogPartition,
        since: int,
        record: StateRecord,
    ) -> None:
        """Make a runner.

        `since` is the end of the log when this process got the stream; earlier events are no news. `record`
        is the state record that the machine started from; it names the stream's commit user.
        """
        self.since = since
        self.machine = machine
        self.stream = record.stream
        self.recorded_low_water = record.low_water
        """Low-water mark of the newest record that is acknowledged: a recovery reads from there."""
        committed = committed_decision(record.state)
        self.outcomes = outcomes_after(committed, record.due, keeps=bool(settings.listeners))
        self.telemetry = StreamTelemetry(self.stream, links.metrics, machine.outbox.due)
        self.settings = settings
        self._recorded_user = record.commit_user or settings.commit_user
        """Commit user of later records: that of the first record, independent of the settings."""
        self._links = links
        self._partition = partition
        self._kafka = StreamAppender(self.stream, partition.number, links)
        self._files = StreamFiles(settings, links, partition)
        self._files.table.doubted = dict(machine.table.doubted)
        self._tables = TableWatch(self._files.table, links.settings.table_check_interval)
        self._warnings: dict[str, tuple[Condition, ...]] = {}
        """Conditions that others than the core found, by who found them."""
        self._summaries = Summaries(settings.table)
        self._traces = Traces(self.stream, links.spans)
        self.running: set[asyncio.Task[None]] = set()
        self.closed = False
        self._unreadable: tuple[int, str] | None = None
        """Offset and digest of the record at which the stream stalls, since only a newer release reads it."""
        self._next = 0
        """The smallest offset that the next record may have."""
        self._outcomes_count = True
        self._log = log.bind(stream=self.stream)
        self._failure: Exception | None = None
        """Error in handling a result: this process must stop working on the stream."""

    @property
    def reads_from(self) -> int:
        """Return the offset from which this process reads the stream's log."""
        return self.machine.low_water

    # --- records ----------------------------------------------------------------------------------

    def deliver(self, record: ConsumerRecord, read: LogRecord, flaw: Flaw | None) -> None:
        """Pass a record to the core, with the flaw of its body, if it has one.

        An exception of the core stalls this stream and no other. Raises NotContiguous for a record that is
        not after the last one: two readers would have delivered it.
        """
        if record.offset < self._next:
            source = TopicPartition(record.topic, record.partition)
            raise NotContiguous(source, self._next, record.offset)
        self._next = record.offset + 1
        self.touched = True
        try:
            if read.envelope.type is not FILES_WRITTEN:
                self._deliver_control(record, read, flaw.problem if flaw else None)
            elif self.machine.step(read).ignored is None:
                self._files.arrived(record.offset, read.envelope, record.value or b"")
        except Exception as error:
            self._log.exception("record not applied", offset=record.offset)
            # The state may be half changed, so it is never recorded, and nothing is decided from it.
            # It is a defect of this release.
            failed = Problem(
                code=Code.RECORD_UNREADABLE,
                number=record.offset,
                cause=Cause(code=CauseCode.RELEASE_FAILED),
                detail=f"{type(error).__name__}: {error}",
            )
            self.machine.block(failed, record.offset, keep_record=True)

    def unreadable(self, record: ConsumerRecord, problem: Problem) -> None:
        """Stall at a record that only a newer release can read, unless an order skips it.

        It stalls nothing if the state has its effect already.
        """
        offset, headers = record.offset, record.headers
        digest = digest_of(record.key, headers, record.value)
        self.touched = True
        if offset <= self.machine.replica.applied or self._partition.skips.name(self.stream, offset, digest):
            self._skip(skipped_record(offset, record.timestamp, headers, digest))
            return
        self._unreadable = self._unreadable or (offset, digest)
        by_release = problem.model_copy(update={"names": release_named(headers)})
        self.machine.block(by_release, offset)

    def _skip(self, record: LogRecord) -> None:
        fresh = record.offset > self.machine.replica.applied
        ignored = self.machine.step(record).ignored
        if fresh and ignored is not None and ignored.code is Code.RECORD_SKIPPED:
            self._log.warning("record skipped", offset=record.offset, region=record.envelope.region)

    def _deliver_control(self, record: ConsumerRecord, read: LogRecord, malformed: Problem | None) -> None:
        """Pass an event other than `files.written` to the core, with its dead letters, logs and counts."""
        envelope, replica, letters = read.envelope, self.machine.replica, self._partition.letters
        if malformed is not None:
            letters.put(record, malformed, self.stream)
        if self._partition.skips.note(read) and self._unreadable is not None:
            self.reads_again = self._partition.skips.name(self.stream, *self._unreadable)
        if envelope.type is EventType.CUT_DECIDED:
            self._summaries.decided(read)
            if record.offset >= self.since:
                self._partition.rivals.look(self.stream, record)
        fresh = record.offset > replica.applied
        ignored = self.machine.step(read).ignored
        if envelope.writer and ignored is None and malformed is None:
            self._files.arrived(record.offset, envelope, record.value or b"")
        if envelope.type is EventType.CHECKPOINT_COMPLETED:
            self._traces.arrived(envelope, record.headers)
            letters.put_late(record, envelope, replica.state if not fresh else None, ignored)
        if fresh:
            self.telemetry.applied(read, ignored, inherited=record.offset < self.since)
            log_order(read, record, self._kafka.signatures, ignored)

    # --- effects ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start the effects that the core requests.

        Raises the error of a result that could not be handled.
        """
        if self._failure is not None:
            raise self._failure
        if self.closed:
            return
        self.touched = False
        for effect in self.machine.poll(time.monotonic_ns() // 1_000_000):
            self._keep(asyncio.create_task(self._run(effect), name=f"{self.stream}/{type(effect).__name__}"))
        state = self.machine.replica.state
        # While the log is read from its low-water mark, most of its events are decided already.
        if self.machine.ready and state.policy.number:
            if (task := self._files.start_checks(state.policy)) is not None:
                self._keep(task)
            if self.machine.has_read_all and (task := self._tables.start(state)) is not None:
                self._keep(task)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    def tick(self) -> None:
        """Start the effects that time makes due, and report the conditions."""
        self.pump()
        self.report()

    def report(self) -> None:
        """Log the conditions that began or ended, and set their gauges."""
        self.warn("tables", [*self._tables.conditions(self.machine.replica.state)])
        if self.machine.table.doubted != (doubted := dict(self._files.table.doubted)):
            self.machine.table.doubted = doubted
            self.machine.outbox.note_change()
        self.telemetry.conditions(self.machine.conditions())

    async def stop(self, grace: float) -> None:
        """Start no more effects. Wait up to `grace` seconds for the running ones, then cancel them.

        With a grace the partition is still assigned, so results are applied.
        """
        self.closed = True
        self._files.stop_checks()
        self._outcomes_count = grace > 0
        tasks = list(self.running)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            await end(late)
        self._outcomes_count = False
        # A cancelled effect may still run in a thread that uses the table, so the table stays open.
        if not tasks or not late:
            self._files.table.close()
        self._files.drop_all()

    async def write_last_record(self) -> None:
        """Write a state record at a graceful stop, so that the next owner reads less of the log."""
        # Every batch ends with a poll: while the machine is ready, the record has all answers.
        if self.machine.ready:
            async with around_last_record():
                result = await self._effect(WriteRecord(self.machine.record()))
                if isinstance(result, Failed):
                    self._log.warning("last state record not written", reason=result.reason)

    async def _run(self, effect: Effect) -> None:
        name = name_of(effect)
        self._log.debug("effect", state="started", effect=name)
        try:
            with self._traces.step(effect, self.machine.replica.log) as finish:
                result = await self._effect(effect)
                self._traces.finished(effect, result, finish)
            self.telemetry.effect(effect, result)
            self._log.debug("effect", state="finished", effect=name, result=type(result).__name__)
            self._became_visible(effect, result)
            # A result after the loss of the partition is ignored: the next owner asks the table again.
            if self._outcomes_count:
                self.machine.finished(effect, result)
                self.pump()
        except Exception as error:
            # Nobody awaits this task; the next timer tick raises the error and ends the process.
            self._log.exception("an outcome could not be handled", effect=name)
            self._failure = error

    async def _effect(self, effect: Effect) -> Result:
        return await between_failpoints(effect, self._attempt)

    async def _attempt(self, effect: Effect) -> Result:
        try:
            return await self._perform(effect)
        except (BodyUnavailable, *UNSENDABLE) as error:
            return Failed(cause=error.cause)
        except (KafkaError, TimeoutError, StateStoreUnavailable, OSError) as error:
            return Failed(f"{type(error).__name__}: {error}")
        except Exception as error:
            self._log.exception("effect raised", effect=type(effect).__name__)
            # The commit may be in the table although the call failed.
            if isinstance(effect, Publish):
                return OutcomeUnknown(f"{type(error).__name__}: {error}")
            return Failed(f"{type(error).__name__}: {error}")

    async def _perform(self, effect: Effect) -> Result:
        """Run an effect on the table or the log; other effects follow a commit."""
        match effect:
            case InspectTable():
                found = await self._files.table.inspect(effect)
                if isinstance(found, TableState):
                    self._tables.inspected(found.tables)
                return found
            case Ask():
                self.telemetry.asked(effect)
                return await self._files.table.ask(effect)
            case CheckFiles():
                checked = await self._files.check(effect, self.machine.replica.log)
                self._put_aside()
                return checked
            case Publish():
                return await self._files.publish(effect, self.machine.replica.log)
            case FetchEnd():
                return EndOffset(await self._partition.end_offset())
            case Append():
                current = self.machine.replica.log
                traced = self._traces.headers(effect, current)
                made = await self._summaries.complete(effect, current, self._files.read_bodies)
                return await self._kafka.append(made, traced)
        await self._follow_up(effect)
        return Done()

    async def _follow_up(self, effect: Effect) -> None:
        match effect:
            case WriteRecord(record):
                await self._kafka.record(record.model_copy(update={"commit_user": self._recorded_user}))
                self.recorded_low_water = record.low_water
                self._files.drop_before(record.low_water)
            case Announce(due):
                traced = self._traces.headers(effect, self.machine.replica.log)
                await self._kafka.announce(due, self.outcomes, traced)
                self.telemetry.announced(due)
            case WriteView(record):
                self.last_view = record
                if self._links.store is not None:
                    await write_view(self._links.store, self.view_of(record), self._partition.end_offset)
            case ReleaseOffsets():
                await self._partition.release_offsets()

    def _put_aside(self) -> None:
        """Send unreadable bodies to the dead letters, in addition to excluding their region."""
        for offset, (body, problem) in self._files.table.broken.items():
            self._partition.letters.put_body(offset, body, problem, self.stream)
        self._files.table.broken.clear()

    def _became_visible(self, effect: Effect, result: Result) -> None:
        """Count a commit that became visible, and release the memory of its bodies."""
        log, tally = self.machine.replica.log, self._files.table.tally
        made = log.state.unresolved
        if made is None or not isinstance(effect, Ask | Publish) or not isinstance(result, Published | Found):
            return
        # A revert has another digest, and adds no files to the table.
        if effect.digest != made.digest:
            return
        if isinstance(effect, Ask) and made.tables.keys() - result.tables.keys() - effect.left_out:
            # Its files are still needed: a further table lacks them.
            return
        self._files.drop(made.parts)
        self._summaries.seen(made.id, tally)
        if tally is not None and tally.decision == made.id:
            self.telemetry.committed(log, made, tally.rows, tally.size)
        else:
            # A previous owner published it, and counted it in its metrics.
            self.telemetry.settled()

    # --- health -----------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """True if the log is read at a limit, which lasts."""
        return bool(self._warnings.get("limit"))

    def warn(self, finder: str, conditions: Sequence[Condition]) -> None:
        """Set the conditions that somebody else than the core found."""
        self._warnings[finder] = tuple(conditions)
        self.machine.warnings = [each for found in self._warnings.values() for each in found]

    def measure(self, now_ms: int) -> None:
        """Update the gauges."""
        machine = self.machine
        self._links.metrics.owner(self.stream, self.settings.owner)
        self.telemetry.measure(machine.replica.log, machine.activity.heard, machine.conditions(), now_ms)

    def hindrances(self) -> Iterator[str]:
        """Yield the reasons why effects make no progress; other stalls are reported elsewhere."""
        failing = self.telemetry.failing(PATIENCE)
        for each in self.machine.conditions():
            retried = each.problem.code is Code.RETRYING
            if retried and (each.kind == "stall" or each.problem.names[0] in failing):
                yield format_problem(each.problem, self.stream)

    def view(self) -> StreamView:
        """Return the state as of now."""
        return self.view_of(self.machine.record())

    async def renew_view(self, store: StateStore) -> None:
        """Write the last view again if the store has another one, or none."""
        record = self.last_view
        if record is not None:
            with suppress(StateStoreUnavailable, KafkaError, TimeoutError):
                if await is_another(store, record):
                    await write_view(store, self.view_of(record), self._partition.end_offset)

    def view_of(self, record: StateRecord) -> StreamView:
        """Return the view that a record of the stream gives."""
        return view_of(record, self.settings, time.time_ns() // 1_000_000, self.listener_views())

    def listener_views(self) -> Mapping[str, ListenerView]:
        """Return the state of the listeners."""
        return self.outcomes.views(committed_decision(self.machine.replica.state))
