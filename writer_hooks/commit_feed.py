"""Notifications of the coordinator, read from the commits topic in the background.

Nothing that is written depends on them. From them, a driver learns which checkpoints are committed, and
that its incarnation may have ended, which it then asks. There are two readers:

- `CommitFeed` reads the partition of one stream from a point before the registration, for a driver without
  Spark and for the runner of regions.
- `Followers` reads all partitions for the queries of one Spark session, which may write several streams. A
  query may begin before its reader, so the reader begins some minutes in the past.
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Body, CutReverted, Position
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    RegistrationAnswered,
    Stalled,
    StreamAdopted,
    read_notification,
)
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.reading import read_on
from sluicegate.writer_hooks.errors import Failures, HookError, PublishFailed
from sluicegate.writer_hooks.publisher import LoopThread, shared_publisher
from sluicegate.writer_hooks.region import KafkaSettings, Live, Region

_log = logging.getLogger(__name__)

_POLL_MS: Final = 500
_RETRY: Final = 2.0  # seconds
_OUTCOMES_RETRY: Final = 5.0  # seconds
_PATIENCE: Final = 30.0
_RECENT: Final = 600.0
"""Seconds before the present from which `Followers` reads answers and commits.

A query may be replaced, or its first batch committed, before its driver starts to read.
"""


class _CommitsReader(ABC):
    """Reader of partitions of a commits topic, in a thread of its own.

    After a failure it connects again, and continues at the positions of the last connection.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    """Failures after which the reader connects again."""

    def __init__(self, kafka: KafkaSettings, topic: str, **consumer: Any) -> None:
        """Make a reader; `consumer` are further arguments of its consumer."""
        self._kafka = kafka
        self._topic = topic
        self._consumer = consumer
        self._positions: dict[TopicPartition, int] = {}
        """Positions at which the next connection continues."""
        self._failures = Failures()

    @property
    @abstractmethod
    def retry_pause(self) -> float:
        """Seconds between two connections."""

    @abstractmethod
    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """Assign the partitions to a new consumer, and seek to their positions."""

    @abstractmethod
    def _receive(self, source: TopicPartition, offset: int, notification: Notification) -> None:
        """Apply a notification."""

    @abstractmethod
    def _after_poll(self) -> None:
        """Called when all notifications of a poll are applied."""

    @abstractmethod
    def _warn_failed(self, error: Exception) -> None:
        """Log a failure, of which many follow each other only in part."""

    def _new_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**self._kafka.client_options(), enable_auto_commit=False, **self._consumer)

    async def _read(self) -> None:
        """Read until the task is cancelled. Failures are logged and retried, because no caller waits for the
        result."""
        while not _cancelled():
            try:
                await self._read_on()
            except self.errors as error:
                if self._failures.add():
                    self._warn_failed(error)
            if not _cancelled():
                await asyncio.sleep(spread(self.retry_pause))

    async def _read_on(self) -> None:
        async with started(self._new_consumer()) as consumer:
            await self._assign(consumer)
            while True:
                for source, records in (await read_on(consumer, timeout_ms=_POLL_MS)).items():
                    for record in records:
                        found = read_notification(record.headers, record.value)
                        if isinstance(found, Notification):
                            self._receive(source, record.offset, found)
                        self._positions[source] = record.offset + 1
                self._after_poll()


