"""Work of one listener of one stream: it handles each outcome at least once, and in order."""

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.listeners.records import ListenerRecord, ListenerRecords
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.settings.model import ListenerSettings
from sluicegate.coordinator.stream.outcomes import Adoption, Announced, Outcomes, outcome_of
from sluicegate.events.notifications import Notification, read_notification
from sluicegate.kafka.authorized import topic_id
from sluicegate.kafka.clients import spread, start_client, stop_client
from sluicegate.kafka.reading import read_batches
from sluicegate.listeners.port import (
    Action,
    Done,
    Listener,
    Outcome,
    Refused,
    Result,
    Step,
    Unknown,
    as_of_table,
)
from sluicegate.state_store import ListenerView, ProblemView

# Problems of listeners: a code for programs, and a sentence with the way out for people.


class ListenerCode(StrEnum):
    """Codes of the problems of listeners."""

    RETRYING = "listener-retrying"
    REFUSED = "listener-refused"
    OUTCOMES_LOST = "listener-outcomes-lost"
    UNUSABLE = "listener-unusable"


class ListenerProblem(NamedTuple):
    """A problem of one listener."""

    code: ListenerCode
    message: str


def retrying(step: str, reason: str) -> ListenerProblem:
    """Return the problem of a step that fails, and is tried again."""
    return ListenerProblem(ListenerCode.RETRYING, f"This fails, and is tried again: {step}. {reason}")


def refused(reason: str, stream: str, listener: str) -> ListenerProblem:
    """Return the problem of an action that can never take effect."""
    return ListenerProblem(
        ListenerCode.REFUSED,
        f"The listener has stopped: {reason} To let it try again, change its settings, or raise `revision` "
        f"in [streams.{stream}.listeners.{listener}], and send the coordinators SIGHUP.",
    )


def outcomes_lost(first: int, last: int, stream: str, listener: str) -> ListenerProblem:
    """Return the problem of outcomes that the feed has lost before the listener handled them."""
    return ListenerProblem(
        ListenerCode.OUTCOMES_LOST,
        f"The commits topic has no outcome of the decisions {first} to {last} any more, and the listener has "
        f"not handled them. Do by hand what it would have done. Then set skip_through = {last} in "
        f"[streams.{stream}.listeners.{listener}], and send the coordinators SIGHUP.",
    )


def unusable(reason: str) -> ListenerProblem:
    """Return the problem of a listener that cannot be made, or whose record cannot be used."""
    return ListenerProblem(ListenerCode.UNUSABLE, reason)


def outdated(decision: int, through: int, stream: str, listener: str) -> ListenerProblem:
    """Return the problem of a number to skip that an adoption has given up."""
    return unusable(
        f"The listener waits: the stream was adopted after decision {decision}, so the next decisions have "
        f"the numbers up to {through} again, and skip_through = {through} would leave out their actions. "
        f"Remove skip_through from [streams.{stream}.listeners.{listener}], and send the coordinators SIGHUP."
    )


def unfit(reason: str) -> ListenerProblem:
    """Return the problem of settings that do not fit the table now, or of a table that cannot be read."""
    return unusable(
        f"The listener waits for its table: {reason.rstrip('.')}. It looks again within a minute; after a "
        "change of the settings, send the coordinators SIGHUP. No outcome is lost meanwhile, as long as the "
        "commits topic keeps it."
    )


SHOWN: Final = 20
"""Actions that a note lists."""


