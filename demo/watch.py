"""State of the run, read from the log: batches completed by the jobs, and commits of the coordinator."""

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.demo.errors import RunFailed
from sluicegate.demo.marks import Marks
from sluicegate.demo.services import PARTITIONS, TOPICS
from sluicegate.events.codec import Flaw, read_record
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CutAbandoned, RegionClosed
from sluicegate.events.notifications import Committed, Notification, Stalled, read_notification
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_on

MAX_FALLBACKS: Final = 3
_POLL_MS: Final = 100
_END_SECONDS: Final = 10.0


@dataclass(slots=True)
class RegionView:
    """Progress of one region."""

    batches: dict[int, int] = field(default_factory=dict)
    """Rows of each completed batch."""
    committed: int = -1
    """The newest batch in the table; -1 before the first."""
    closed: bool = False
    completed_at: dict[int, int] = field(default_factory=dict)
    """Completion time of each batch, in milliseconds since the Unix epoch, by append times."""
    visible_at: dict[int, int] = field(default_factory=dict)
    """Append time of the notification of the commit that includes each batch."""

    @property
    def rows_written(self) -> int:
        """Rows of all completed batches."""
        return sum(self.batches.values())

    @property
    def rows_committed(self) -> int:
        """Rows of the batches that are in the table."""
        return sum(rows for batch, rows in self.batches.items() if batch <= self.committed)


class Progress:
    """State of the run, built from the events and the notifications in their order.

    `max_fallbacks` is the setting `max_consecutive_fallbacks`. A commit is counted as forced if a region was
    left out as often before it.
    """

    def __init__(self, regions: Iterable[str], max_fallbacks: int = MAX_FALLBACKS) -> None:
        self.regions = {region: RegionView() for region in regions}
        self.commits = 0
        self.watermark: int | None = None
        self.stalled: str | None = None
        self.partial_cuts = 0
        self.forced_full = 0
        self.abandoned = 0
        self.marks = Marks(self.regions)
        self.max_fallbacks = 0
        """Maximum of the regions' counters of fallbacks in a row; an abandoned full commit restarts them."""
        self._limit = max_fallbacks
        self._fallbacks = dict.fromkeys(self.regions, 0)
        self._abandonments: set[str] = set()
        self._rows: dict[str, int] = {}

    def apply(self, record: LogRecord) -> None:
        """Apply an event of a job; repeated events change nothing."""
        envelope, body = record.envelope, record.body
        self.marks.apply(record)
        match body:
            case CheckpointCompleted():
                self._completed(envelope, body, record.time)
            case RegionClosed():
                self.regions[envelope.region].closed = True
            case None if envelope.type is EventType.FILES_WRITTEN:
                self._rows[envelope.id] = envelope.rows

    def notice(self, notification: Notification, time: int = 0) -> None:
        """Apply a notification appended at `time` (milliseconds); repeated ones change nothing."""
        self.marks.notice(notification)
        match notification.body:
            case Committed() as body:
                self._committed(body, time)
            case CutAbandoned() as body if notification.id not in self._abandonments:
                self._abandonments.add(notification.id)
                self._abandoned(body)
            case Stalled() as body:
                self.stalled = None if body.ended else body.reason

    def _abandoned(self, body: CutAbandoned) -> None:
        self.abandoned += 1
        if body.kind == "forced":
            self._fallbacks = dict.fromkeys(self._fallbacks, 0)
        else:
            for region in body.regions:
                self._fallbacks[region] += 1

    def _completed(self, envelope: Envelope, body: CheckpointCompleted, time: int) -> None:
        rows = sum(self._rows.get(event, 0) for event in body.events)
        view = self.regions[envelope.region]
        view.batches.setdefault(envelope.checkpoint, rows)
        view.completed_at.setdefault(envelope.checkpoint, time)

    def _committed(self, body: Committed, time: int) -> None:
        if body.decision <= self.commits:
            return
        self.commits = body.decision
        self.watermark = body.watermark
        self.partial_cuts += bool(body.fallbacks)
        self.forced_full += max(self._fallbacks.values()) >= self._limit
        for region, position in body.cut.items():
            view = self.regions[region]
            moved = range(view.committed + 1, position.checkpoint + 1)
            view.visible_at.update(dict.fromkeys(moved, time))
            view.committed = position.checkpoint
            self._fallbacks[region] = 0 if moved else self._fallbacks[region]
        for region in body.fallbacks:
            self._fallbacks[region] += 1
        self.max_fallbacks = max(self.max_fallbacks, *self._fallbacks.values())

    def waits(self, regions: Iterable[str], span: tuple[int, int] | None = None) -> list[int]:
        """Return the milliseconds from the completion of each batch to its commit notification.

        With `span`, return only batches completed in it (milliseconds of append time, both ends included).
        """
        return [
            view.visible_at[batch] - at
            for view in (self.regions[region] for region in regions)
            for batch, at in view.completed_at.items()
            if batch in view.visible_at and (span is None or span[0] <= at <= span[1])
        ]


class Watch(threading.Thread):
    """Reads events and notifications in its own thread, from the beginning of the topics."""

    def __init__(self, bootstrap: str, progress: Progress) -> None:
        super().__init__(name="watch", daemon=True)
        self._kafka = bootstrap
        self._progress = progress
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Read until `end` is called."""
        try:
            asyncio.run(self._read())
        except (KafkaError, OSError) as error:
            self._error = error

    def check(self) -> None:
        """Raise RunFailed if the log cannot be read, or the stream is stalled."""
        if self._error is not None:
            raise RunFailed(f"the log cannot be read any more: {self._error!r}")
        if self._progress.stalled is not None:
            raise RunFailed(f"the coordinator stopped committing: {self._progress.stalled}")

    def end(self) -> None:
        """Stop reading, and wait up to 10 s for the thread."""
        self._over.set()
        if self.is_alive():
            self.join(_END_SECONDS)

    async def _read(self) -> None:
        async with started(
            AIOKafkaConsumer(
                bootstrap_servers=self._kafka, enable_auto_commit=False, auto_offset_reset="earliest"
            )
        ) as consumer:
            topics = (TOPICS.events, TOPICS.commits)
            consumer.assign([TopicPartition(topic, n) for topic in topics for n in range(PARTITIONS)])
            while not self._over.is_set():
                for records in (await read_on(consumer, timeout_ms=_POLL_MS)).values():
                    for record in records:
                        self._apply(record)

    def _apply(self, record: Any) -> None:
        if record.topic == TOPICS.events:
            reading = read_record(record.offset, record.timestamp, record.headers, record.value)
            if reading.record is not None:
                self._progress.apply(reading.record)
            return
        notification = read_notification(record.headers, record.value)
        if not isinstance(notification, Flaw):
            self._progress.notice(notification, record.timestamp)