def _cancelled() -> bool:
    """Return True if the current task is cancelled.

    A client that is closing suppresses the CancelledError itself.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# --- one stream ---------------------------------------------------------------------------------------


class CommitFeed(_CommitsReader):
    """Reader of a stream's partition of the commits topic.

    It misses nothing that is published after `start` has returned. After a failure it continues where it was.
    """

    errors = (Exception,)  # whatever it is, the driver must learn of later commits

    def __init__(
        self, region: Region, read: Callable[[Notification], None], reconnected: Callable[[], None]
    ) -> None:
        """Make a feed. Both functions are called in its thread.

        `read` gets each notification of the stream. `reconnected` is called after a failure: notifications
        may be missing, if the topic was made again meanwhile.
        """
        super().__init__(
            region.kafka,
            region.commits_topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._region = region
        self._on_notification = read
        self._on_reconnection = reconnected
        self._thread: LoopThread | None = None
        self._reading: Future[None] | None = None

    @property
    def retry_pause(self) -> float:
        return _RETRY

    def start(self) -> None:
        """Find the end of the partition, and read from there in the background. Raises PublishFailed."""
        region, (timeout, option) = self._region, self._region.start_limit
        count = shared_publisher(region.kafka).partitions(region.commits_topic, timeout, option)
        source = TopicPartition(region.commits_topic, partition_of(region.stream, count))
        self._thread = LoopThread("sluicegate-commits")
        try:
            self._positions = {source: self._thread.call(self._end(source), timeout)}
        except (KafkaError, TimeoutError) as error:
            self.stop()
            raise PublishFailed(
                f"the topic {source.topic} on {region.kafka.bootstrap_servers} cannot be read within "
                f"{timeout:g} s ({option}): {error!r}; the region was not registered, and starting again is "
                "safe"
            ) from error
        self._reading = self._thread.start(self._read())

    def stop(self) -> None:
        """End the thread. Repeated calls are allowed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    async def _end(self, source: TopicPartition) -> int:
        async with started(self._new_consumer()) as consumer:
            return int((await consumer.end_offsets([source]))[source])

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign([*self._positions])
        ends = await consumer.end_offsets([*self._positions])
        for source, at in self._positions.items():
            # A topic that was deleted and created again has smaller offsets: it is read whole.
            consumer.seek(source, at if at <= ends[source] else 0)
        if self._failures.count:
            self._on_reconnection()

    def _receive(self, source: TopicPartition, offset: int, notification: Notification) -> None:
        if notification.stream == self._region.stream:
            self._on_notification(notification)

    def _after_poll(self) -> None:
        self._failures.clear()

    def _warn_failed(self, error: Exception) -> None:
        _log.warning(
            "commits of the stream %s cannot be read (%d in a row): %r. Nothing that is written "
            "depends on it; it is tried again about every %g s",
            *(self._region.stream, self._failures.count, error, _RETRY),
        )


# --- the regions of a session -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """Outcome of one decision for one region."""

    stream: str
    region: str
    decision: int
    committed: Position | None
    """Committed position of the region; None: it has none."""
    fell_back: bool
    """True if the region did not advance although it should have."""
    consecutive: int
    """Number of consecutive fallbacks, as far as this driver has seen."""
    reverted: bool
    """True if the decision was reverted: its checkpoints are pending again."""


OnOutcome = Callable[[RegionOutcome], None]
OnLive = Callable[[Live], None]
"""Callback with the live incarnation and run that the newest answer of a region states."""
OnCommitted = Callable[[Position], None]
"""Callback with the newest committed position of a region."""


class RegionProgress:
    """Progress of one region, updated by each notification."""

    def __init__(self, stream: str, region: str) -> None:
        self.stream = stream
        self.region = region
        self._committed: Position | None = None
        self._consecutive = 0
        self._newest: int | None = None
        """The newest decision whose outcome was told."""

    def begin(self, committed: Position | None) -> None:
        """Note the committed position of the region. It has no effect after the first outcome."""
        if self._newest is None and committed is not None:
            self._committed = committed

    def apply(self, body: Body) -> RegionOutcome | None:
        """Return the outcome of a notification for the region; None if it does not concern the region.

        Each decision has one: a coordinator may repeat notifications.
        """
        if isinstance(body, Stalled) and body.problem.region == self.region and not body.ended:
            _log.warning("region %s of %s is stalled. %s", self.region, self.stream, body.reason)
        if isinstance(body, StreamAdopted):
            # The next decisions use the numbers after it again.
            self._newest = body.decision
        if not isinstance(body, CutReverted | Committed):
            return None
        if self._newest is not None and body.decision <= self._newest:
            return None
        self._newest = body.decision
        if isinstance(body, CutReverted):
            return self._outcome(body.decision, fell_back=False, reverted=True)
        return self._apply_commit(body)

    def _apply_commit(self, body: Committed) -> RegionOutcome:
        fell_back, at = self.region in body.fallbacks, body.cut.get(self.region)
        if fell_back:
            self._consecutive += 1
            if self._consecutive == 1:
                _log.warning(
                    "region %s of %s fell back in commit %d, at %s; the other regions were committed",
                    *(self.region, self.stream, body.decision, _format_position(at)),
                )
        elif at != self._committed:
            if self._consecutive:
                _log.warning(
                    "region %s of %s is included again in commit %d, up to %s, after %d without it",
                    *(self.region, self.stream, body.decision, _format_position(at), self._consecutive),
                )
            self._consecutive = 0
        self._committed = at
        return self._outcome(body.decision, fell_back=fell_back, reverted=False)

    def _outcome(self, decision: int, *, fell_back: bool, reverted: bool) -> RegionOutcome:
        place = (self.stream, self.region, decision)
        return RegionOutcome(*place, self._committed, fell_back, self._consecutive, reverted=reverted)