def skipped(through: int, decisions: Sequence[int], texts: Sequence[str]) -> str:
    """Return a note about the actions that `skip_through` has left out since the start."""
    shown = "; ".join(texts[:SHOWN]) + (f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")
    first, last = decisions[0], decisions[-1]
    after = f"decision {last}" if first == last else f"the decisions {first} to {last}"
    return (
        f"skip_through = {through} has left this out, after {after}: {shown}. To leave out nothing more of "
        f"decision {through}, such as a later savepoint, remove skip_through, and send the coordinators "
        "SIGHUP."
    )


def unready(reason: str) -> ListenerProblem:
    """Return the problem of a file or a package that the settings name, and that cannot be used now."""
    return unusable(
        f"The listener waits: {reason.rstrip('.')}. It looks again within a minute. No outcome is lost "
        "meanwhile, as long as the commits topic keeps it."
    )


# The feed: outcomes are read from the commits topic by offset, for listeners with a backlog.

MOST_RECORDS = 500
POLL_MS = 500


class Piece(NamedTuple):
    """A part of the feed."""

    outcomes: list[Announced]
    next: int
    """Offset after the part."""
    begin: int
    """First offset that the topic still has."""
    end: int
    """Offset after the last record of the topic."""
    topic: str
    """Id of the topic; empty if the brokers do not give it."""


class Bounds(NamedTuple):
    """A partition of the feed."""

    begin: int
    end: int
    topic: str
    """Id of the topic; empty if the brokers do not give it."""


class CommitsReader:
    """One connection for all listeners of the process, used by one at a time."""

    def __init__(self, topic: str, options: dict[str, Any], patience: float) -> None:
        self._topic, self._options, self._patience = topic, options, patience
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def read(self, stream: str, partition: int, offset: int) -> Piece:
        """Return the outcomes of a stream in the next records from an offset on.

        Raises KafkaError, or TimeoutError if nothing comes although the topic has more.
        """
        source = TopicPartition(self._topic, partition)
        async with self._lock, asyncio.timeout(self._patience):
            consumer = await self._connected()
            begin, end, topic = await self._bounds(consumer, source)
            # An offset after the end: the topic was made again, and its offsets began at 0.
            at = begin if offset > end else max(offset, begin)
            found: list[Announced] = []
            if at >= end:
                return Piece(found, at, begin, end, topic)
            consumer.assign([source])
            consumer.seek(source, at)
            while await consumer.position(source) == at:
                reading = await read_batches(consumer, source, timeout_ms=POLL_MS, max_records=MOST_RECORDS)
                for record in reading.batches.get(source, []):
                    read = read_notification(record.headers, record.value)
                    if isinstance(read, Notification) and read.stream == stream:
                        outcome = outcome_of(read, record.timestamp)
                        if outcome is not None:
                            found.append(Announced(record.offset, outcome))
            return Piece(found, await consumer.position(source), begin, end, topic)

    async def bounds(self, partition: int) -> Bounds:
        """Return the offsets of a partition, and the topic's id. Raises KafkaError or TimeoutError."""
        source = TopicPartition(self._topic, partition)
        async with self._lock, asyncio.timeout(self._patience):
            return await self._bounds(await self._connected(), source)

    async def topic(self) -> str:
        """Return the id of the topic; empty if it is not known now. Raises KafkaError or TimeoutError."""
        async with self._lock, asyncio.timeout(self._patience):
            return await topic_id(await self._connected(), self._topic)

    async def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            await stop_client(self._consumer)

    async def _bounds(self, consumer: AIOKafkaConsumer, source: TopicPartition) -> Bounds:
        # The id comes first: a topic that is made again meanwhile is noticed by the next question.
        topic = await topic_id(consumer, self._topic)
        begin: int = (await consumer.beginning_offsets([source]))[source]
        end: int = (await consumer.end_offsets([source]))[source]
        return Bounds(begin, end, topic)

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **self._options)
            try:
                await start_client(consumer)
            except BaseException:
                await stop_client(consumer)
                raise
            self._consumer = consumer
        return self._consumer


