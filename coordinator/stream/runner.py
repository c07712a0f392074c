"""One stream of an assigned partition: its records go to the core, and the effects of the core are run."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

import structlog
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.account import account_of
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
    FilesChecked,
    InspectTable,
    Publish,
    ReleaseOffsets,
    Result,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import Condition, RecordTooLarge, StateRecord, release_named
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.observe.view import committed_decision, overview, view_of
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.continuity import failed_at
from sluicegate.coordinator.stream.limits import Limits, fit, narrowed
from sluicegate.coordinator.stream.links import Links, LogPartition
from sluicegate.coordinator.stream.log import StreamLog
from sluicegate.coordinator.stream.outcomes import outcomes_after
from sluicegate.coordinator.stream.prechecks import EarlyChecks, Known, Terms
from sluicegate.coordinator.stream.summary import CheckpointHistory, Summaries
from sluicegate.coordinator.stream.table import StreamTable, Supply
from sluicegate.coordinator.stream.telemetry import StreamTelemetry, Traces, log_order, name_of
from sluicegate.coordinator.stream.views import write_view
from sluicegate.coordinator.tasks import end
from sluicegate.events.codec import Flaw
from sluicegate.events.encoding import Unencodable
from sluicegate.events.envelope import FILES_WRITTEN, Envelope, EventType, LogRecord
from sluicegate.events.orders import digest_of, skipped_record
from sluicegate.events.problems import Code, Problem
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import InjectedFailure, reach
from sluicegate.kafka.bodies import Bodies, BodyUnavailable, WrittenEvent
from sluicegate.kafka.producer import MessageTooLarge
from sluicegate.kafka.reading import NotContiguous
from sluicegate.lakes.port import Found, OutcomeUnknown, Published
from sluicegate.state_store import ListenerView, StateStoreUnavailable

# Late completions: whether the incarnation of an event was live when it arrived.


def was_not_live(state: LogState, envelope: Envelope, offset: int) -> bool:
    """True if the incarnation of an event was not live at its offset, which the state is past.

    The end of an incarnation that has no successor yet is not known, so its events count as live. The same
    holds for one that the state may have forgotten.
    """
    region = state.regions.get(envelope.region)
    newest = region.incarnation if region is not None else None
    # Those of the former assignment end with the first decision of the newest one.
    ended = (*state.ended, *(state.former.suspended if state.former is not None else ()))
    if newest is None:
        return envelope.incarnation not in ended
    if newest.id == envelope.incarnation:
        return offset < newest.from_offset
    # Before a region has a position, the state forgets none of its incarnations.
    never = newest.base is None and envelope.incarnation not in ended
    return never or offset > newest.from_offset


log = structlog.get_logger(__name__)

# Failpoints around the effects of the core.

Around = tuple[Failpoint, Failpoint]
"""The failpoints before and after an effect."""

APPENDS: Final[dict[EventType, Around]] = {
    EventType.STREAM_POLICY: (Failpoint.APPEND_POLICY_BEFORE, Failpoint.APPEND_POLICY_AFTER),
    EventType.REGION_HEARTBEAT: (Failpoint.APPEND_HEARTBEAT_BEFORE, Failpoint.APPEND_HEARTBEAT_AFTER),
    EventType.CUT_DECIDED: (Failpoint.APPEND_DECISION_BEFORE, Failpoint.APPEND_DECISION_AFTER),
    EventType.CUT_COMMITTED: (Failpoint.APPEND_COMMITTED_BEFORE, Failpoint.APPEND_COMMITTED_AFTER),
    EventType.CUT_REVERTED: (Failpoint.APPEND_REVERTED_BEFORE, Failpoint.APPEND_REVERTED_AFTER),
    EventType.CUT_ABANDONED: (Failpoint.APPEND_ABANDONED_BEFORE, Failpoint.APPEND_ABANDONED_AFTER),
}
"""By type of the event that is appended."""
AROUND: Final[dict[type[Effect], Around]] = {
    InspectTable: (Failpoint.INSPECT_TABLE_BEFORE, Failpoint.INSPECT_TABLE_AFTER),
    FetchEnd: (Failpoint.FETCH_END_BEFORE, Failpoint.FETCH_END_AFTER),
    CheckFiles: (Failpoint.CHECK_FILES_BEFORE, Failpoint.CHECK_FILES_AFTER),
    Ask: (Failpoint.ASK_BEFORE, Failpoint.ASK_AFTER),
    Publish: (Failpoint.PUBLISH_BEFORE, Failpoint.PUBLISH_AFTER),
    WriteRecord: (Failpoint.WRITE_RECORD_BEFORE, Failpoint.WRITE_RECORD_AFTER),
    Announce: (Failpoint.ANNOUNCE_BEFORE, Failpoint.ANNOUNCE_AFTER),
    WriteView: (Failpoint.WRITE_VIEW_BEFORE, Failpoint.WRITE_VIEW_AFTER),
    ReleaseOffsets: (Failpoint.RELEASE_OFFSETS_BEFORE, Failpoint.RELEASE_OFFSETS_AFTER),
}


async def between_failpoints(effect: Effect, perform: Callable[[Effect], Awaitable[Result]]) -> Result:
    """Perform an effect between its two failpoints; an injected failure is an ordinary result."""
    before, after = APPENDS[effect.type] if isinstance(effect, Append) else AROUND[type(effect)]
    try:
        await reach(before)
    except InjectedFailure as error:
        return Failed(str(error))
    result = await perform(effect)
    try:
        await reach(after)
    except InjectedFailure as error:
        # A publication before an injected failure may have succeeded, so its outcome is unknown.
        return OutcomeUnknown(str(error)) if isinstance(effect, Publish) else Failed(str(error))
    return result


FETCHED_AT_ONCE: Final = 16 << 20
"""Bytes of bodies that are fetched into memory for one step of a check or a commit."""
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
        self.bodies = Bodies(links.budget)
        self.checkpoints = CheckpointHistory()
        self.low_water = record.low_water
        """The offset from which a recovery reads: that of the newest record that is acknowledged."""
        committed = committed_decision(record.state)
        self.outcomes = outcomes_after(committed, record.due, keeps=bool(settings.listeners))
        self.telemetry = StreamTelemetry(self.stream, links.metrics, machine.outbox.due)
        self.settings = settings
        self._recorded_user = record.commit_user or settings.commit_user
        """Commit user of later records: that of the first record, independent of the settings."""
        self._links = links
        self._partition = partition
        self._kafka = StreamLog(self.stream, partition.number, links)
        self._table = StreamTable(settings, links.threads)
        self._summaries = Summaries(settings.table)
        self._traces = Traces(self.stream, links.spans)
        self._early = EarlyChecks(self._table, self.bodies, links.budget)
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
    def needed(self) -> int:
        """Return the first offset that the stream needs from the log."""
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
                self.bodies.keep(record.offset, read.envelope, record.value or b"")
                self._early.arrived(record.offset)
        except Exception as error:
            self._log.exception("record not applied", offset=record.offset)
            # The state may be half changed, so it is never recorded, and nothing is decided from it.
            self.machine.block(failed_at(record.offset, error), record.offset, keep_record=True)

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
        ignored = effect = self.machine.step(read).ignored
        self.checkpoints.applied(read, replica.log)
        if envelope.type is EventType.CHECKPOINT_COMPLETED:
            self._traces.arrived(envelope, record.headers)
            # On a second read too: the letter of the first read may not be acknowledged.
            if not fresh and was_not_live(replica.state, envelope, record.offset):
                ignored = Problem(code=Code.NOT_LIVE)
            if ignored is not None and ignored.code is Code.NOT_LIVE:
                place = {
                    "region": envelope.region,
                    "incarnation": envelope.incarnation,
                    "checkpoint": envelope.checkpoint,
                }
                letters.put(record, ignored.model_copy(update=place), self.stream)
        if fresh:
            self.telemetry.applied(read, effect, inherited=record.offset < self.since)
            log_order(read, record, self._kafka.signatures, effect)

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
        policy = self.machine.replica.state.policy
        # While the log is read from its low-water mark, most of its events are decided already.
        if self.machine.ready and policy is not None:
            terms = Terms(policy.allowed_locations, policy.file_names == "checked")
            if (task := self._early.start(terms)) is not None:
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
        self.telemetry.conditions(self.machine.conditions())

    async def stop(self, grace: float) -> None:
        """Start no more effects. Wait up to `grace` seconds for the running ones, then cancel them.

        With a grace the partition is still assigned, so results are applied.
        """
        self.closed = True
        self._early.stop()
        self._outcomes_count = grace > 0
        tasks = list(self.running)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            await end(late)
        self._outcomes_count = False
        # A cancelled effect may still run in a thread that uses the table, so the table stays open.
        if not tasks or not late:
            self._table.close()
        self.bodies.drop_all()

    async def write_last_record(self) -> None:
        """Write a state record at a graceful stop, so that the next owner reads less of the log."""
        # Every batch ends with a poll: while the machine is ready, the record has all answers.
        if self.machine.ready:
            await reach(Failpoint.LAST_RECORD_BEFORE)
            result = await self._effect(WriteRecord(self.machine.record()))
            if isinstance(result, Failed):
                self._log.warning("last state record not written", reason=result.reason)
            await reach(Failpoint.LAST_RECORD_AFTER)

    async def _run(self, effect: Effect) -> None:
        name = name_of(effect)
        self._log.debug("effect", state="started", effect=name)
        try:
            with self._traces.step(effect, self.machine.replica.log) as finish:
                result = await self._effect(effect)
                self._traces.finished(effect, result, finish)
            self.telemetry.effect(effect, result)
            self._log.debug("effect", state="finished", effect=name, result=type(result).__name__)
            self._measure(effect, result)
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
        except (BodyUnavailable, MessageTooLarge, RecordTooLarge, Unencodable) as error:
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
                return await self._table.inspect(effect)
            case Ask():
                self.telemetry.asked(effect)
                return await self._table.ask(effect)
            case CheckFiles():
                return await self._check(effect)
            case Publish():
                account = account_of(self.stream, self.machine.replica.state, effect.digest)
                with closing(self._supply(effect.offsets)) as bodies:
                    return await self._table.publish(effect, bodies, self._early.passed, account)
            case FetchEnd():
                return EndOffset(await self._partition.end_offset())
            case Append():
                current = self.machine.replica.log
                traced = self._traces.headers(effect, current)
                made = await self._summaries.complete(effect, current, self._read_bodies)
                return await self._kafka.append(made, traced)
        await self._follow_up(effect)
        return Done()

    async def _check(self, effect: CheckFiles) -> Result:
        """Find what could not be committed: what is over the limits first, and the files of the others."""
        log, limits = (
            self.machine.replica.log,
            Limits(self.settings.max_files_per_checkpoint, self.settings.max_pending_bytes),
        )
        fitting = fit(limits, log, effect.moves, self.bodies.size)
        parts, left = narrowed(log, effect.parts, fitting)
        offsets = [offset for each in parts.values() for offset in each]
        self._early.leave(offsets)
        with closing(self._supply(offsets)) as bodies:
            known = Known(self._early.passed, self._early.room)
            checked = await self._table.check(replace(effect, parts=parts), bodies, known)
        self._early.keep(self._table.take_passed())
        self._put_aside()
        if isinstance(checked, FilesChecked):
            return FilesChecked({**checked.problems, **fitting.problems}, fitting.upto, left)
        return checked

    async def _follow_up(self, effect: Effect) -> None:
        match effect:
            case WriteRecord(record):
                await self._kafka.record(record.model_copy(update={"commit_user": self._recorded_user}))
                self.low_water = record.low_water
                self._drop([offset for offset in self.bodies.offsets() if offset < record.low_water])
            case Announce(due):
                traced = self._traces.headers(effect, self.machine.replica.log)
                await self._kafka.announce(due, self.outcomes, traced)
                self.telemetry.announced(due)
            case WriteView(record):
                self.last_view = record
                if self._links.store is not None:
                    view = view_of(record, self.settings, self.listener_views())
                    await write_view(self._links.store, view, self._partition.end_offset)
            case ReleaseOffsets():
                await self._partition.release_offsets()

    def _drop(self, offsets: Sequence[int]) -> None:
        self.bodies.drop(offsets)
        self._early.forget(offsets)

    def _supply(self, offsets: Sequence[int]) -> Supply[WrittenEvent]:
        return Supply(offsets, self.bodies.first_of(sorted(offsets)), self._read_bodies)

    async def _read_bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        """Return the events at the first of these offsets, from memory or fetched again.

        At least one event is returned. Raises BodyUnavailable, KafkaError, TimeoutError.
        """
        if held := self.bodies.first_of(offsets):
            return held
        dropped = list(takewhile(lambda offset: self.bodies.get(offset) is None, offsets))
        fetched = await self._links.fetcher.fetch(self._partition.number, dropped, FETCHED_AT_ONCE)
        self._links.metrics.bodies_refetched.add(len(fetched))
        return fetched

    def _put_aside(self) -> None:
        """Send unreadable bodies to the dead letters, in addition to excluding their region."""
        for offset, (body, problem) in self._table.broken.items():
            self._partition.letters.put_body(offset, body, problem, self.stream)
        self._table.broken.clear()

    def _measure(self, effect: Effect, result: Result) -> None:
        """Count a commit that became visible, and release the memory of its bodies."""
        log, tally = self.machine.replica.log, self._table.tally
        made = log.state.pending
        if made is None or not isinstance(effect, Ask | Publish) or not isinstance(result, Published | Found):
            return
        # A revert has another digest, and adds no files to the table.
        if effect.digest != made.digest:
            return
        self._drop(made.parts)
        self._summaries.seen(made.id, tally)
        if tally is not None and tally.decision == made.id:
            self.telemetry.committed(log, made, tally.rows, tally.size)
        else:
            # A previous owner published it, and counted it in its metrics.
            self.telemetry.settled()

    # --- health -----------------------------------------------------------------------------------

    def warn(self, conditions: Sequence[Condition]) -> None:
        """Set the conditions that somebody else than the core found."""
        self.machine.warnings = tuple(conditions)

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

    def overview(self, now_ms: int) -> dict[str, Any]:
        """Return the state as JSON values."""
        own = {name: each.model_dump() for name, each in self.listener_views().items()}
        facts = {"ready": self.machine.ready, "owner": self.settings.owner, "listeners": own}
        return {**overview(self.machine.record(), now_ms), **facts}

    def listener_views(self) -> Mapping[str, ListenerView]:
        """Return the state of the listeners."""
        return self.outcomes.views(committed_decision(self.machine.replica.state))