@dataclass(slots=True)
class _Followed:
    """A region, as of the notifications that were read, and the queries that follow it."""

    queries: dict[str, tuple[OnLive | None, OnCommitted | None]] = field(default_factory=dict)
    """By query id, its callbacks."""
    progress: RegionProgress | None = None
    live: Live | None = None
    """The live incarnation as of the newest answer."""
    is_live_due: bool = False
    """True if it was not passed to the callbacks yet."""
    committed: Position | None = None
    is_committed_due: bool = False

    def set_live(self, incarnation: str | None, run: str | None, *registrations: str) -> None:
        """Note the live incarnation as of the answers to these registrations."""
        before = self.live.answered if self.live is not None else frozenset[str]()
        self.live, self.is_live_due = Live(incarnation, run, before.union(registrations)), True

    def take_due(self) -> list[Callable[[], None]]:
        """Return the calls that are due, once."""
        due: list[Callable[[], None]] = []
        for on_live, on_committed in self.queries.values():
            if self.is_live_due and self.live is not None and on_live is not None:
                due.append(partial(on_live, self.live))
            if self.is_committed_due and self.committed is not None and on_committed is not None:
                due.append(partial(on_committed, self.committed))
        self.is_live_due = self.is_live_due and self.live is None
        self.is_committed_due = self.is_committed_due and self.committed is None
        return due