log = structlog.get_logger(__name__)

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt of an action; each further pause is twice as long."""
LONGEST_PAUSE: Final = 60.0
SEEN: Final = 200
"""Ids of handled notifications of the newest decision that a record has."""
IDLE: Final = 60.0
"""Longest wait in seconds for the next outcome; then the listener looks for lost ones."""
SHORTEST: Final = 0.1
"""Shortest wait in seconds."""
REFRESH: Final = 3_600.0
"""Seconds after which the record of a quiet stream gets the current offset."""


class Stopped(Exception):
    """Raised when the listener does nothing until somebody acts; its problem has the way out."""


class Worker:
    """Runs one listener while this process owns its stream."""

    def __init__(
        self,
        listener: Listener[Any],
        settings: ListenerSettings,
        location: str,
        record: ListenerRecord,
        outcomes: Outcomes,
        feed: CommitsReader,
        records: ListenerRecords,
        settled: Callable[[], int | None],
        metrics: Metrics,
    ) -> None:
        """`location`: URI of the table that the listener belongs to.

        `settled` returns the newest decision whose outcome must be in the feed; None: unknown now.

        Raises ValueError if the state of the record cannot be used.
        """
        self.record = record
        self._listener, self._settings, self._location = listener, settings, location
        self._outcomes, self._feed, self._records = outcomes, feed, records
        self._settled, self._metrics = settled, metrics
        self._state = listener.load(record.state) if record.state else listener.initial()
        self._offset = record.offset
        self._topic = record.topic
        """Id of the topic that the offset is of; empty: not known."""
        self._times_made = outcomes.times_made
        self._wake: int | None = None
        self._due = True
        """True if time may cause actions although no time is set."""
        self._written = time.monotonic()
        self._log = log.bind(stream=record.stream, listener=record.listener)
        self._problem: ListenerProblem | None = None
        self._note: str | None = None
        """Text about the newest actions that were skipped."""
        self._left_out: list[tuple[int, str]] = []
        """Actions that `skip_through` has left out since the start, with their decisions."""

    # --- the loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle outcomes until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._show(None)
                await self._work()
            except Stopped:
                await asyncio.Event().wait()
            except (KafkaError, TimeoutError, OSError) as error:
                self._show(retrying("the feed or the record in Kafka", f"{type(error).__name__}: {error}"))
            except Exception as error:
                self._log.exception("a listener raised")
                self._show(retrying("the listener's own code", f"{type(error).__name__}: {error}"))
            self._metrics.listener_failures.add(1, self.record.stream, self.record.listener)
            await asyncio.sleep(spread(pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _work(self) -> None:
        if self.record.refused is not None:
            self._stop(refused(self.record.refused, self.record.stream, self.record.listener))
        while True:
            found, after = await self._next()
            for each in found:
                await self._handle(each)
            self._offset = max(self._offset, after)
            if not found:
                await self._idle()

    async def _next(self) -> tuple[list[Announced], int]:
        """Return the next outcomes, and the offset after them."""
        if self._times_made != (times_made := self._outcomes.times_made):
            beginning = await self._beginning()
            self._times_made = times_made
            self._begin_again(beginning)
            if former := self._outcomes.former:
                # No topic has these any more. Their offsets are of the former one, so the place stays at 0.
                return [each._replace(offset=-1) for each in former], 0
        while (held := self._outcomes.since(self._offset)) is None:
            times_made = self._outcomes.times_made
            piece = await self._feed.read(self.record.stream, self.record.partition, self._offset)
            if times_made != self._outcomes.times_made:
                return [], 0
            if self._offset > piece.end or (self._topic and piece.topic not in ("", self._topic)):
                self._topic = piece.topic
                self._begin_again(max(piece.begin, await self._beginning()))
                continue
            self._topic = piece.topic or self._topic
            self._outcomes.complete(piece.end)
            if piece.outcomes or piece.next >= piece.end:
                return piece.outcomes, piece.next
            self._offset = piece.next
        return held, self._offset

    async def _beginning(self) -> int:
        """Return the offset from which the whole topic is read: the newest adoption that is handled, or 0.

        The outcomes before it are given up, and later ones have their numbers again.
        """
        offset, end = 0, 1
        while self.record.adopted and offset < end:
            piece = await self._feed.read(self.record.stream, self.record.partition, offset)
            for each in piece.outcomes:
                # A repetition may follow later outcomes.
                if isinstance(each.outcome, Adoption) and each.outcome.id == self.record.adopted[-1]:
                    return each.offset
            offset, end = piece.next, piece.end
        return 0

    def _begin_again(self, offset: int) -> None:
        """Read the whole topic. What is handled is known by its decision."""
        self._log.warning(
            "commits topic made again, it is read whole", offset=self._offset, topic=self._topic
        )
        self._offset = offset

    async def _idle(self) -> None:
        """Let time cause actions, and wait for the next outcome."""
        # An outcome may have come since the feed was read.
        if self._outcomes.since(self._offset) == [] and self.record.decision is not None:
            settled = self._settled()
            await self._refuse_loss(0 if settled is None else settled + 1)
        now = _now()
        if self._due or (self._wake is not None and self._wake <= now):
            self._due = False
            await self._finish(self._listener.due(now, self._state), {})
        elif time.monotonic() - self._written > REFRESH and self.record.offset != self._offset:
            await self._write({})
        left = IDLE if self._wake is None else max(SHORTEST, min(IDLE, (self._wake - _now()) / 1000))
        await self._outcomes.wait(self._times_made, self._offset, left)

    # --- one outcome ------------------------------------------------------------------------------

    async def _handle(self, found: Announced) -> None:
        outcome, known = found.outcome, self.record.decision
        if isinstance(outcome, Adoption):
            await self._adopt(found.offset + 1, outcome)
            return
        if known is not None and (
            outcome.decision < known or (outcome.decision == known and outcome.id in self.record.seen)
        ):
            self._offset = found.offset + 1
            return
        if known is not None:
            await self._refuse_loss(outcome.decision)
        if (name := self._settings.table) is not None:
            outcome = as_of_table(outcome, name, self._location)
        step = self._listener.apply(outcome, self._state)
        if outcome.decision <= self._settings.skip_through:
            self._log.warning("actions skipped", decision=outcome.decision, actions=len(step.actions))
            self._leave_out(outcome.decision, step.actions)
            step = Step(step.state, (), step.wake)
        await self._finish(step, {"offset": found.offset + 1, **self._place(outcome)})
        self._offset, self._due = found.offset + 1, True
        self._metrics.listener_success.set(time.time(), self.record.stream, self.record.listener)

    async def _adopt(self, offset: int, adopted: Adoption) -> None:
        """Forget the decisions that an adoption has given up: the next ones have their numbers.

        A repetition has no effect. It may follow the next decisions: its announcer was perhaps frozen.
        """
        if adopted.id in self.record.adopted:
            self._offset = offset
            return
        if (through := self._settings.skip_through) > adopted.decision:
            self._stop(outdated(adopted.decision, through, self.record.stream, self.record.listener))
        ahead = self.record.decision is not None and self.record.decision > adopted.decision
        place = {"decision": adopted.decision, "seen": ()} if ahead else {}
        heard = {"adopted": (*self.record.adopted, adopted.id)[-SEEN:]}
        await self._write({"offset": offset, "adoptions": self.record.adoptions + 1, **heard, **place})
        self._offset = offset

    def _leave_out(self, decision: int, actions: Sequence[Action]) -> None:
        """Note the actions that nobody runs. Each is somebody's work by hand."""
        self._left_out += [(decision, each.text) for each in actions]
        if self._left_out:
            decisions, texts = zip(*self._left_out, strict=True)
            self._note = skipped(self._settings.skip_through, decisions, texts)

    def _place(self, outcome: Outcome) -> dict[str, Any]:
        """Return the fields of the record after an outcome."""
        same = outcome.decision == self.record.decision
        seen = (*(self.record.seen if same else ()), outcome.id)[-SEEN:]
        return {"decision": outcome.decision, "seen": seen, "handled_at": _now()}

    async def _refuse_loss(self, next_decision: int) -> None:
        """Stop if outcomes between the newest handled one and this one are not in the feed any more.

        The way out skips these decisions. So the whole topic is read first, whatever the offset is: it was
        perhaps made again, and the offset is of the former one.
        """
        if next_decision <= self._known + 1:
            return
        offset, end = await self._beginning(), None
        while end is None or offset < end:
            piece = await self._feed.read(self.record.stream, self.record.partition, offset)
            for each in piece.outcomes:
                if each.outcome.decision < next_decision:
                    await self._handle(each)
            offset, end = piece.next, piece.end
        if next_decision > self._known + 1:
            record = self.record
            self._stop(outcomes_lost(self._known + 1, next_decision - 1, record.stream, record.listener))

    @property
    def _known(self) -> int:
        """The newest decision that is handled, or that the settings skip."""
        return max(self.record.decision or 0, self._settings.skip_through)

    async def _finish(self, step: Step[Any], place: dict[str, Any]) -> None:
        """Run the actions of a step, then write the state and the place."""
        for action in step.actions:
            await self._until_done(action)
        changed = bool(place) or bool(step.actions) or step.state != self._state
        if changed:
            # Only then: a step whose record is not written is made again, from the same state.
            await self._write({**place, "state": step.state.model_dump(mode="json")})
        self._state, self._wake = step.state, step.wake
        self._show(None)

    # --- one action -------------------------------------------------------------------------------

    async def _until_done(self, action: Action) -> None:
        """Run an action until it is done. Raises Stopped if it never can be."""
        pause, names = FIRST_PAUSE, (self.record.stream, self.record.listener)
        while True:
            result = await self._attempt(action)
            if isinstance(result, Done):
                self._metrics.listener_success.set(time.time(), *names)
                return
            self._metrics.listener_failures.add(1, *names)
            if isinstance(result, Refused):
                await self._write({"refused": result.reason, "fingerprint": self._settings.fingerprint})
                self._stop(refused(result.reason, *names))
            unknown = isinstance(result, Unknown)
            self._log.warning(
                "action not done, will be tried again",
                action=action.text,
                key=action.key,
                unknown=unknown,
                reason=result.reason,
                pause=pause,
            )
            self._show(retrying(action.text, result.reason))
            await asyncio.sleep(spread(pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _attempt(self, action: Action) -> Result:
        try:
            return await self._listener.run(action)
        except Exception as error:
            self._log.exception("an action raised", action=action.text, key=action.key)
            return Unknown(f"{type(error).__name__}: {error}")

    # --- the record -------------------------------------------------------------------------------

    async def _write(self, place: dict[str, Any]) -> None:
        update = {"offset": self._offset, "topic": self._topic, "step": self.record.step + 1, **place}
        record = self.record.model_copy(update=update)
        await self._records.write(record)
        self.record, self._written = record, time.monotonic()

    def _stop(self, problem: ListenerProblem) -> None:
        """Show a problem and stop."""
        self._log.error("listener stopped", code=problem.code, reason=problem.message)
        self._show(problem, stopped=True)
        raise Stopped

    def _show(self, problem: ListenerProblem | None, *, stopped: bool = False) -> None:
        if problem is None and self._problem is not None:
            self._log.info("listener works again")
        self._problem = problem
        record = self.record
        self._metrics.listener_failing.set(problem is not None, record.stream, record.listener)
        self._outcomes.show(
            record.listener,
            ListenerView(
                type=record.type,
                decision=record.decision,
                problem=None if problem is None else ProblemView(code=problem.code, message=problem.message),
                stopped=stopped,
                handled_at=record.handled_at,
                note=self._note,
            ),
        )


def _now() -> int:
    return time.time_ns() // 1_000_000
