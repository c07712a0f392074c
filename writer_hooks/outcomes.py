"""Outcomes of commits for the regions of this driver, read in the background from the commits topic."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events.codec import read_event
from sluicegate.events.models import Body, CutCommitted, CutVoided, Event, OpeningAnswered, Position
from sluicegate.kafka.pauses import spread
from sluicegate.kafka.starting import start_client
from sluicegate.writer_hooks.errors import HookError
from sluicegate.writer_hooks.kafka import KafkaSettings
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region

_log = logging.getLogger(__name__)

_POLL_MS: Final = 500
_RETRY: Final = 5.0  # seconds
_STOP: Final = 5.0
_PATIENCE: Final = 30.0


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
    forced: bool
    """True if the commit had to be full, because a region reached the limit of consecutive fallbacks."""
    voided: bool
    """True if the decision was reverted. The region is excluded until it is rewound."""


OnOutcome = Callable[[RegionOutcome], None]
OnOpened = Callable[[str | None, Collection[str]], None]
"""Callback with the incarnation that was accepted last for a region, and those refused since."""
_NEWS: Final = 600.0
"""Seconds before the present from which openings are read.

A query may be replaced before its driver starts to read.
"""


class Standing:
    """Progress of one region, updated by each notification."""

    def __init__(self, stream: str, region: str) -> None:
        self.stream = stream
        self.region = region
        self._committed: Position | None = None
        self._consecutive = 0

    def take(self, body: Body) -> RegionOutcome | None:
        """Return the outcome of a notification for the region; None if it does not concern the region."""
        if isinstance(body, CutVoided) and body.region == self.region:
            _log.warning(
                "region %s of %s: decision %d was voided, checkpoint %d is held out; set the query back with "
                "sluicegate rewind",
                *(self.region, self.stream, body.decision, body.checkpoint),
            )
            return self._outcome(body.decision, fell_back=False, forced=False, voided=True)
        if not isinstance(body, CutCommitted):
            return None
        return self._committed_cut(body)

    def _committed_cut(self, body: CutCommitted) -> RegionOutcome:
        fell_back, at = self.region in body.fallbacks, body.cut.get(self.region)
        if fell_back:
            self._consecutive += 1
            if self._consecutive == 1:
                _log.warning(
                    "region %s of %s stayed behind in commit %d, at %s; the others go on",
                    *(self.region, self.stream, body.decision, _told(at)),
                )
        elif at != self._committed:
            if self._consecutive:
                _log.warning(
                    "region %s of %s is included again in commit %d, up to %s, after %d without it",
                    *(self.region, self.stream, body.decision, _told(at), self._consecutive),
                )
            self._consecutive = 0
        self._committed = at
        return self._outcome(body.decision, fell_back=fell_back, forced=body.forced, voided=False)

    def _outcome(self, decision: int, *, fell_back: bool, forced: bool, voided: bool) -> RegionOutcome:
        return RegionOutcome(
            *(self.stream, self.region, decision, self._committed, fell_back, self._consecutive),
            forced=forced,
            voided=voided,
        )


class Follower:
    """Reader of one commits topic, in a thread of its own, for the regions that follow it."""

    def __init__(self, kafka: KafkaSettings, topic: str, callback: OnOutcome | None) -> None:
        self._kafka = kafka
        self._topic = topic
        self._callback = callback
        self._standings: dict[tuple[str, str], Standing] = {}
        self._queries: dict[tuple[str, str], dict[str, OnOpened | None]] = {}
        """By stream and region, the callback of each query that follows it, by query id."""
        self._opened: dict[tuple[str, str], str] = {}
        """By stream and region, the incarnation accepted last, up to the position that is read."""
        self._refused: dict[tuple[str, str], set[str]] = {}
        """By stream and region, the incarnations whose last opening was refused."""
        self._news: set[tuple[str, str]] = set()
        """Regions whose last opening was not passed to the callbacks yet."""
        self._positions: dict[TopicPartition, int] = {}
        """Positions at which the next connection continues."""
        self._since: dict[TopicPartition, int] = {}
        """Offsets from which outcomes are reported: the ends of the topic at the first connection."""
        self._lock = threading.Lock()
        self._failed = 0
        self._thread = LoopThread("sluicegate-outcomes")
        self._reading: Future[None] = self._thread.start(self._read())

    def follow(self, region: Region, query: str, on_opened: OnOpened | None = None) -> None:
        """Notify a query about a region from now on. Repeated calls are allowed.

        `on_opened` is called for each accepted opening of the region, and for the last one before the call.
        """
        with self._lock:
            key = region.stream, region.name
            self._standings.setdefault(key, Standing(*key))
            self._queries.setdefault(key, {})[query] = on_opened
            self._news.add(key)

    def leave(self, region: Region, query: str) -> bool:
        """Stop notifying a query about a region. Return True if no region is followed any more."""
        with self._lock:
            key = region.stream, region.name
            queries = self._queries.get(key, {})
            queries.pop(query, None)
            if not queries:
                self._queries.pop(key, None)
                self._standings.pop(key, None)
            return not self._standings

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()

    async def _read(self) -> None:
        """Read until the task is cancelled. Failures are logged and retried, because no caller waits for the
        result."""
        while not _cancelled():
            try:
                await self._read_on()
            except (KafkaError, HookError, OSError, TimeoutError) as error:
                self._tell_failed(error)
            if not _cancelled():
                await asyncio.sleep(spread(_RETRY))

    def _tell_failed(self, error: Exception) -> None:
        self._failed += 1
        if self._failed & (self._failed - 1):
            return  # logged the first time, the second, the fourth, the eighth ...
        _log.warning(
            "outcomes cannot be read from %s (%d in a row): %r. Nothing that is written depends on it; "
            "it is tried again about every %g s",
            *(self._topic, self._failed, error, _RETRY),
        )

    def _tell_read(self) -> None:
        if self._failed:
            _log.warning("outcomes are read from %s again, after %d failures", self._topic, self._failed)
        self._failed = 0

    async def _read_on(self) -> None:
        consumer = AIOKafkaConsumer(
            **self._kafka.client_options(), enable_auto_commit=False, auto_offset_reset="latest"
        )
        try:
            await start_client(consumer)
            count = await asyncio.to_thread(shared_publisher(self._kafka).partitions, self._topic, _PATIENCE)
            sources = [TopicPartition(self._topic, number) for number in range(count)]
            ends = await consumer.end_offsets(sources)
            consumer.assign(sources)
            for source, position in (await self._starts(consumer, ends)).items():
                consumer.seek(source, position)
            self._tell_read()
            while True:
                for source, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                    for record in records:
                        event = read_event(record.headers, record.value)
                        if isinstance(event, Event):
                            self.take(event, is_new=record.offset >= self._since[source])
                        self._positions[source] = record.offset + 1
                # Openings are reported only after all partitions are read, so that an old one is never
                # reported as the last.
                if all(self._positions.get(source, end) >= end for source, end in ends.items()):
                    self._tell_opened()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP):
                    await consumer.stop()

    async def _starts(
        self, consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets: positions of the last connection, else those of some minutes ago."""
        self._since = {**ends, **self._since}
        found = await consumer.offsets_for_times(dict.fromkeys(ends, int((time.time() - _NEWS) * 1000)))
        starts = {source: at.offset if (at := found.get(source)) else end for source, end in ends.items()}
        self._positions = {source: self._positions.get(source, start) for source, start in starts.items()}
        # A topic that was deleted and created again has smaller end offsets.
        return {source: min(at, ends[source]) for source, at in self._positions.items()}

    def _tell_opened(self) -> None:
        """Pass the openings that were accepted last to the callbacks."""
        with self._lock:
            ready = self._news & (self._opened.keys() | self._refused.keys()) & self._queries.keys()
            self._news -= ready
            told = [
                (each, self._opened.get(key), frozenset(self._refused.get(key, ())))
                for key in ready
                for each in self._queries[key].values()
            ]
        for on_opened, lineage, refused in told:
            # Outside the lock: a callback may be slow, or may call this object.
            try:
                if on_opened is not None:
                    on_opened(lineage, refused)
            except Exception:
                _log.exception("the opening of the lineage %s was not told", lineage)

    def _answered(self, key: tuple[str, str], lineage: str, answer: OpeningAnswered) -> None:
        with self._lock:
            refused = self._refused.setdefault(key, set())
            if answer.accepted:
                self._opened[key] = lineage
                refused.discard(lineage)
            else:
                refused.add(lineage)
            self._news.add(key)

    def take(self, event: Event, *, is_new: bool = True) -> None:
        """Apply a notification, and pass its outcomes to the callback. Exceptions of the callback are logged.

        Outcomes are reported only while they are new; openings are always recorded.
        """
        envelope = event.envelope
        if isinstance(event.body, OpeningAnswered):
            self._answered((envelope.stream, envelope.region), envelope.lineage, event.body)
        if not is_new:
            return
        with self._lock:
            concerned = [each for (stream, _), each in self._standings.items() if stream == envelope.stream]
        for standing in concerned:
            outcome = standing.take(event.body)
            if outcome is None or self._callback is None:
                continue
            try:
                self._callback(outcome)
            except Exception:
                _log.exception("on_outcome failed for %s", outcome)


def _cancelled() -> bool:
    """Return True if the current task is cancelled.

    A client that is closing suppresses the CancelledError itself.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Outcomes:
    """Followers of one session: one for each Kafka cluster and topic prefix."""

    def __init__(self, callback: OnOutcome | None = None) -> None:
        self._callback = callback
        self._followers: dict[tuple[KafkaSettings, str], Follower] = {}

    def follow(self, region: Region, query: str, on_opened: OnOpened | None = None) -> None:
        """Notify a query about a region from now on, as `Follower.follow`. Repeated calls are allowed. Never
        blocks."""
        key = region.kafka, region.commits_topic
        if key not in self._followers:
            self._followers[key] = Follower(*key, self._callback)
        self._followers[key].follow(region, query, on_opened)

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


def _told(at: Position | None) -> str:
    return "nothing committed" if at is None else f"checkpoint {at.checkpoint} of {at.lineage}"
