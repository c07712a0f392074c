"""Marks of the twelve months, each compared with the watermarks of the airports at its commit.

A month must be marked with the first commit at which all airports have passed its end. A coordinator that was
killed may repeat a mark, under the same id.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import PARTITION, REGIONS
from sluicegate.cli.local.services import PARTITIONS, TOPICS
from sluicegate.coordinator.stream.records import read_topic
from sluicegate.events.codec import Flaw, read_record
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CutAbandoned, RegionClosed
from sluicegate.events.notifications import Committed, Notification, PartitionDone, Stalled, read_notification
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_on

MONTHS: Final = tuple(f"2013-{number:02}" for number in range(1, 13))
LISTENER: Final = f"""
[streams.flights.listeners.months]
type = "mark-done"
start = "earliest"
timestamp_pattern = "${PARTITION}-01"
interval = "1 month"
actions = ["success-file", "mark-event"]
"""
"""Section of the listener in the coordinator's settings."""
_PATIENCE: Final = 60.0
"""Seconds without progress after which reading the topics fails."""


@dataclass(frozen=True, slots=True)
class MonthDone:
    """A month that is marked."""

    month: str
    decision: int
    """Number of the commit that it is marked with."""
    watermarks: Mapping[str, int]
    """By airport, its watermark at that commit, in milliseconds since the Unix epoch."""

    def __str__(self) -> str:
        places = ", ".join(f"{region} at {_text(at)}" for region, at in self.watermarks.items())
        return f"{self.month} is done with commit {self.decision}: {places}"


@dataclass(frozen=True, slots=True)
class MarksVerdict:
    """Result of the comparison of all marks with the log."""

    months: tuple[MonthDone, ...]
    wrong: tuple[str, ...]
    """A sentence for each month that was not marked exactly when all airports had passed it."""

    @property
    def exact(self) -> bool:
        """True if each month is marked once, and in time."""
        return len(self.months) == len(MONTHS) and not self.wrong


class Marks:
    """Marks of the months, and the evidence: the airports' checkpoints, and the commits."""

    def __init__(self, regions: Iterable[str] = REGIONS) -> None:
        self._completed: dict[str, dict[int, int]] = {region: {} for region in regions}
        """By airport and checkpoint, the watermark."""
        self._commits: dict[int, Committed] = {}
        self._marks: dict[str, PartitionDone] = {}
        """By id, so each once."""
        self._shown = 0

    def apply(self, record: LogRecord) -> None:
        """Apply an event of a job."""
        body = record.body
        if isinstance(body, CheckpointCompleted) and body.watermark is not None:
            own = self._completed[record.envelope.region]
            own.setdefault(record.envelope.checkpoint, body.watermark)

    def notice(self, notification: Notification) -> None:
        """Apply a notification; a repeated one changes nothing."""
        match notification.body:
            case Committed() as body:
                self._commits.setdefault(body.decision, body)
            case PartitionDone() as body if body.values.get(PARTITION) in MONTHS:
                self._marks.setdefault(notification.id, body)

    @property
    def marked(self) -> int:
        """Number of months that have a mark."""
        return len({each.values[PARTITION] for each in list(self._marks.values())})

    def fresh(self) -> list[MonthDone]:
        """Return the marks since the last call whose evidence was read, in their order."""
        found: list[MonthDone] = []
        for mark in list(self._marks.values())[self._shown :]:
            month = self._done(mark)
            if month is None:
                break
            found.append(month)
            self._shown += 1
        return found

    def verdict(self) -> MarksVerdict:
        """Compare the marks with the log. All of it must have been read."""
        expected, found = self._expected(), list[MonthDone]()
        marks: dict[str | None, list[PartitionDone]] = {month: [] for month in MONTHS}
        for mark in self._marks.values():
            marks[mark.values[PARTITION]].append(mark)
        wrong = list[str]()
        for month in MONTHS:
            done = [each for mark in marks[month] if (each := self._done(mark)) is not None]
            found += done[:1]
            if len(done) != 1 or len(marks[month]) != 1:
                wrong.append(f"{month} has {len(marks[month])} marks, {len(done)} of them with a commit")
            elif done[0].decision != expected.get(month):
                wrong.append(f"{done[0]}; all airports had passed it with commit {expected.get(month)}")
            elif (newest := self._newest(month)) != marks[month][0].decision or newest > done[0].decision:
                wrong.append(f"{done[0]}; commit {newest} gave it files")
        return MarksVerdict(tuple(found), tuple(wrong))

    def _done(self, mark: PartitionDone) -> MonthDone | None:
        """Return a mark with its commit, which has the snapshot that the mark names; None: not read yet."""
        decision = next(
            (
                each.decision
                for each in list(self._commits.values())
                if each.snapshot is not None and each.snapshot.snapshot == mark.snapshot
            ),
            None,
        )
        watermarks = self._watermarks(decision) if decision is not None else None
        if decision is None or watermarks is None:
            return None
        return MonthDone(str(mark.values[PARTITION]), decision, watermarks)

    def _watermarks(self, decision: int) -> dict[str, int] | None:
        """Return the watermark of each airport at a commit; None if one has none, or was not read yet."""
        positions: dict[str, int] = {}
        for number in range(1, decision + 1):
            if number not in self._commits:
                return None
            # An airport whose year is over is in no further cut.
            positions |= {name: each.checkpoint for name, each in self._commits[number].cut.items()}
        found: dict[str, int] = {}
        for region, completed in self._completed.items():
            position = positions.get(region, -1)
            if position not in completed:
                return None
            # A checkpoint has the newest time of its own rows.
            found[region] = max(at for number, at in list(completed.items()) if number <= position)
        return found

    def _expected(self) -> dict[str, int]:
        """Return the first commit at which all airports have passed each month."""
        found: dict[str, int] = {}
        for decision in sorted(self._commits):
            watermarks = self._watermarks(decision)
            if watermarks is not None:
                passed = [month for month in MONTHS if min(watermarks.values()) > end_of(month)]
                found |= {month: decision for month in passed if month not in found}
        return found

    def _newest(self, month: str) -> int:
        """Return the newest commit that gave files to a month."""
        touched = {
            decision: each.summary.touched or () if each.summary is not None else ()
            for decision, each in self._commits.items()
        }
        return max((number for number, parts in touched.items() if {PARTITION: month} in parts), default=0)