class Follower(_CommitsReader):
    """Reader of one commits topic, in a thread of its own, for the regions that follow it."""

    errors = (KafkaError, HookError, OSError, TimeoutError)

    def __init__(self, kafka: KafkaSettings, topic: str, callback: OnOutcome | None) -> None:
        super().__init__(kafka, topic, auto_offset_reset="latest")
        self._callback = callback
        self._regions: dict[tuple[str, str], _Followed] = defaultdict(_Followed)
        """By stream and region."""
        self._ends: Mapping[TopicPartition, int] = {}
        """Ends of the topic at the newest connection."""
        self._since: dict[TopicPartition, int] = {}
        """Offsets from which outcomes are reported: the ends of the topic at the first connection."""
        self._lock = threading.Lock()
        self._thread = LoopThread("sluicegate-outcomes")
        self._reading: Future[None] = self._thread.start(self._read())

    @property
    def retry_pause(self) -> float:
        return _OUTCOMES_RETRY

    def follow(
        self,
        region: Region,
        query: str,
        on_live: OnLive | None = None,
        on_committed: OnCommitted | None = None,
    ) -> None:
        """Notify a query about a region from now on. Repeated calls are allowed.

        `on_live` is called after each answer for the region, and for the last one before the call.
        `on_committed` is called in the same way with each committed position.
        """
        with self._lock:
            found = self._regions[region.stream, region.name]
            if not found.queries:
                found.progress = RegionProgress(region.stream, region.name)
            found.queries[query] = on_live, on_committed
            found.is_live_due = found.is_committed_due = True

    def leave(self, region: Region, query: str) -> bool:
        """Stop notifying a query about a region. Return True if no region is followed any more."""
        with self._lock:
            self._regions[region.stream, region.name].queries.pop(query, None)
            return not any(each.queries for each in self._regions.values())

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        count = await asyncio.to_thread(shared_publisher(self._kafka).partitions, self._topic, _PATIENCE)
        sources = [TopicPartition(self._topic, number) for number in range(count)]
        self._ends = await consumer.end_offsets(sources)
        consumer.assign(sources)
        for source, position in (await self._starts(consumer, self._ends)).items():
            consumer.seek(source, position)
        if failed := self._failures.clear():
            _log.warning("outcomes are read from %s again, after %d failures", self._topic, failed)

    def _receive(self, source: TopicPartition, offset: int, notification: Notification) -> None:
        self.apply(notification, is_new=offset >= self._since[source])

    def _after_poll(self) -> None:
        # Answers and positions are reported only after all partitions are read, so that an old one is never
        # reported as the newest.
        if all(self._positions.get(source, end) >= end for source, end in self._ends.items()):
            self._report()

    def _warn_failed(self, error: Exception) -> None:
        _log.warning(
            "outcomes cannot be read from %s (%d in a row): %r. Nothing that is written depends on it; "
            "it is tried again about every %g s",
            *(self._topic, self._failures.count, error, _OUTCOMES_RETRY),
        )

    async def _starts(
        self, consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets: positions of the last connection, else those of some minutes ago."""
        self._since = {**ends, **self._since}
        found = await consumer.offsets_for_times(dict.fromkeys(ends, int((time.time() - _RECENT) * 1000)))
        starts = {source: at.offset if (at := found.get(source)) else end for source, end in ends.items()}
        self._positions = {source: self._positions.get(source, start) for source, start in starts.items()}
        # A topic that was deleted and created again has smaller end offsets.
        return {source: min(at, ends[source]) for source, at in self._positions.items()}

    def _report(self) -> None:
        """Pass the newest answers and committed positions to the callbacks."""
        due: list[Callable[[], None]] = []
        with self._lock:
            followed = [each for each in self._regions.values() if each.queries]
            for each in followed:
                due += each.take_due()
        for report in due:
            # Outside the lock: a callback may be slow, or may call this object.
            try:
                report()
            except Exception:
                _log.exception("an answer or a committed position was not reported; it is reported again")
                with self._lock:
                    for each in followed:
                        each.is_live_due = each.is_committed_due = True

    def apply(self, notification: Notification, *, is_new: bool = True) -> None:
        """Apply a notification, and pass its outcomes to the callback. Exceptions of the callback are logged.

        Outcomes are reported only while they are new; answers and positions are always recorded.
        """
        stream, body = notification.stream, notification.body
        with self._lock:
            if isinstance(body, RegistrationAnswered):
                of = self._regions[stream, notification.region]
                of.set_live(body.live, body.run, body.registration)
                if of.progress is not None:
                    of.progress.begin(body.committed)
            elif isinstance(body, IncarnationsEnded):
                # A later answer may name another one.
                for region in body.incarnations:
                    self._regions[stream, region].set_live(None, None)
            elif isinstance(body, Committed):
                for region, at in body.cut.items():
                    found = self._regions[stream, region]
                    found.committed, found.is_committed_due = at, True
            followed = [each for (of, _), each in self._regions.items() if of == stream and each.queries]
        for each in followed if is_new else ():
            outcome = each.progress.apply(body) if each.progress is not None else None
            if outcome is None or self._callback is None:
                continue
            try:
                self._callback(outcome)
            except Exception:
                _log.exception("on_outcome failed for %s", outcome)


class Followers:
    """Followers of one session: one for each Kafka cluster and topic prefix."""

    def __init__(self, callback: OnOutcome | None = None) -> None:
        self._callback = callback
        self._followers: dict[tuple[KafkaSettings, str], Follower] = {}

    def follow(
        self,
        region: Region,
        query: str,
        on_live: OnLive | None = None,
        on_committed: OnCommitted | None = None,
    ) -> None:
        """Notify a query about a region from now on, as `Follower.follow`. Repeated calls are allowed. Never
        blocks."""
        key = region.kafka, region.commits_topic
        if key not in self._followers:
            self._followers[key] = Follower(*key, self._callback)
        self._followers[key].follow(region, query, on_live, on_committed)

    def leave(self, region: Region, query: str) -> None:
        """Stop notifying a query about a region. After the last one, the follower ends."""
        key = region.kafka, region.commits_topic
        follower = self._followers.get(key)
        if follower is not None and follower.leave(region, query):
            self._followers.pop(key).stop()

    def stop(self) -> None:
        """End all followers."""
        while self._followers:
            self._followers.popitem()[1].stop()


def _format_position(at: Position | None) -> str:
    return "nothing committed" if at is None else f"checkpoint {at.checkpoint} of {at.incarnation}"