def end_of(month: str) -> int:
    """Return the end of a month in UTC, in milliseconds since the Unix epoch."""
    year, number = int(month[:4]), int(month[5:])
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return round(end.timestamp() * 1_000)


def read_marks(bootstrap: str) -> Marks:
    """Read both topics from their beginning to their end. Raises RunFailed."""
    try:
        return asyncio.run(_read_all(bootstrap))
    except (KafkaError, TimeoutError, OSError) as error:
        raise RunFailed(f"the marks cannot be read: {error!r}") from error


async def _read_all(bootstrap: str) -> Marks:
    marks = Marks()

    def keep(record: Any) -> None:
        if record.topic == TOPICS.events:
            reading = read_record(record.offset, record.timestamp, record.headers, record.value)
            if reading.record is not None:
                marks.apply(reading.record)
        elif not isinstance(found := read_notification(record.headers, record.value), Flaw):
            marks.notice(found)

    sources = [
        TopicPartition(topic, n) for topic in (TOPICS.events, TOPICS.commits) for n in range(PARTITIONS)
    ]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with started(consumer):
        await read_topic(consumer, sources, _PATIENCE, keep)
    return marks


def _text(millis: int) -> str:
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M}"


# State of the run, read from the log: batches completed by the jobs, and commits of the coordinator.

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


# Progress of the demo: a block that redraws itself on a terminal, else plain lines.

_REDRAW_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 3.0
_WIDTH: Final = 24
_UP: Final = "\x1b[{}A\x1b[J"


class Display:
    """Writes notes and, on a terminal, the newest state below them; may be used from any thread."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.live = out.isatty()
        """True if the block redraws itself."""
        self._lock = threading.Lock()
        self._block: Sequence[str] = ()
        self._shown = 0.0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Write a permanent line."""
        with self._lock:
            self._clear()
            self._out.write(f"{self._clock()}  {text}\n")
            self._draw()

    def show(self, block: Sequence[str], *, at_once: bool = False) -> None:
        """Show the newest state. Unless `at_once`, updates are limited to a readable rate."""
        with self._lock:
            now = time.monotonic()
            pause = _REDRAW_SECONDS if self.live else _LINE_SECONDS
            if now - self._shown < pause and not at_once:
                return
            # Plain lines are permanent, so a repeated one is omitted.
            if not self.live and block == self._block:
                return
            self._shown = now
            self._clear()
            self._block = block
            if not self.live:
                self._out.write(f"{self._clock()}  {' | '.join(block)}\n")
            self._draw()

    def leave(self) -> None:
        """Keep the last state on the screen."""
        with self._lock:
            self._block = ()

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:6.1f} s"

    def _clear(self) -> None:
        if self.live and self._block:
            self._out.write(_UP.format(len(self._block)))

    def _draw(self) -> None:
        if self.live:
            self._out.writelines(f"{line}\n" for line in self._block)
        self._out.flush()


def describe(progress: Progress, totals: Mapping[str, int], kills: str, *, bars: bool) -> list[str]:
    """Format the progress: a line for each region, and one for the table."""
    if not any(view.batches for view in progress.regions.values()):
        return ["Spark is starting; no batch is complete yet"]
    lines = []
    for region, total in totals.items():
        view = progress.regions[region]
        bar = f"[{_bar(view.rows_committed, view.rows_written, total)}]  " if bars else ""
        lines.append(
            f"{region} {bar}{len(view.batches)} batches, {view.rows_written:,} of {total:,} rows, "
            f"{_committed(view.committed)}{', closed' if view.closed else ''}"
        )
    lines.append(f"table: {progress.commits} commits, watermark {_time(progress.watermark)}{kills}")
    return lines


def _committed(batch: int) -> str:
    return "nothing committed yet" if batch < 0 else f"committed up to batch {batch}"


def _bar(committed: int, written: int, total: int) -> str:
    """Format a bar: committed rows as `#`, written but uncommitted rows as `=`."""
    first, second = (_WIDTH * part // max(total, 1) for part in (committed, max(written, committed)))
    return "#" * first + "=" * (second - first) + "." * (_WIDTH - second)


def _time(millis: int | None) -> str:
    if millis is None:
        return "none yet"
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M} UTC"
