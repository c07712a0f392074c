"""State of a run of the demo, read from the log alone: the batches of the jobs, the commits, and the marks.

The events of the jobs are the evidence, and each mark of the coordinator is compared with them.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import PARTITION, REGIONS
from sluicegate.events.codec import Flaw, read_record
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CutAbandoned
from sluicegate.events.notifications import Committed, Notification, PartitionDone, Stalled, read_notification
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_on
from sluicegate.kafka.topics import TopicNames

TOPICS: Final = TopicNames("demo")
PARTITIONS: Final = 1
MAX_FALLBACKS: Final = 3
MONTHS: Final = tuple(f"2013-{number:02}" for number in range(1, 13))

_POLL_MS: Final = 100
_END_SECONDS: Final = 20.0
_REDRAW_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 3.0


# --- batches and commits --------------------------------------------------------------------------


@dataclass(slots=True)
class RegionView:
    """Progress of one region."""

    batches: dict[int, int] = field(default_factory=dict)
    """Rows of each completed batch."""
    committed: int = -1
    """The newest batch in the table; -1 before the first."""
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

    Both may be repeated after a kill; a repetition changes nothing. `max_fallbacks` is the setting
    `max_consecutive_fallbacks`. A commit is counted as forced if a region was left out as often before it.
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
        """Apply an event of a job."""
        envelope, body = record.envelope, record.body
        if envelope.type is EventType.FILES_WRITTEN:
            self._rows[envelope.id] = envelope.rows
        elif isinstance(body, CheckpointCompleted):
            view, batch = self.regions[envelope.region], envelope.checkpoint
            view.batches.setdefault(batch, sum(self._rows.get(event, 0) for event in body.events))
            view.completed_at.setdefault(batch, record.time)
            self.marks.completed(envelope.region, batch, body.watermark)

    def notice(self, notification: Notification, time: int = 0) -> None:
        """Apply a notification appended at `time` (milliseconds)."""
        match notification.body:
            case Committed() as body if body.decision > self.commits:
                self._committed(body, time)
            case CutAbandoned() as body if notification.id not in self._abandonments:
                self._abandonments.add(notification.id)
                self.abandoned += 1
                self._fallbacks = (
                    dict.fromkeys(self._fallbacks, 0)
                    if body.kind == "forced"
                    else {name: n + (name in body.regions) for name, n in self._fallbacks.items()}
                )
            case Stalled() as body:
                self.stalled = None if body.ended else body.reason
            case PartitionDone() as body if body.values.get(PARTITION) in MONTHS:
                self.marks.marks.setdefault(notification.id, body)

    def _committed(self, body: Committed, time: int) -> None:
        self.commits, self.watermark = body.decision, body.watermark
        self.marks.commits[body.decision] = body
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

    def __str__(self) -> str:
        """Format the progress in one line."""
        if not any(view.batches for view in self.regions.values()):
            return "Spark is starting; no batch is complete yet"
        written = ", ".join(f"{name} {view.rows_written:,}" for name, view in self.regions.items())
        there = sum(view.rows_committed for view in self.regions.values())
        newest = "none yet" if self.watermark is None else f"{_text(self.watermark)} UTC"
        return f"{there:,} rows in {self.commits} commits, watermark {newest}; written: {written}"


# --- marks ----------------------------------------------------------------------------------------


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


class MarksVerdict(NamedTuple):
    """Result of the comparison of all marks with the log."""

    months: tuple[MonthDone, ...]
    wrong: tuple[str, ...]
    """A sentence for each month that was not marked exactly when all airports had passed it."""

    @property
    def exact(self) -> bool:
        """True if each month is marked once, and in time."""
        return len(self.months) == len(MONTHS) and not self.wrong


class Marks:
    """Marks of the twelve months, and the evidence: the airports' checkpoints, and the commits.

    A month must be marked with the first commit at which all airports have passed its end.
    """

    def __init__(self, regions: Iterable[str]) -> None:
        self.commits: dict[int, Committed] = {}
        self.marks: dict[str, PartitionDone] = {}
        """By the id of the notification, so each once."""
        self._completed: dict[str, dict[int, int]] = {region: {} for region in regions}
        """By airport and checkpoint, the watermark."""
        self._shown = 0

    def completed(self, region: str, checkpoint: int, watermark: int | None) -> None:
        """Add the watermark of a checkpoint."""
        if watermark is not None:
            self._completed[region].setdefault(checkpoint, watermark)

    @property
    def marked(self) -> int:
        """Number of months that have a mark."""
        return len({each.values[PARTITION] for each in list(self.marks.values())})

    def fresh(self) -> list[MonthDone]:
        """Return the marks since the last call whose evidence was read, in their order."""
        found: list[MonthDone] = []
        for mark in list(self.marks.values())[self._shown :]:
            if (month := self._done(mark)) is None:
                break
            found.append(month)
        self._shown += len(found)
        return found

    def verdict(self) -> MarksVerdict:
        """Compare the marks with the log. All of it must have been read."""
        expected, found, wrong = self._expected(), list[MonthDone](), list[str]()
        for month in MONTHS:
            marks = [mark for mark in self.marks.values() if mark.values[PARTITION] == month]
            done = [each for mark in marks if (each := self._done(mark)) is not None]
            found += done[:1]
            if len(done) != 1 or len(marks) != 1:
                wrong.append(f"{month} has {len(marks)} marks, {len(done)} of them with a commit")
            elif done[0].decision != expected.get(month):
                wrong.append(f"{done[0]}; all airports had passed it with commit {expected.get(month)}")
            elif (newest := self._newest(month)) != marks[0].decision or newest > done[0].decision:
                wrong.append(f"{done[0]}; commit {newest} gave it files")
        return MarksVerdict(tuple(found), tuple(wrong))

    def _done(self, mark: PartitionDone) -> MonthDone | None:
        """Return a mark with its commit, which has the snapshot that the mark names; None: not read yet."""
        for decision, body in list(self.commits.items()):
            if body.snapshot is not None and body.snapshot.id == mark.snapshot:
                if (watermarks := self._watermarks(decision)) is None:
                    return None
                return MonthDone(str(mark.values[PARTITION]), decision, watermarks)
        return None

    def _watermarks(self, decision: int) -> dict[str, int] | None:
        """Return the watermark of each airport at a commit; None if one has none, or was not read yet."""
        positions: dict[str, int] = {}
        for number in range(1, decision + 1):
            if number not in self.commits:
                return None
            # An airport whose year is over is in no further cut.
            positions |= {name: each.checkpoint for name, each in self.commits[number].cut.items()}
        if any(positions.get(region, -1) not in of for region, of in self._completed.items()):
            return None
        # A checkpoint has the newest time of its own rows.
        return {
            region: max(at for number, at in list(of.items()) if number <= positions[region])
            for region, of in self._completed.items()
        }

    def _expected(self) -> dict[str, int]:
        """Return the first commit at which all airports have passed each month."""
        found: dict[str, int] = {}
        for decision in sorted(self.commits):
            if (watermarks := self._watermarks(decision)) is not None:
                passed = [month for month in MONTHS if min(watermarks.values()) > end_of(month)]
                found = dict.fromkeys(passed, decision) | found
        return found

    def _newest(self, month: str) -> int:
        """Return the newest commit that gave files to a month."""
        return max(
            (
                decision
                for decision, body in self.commits.items()
                if body.summary is not None and {PARTITION: month} in (body.summary.touched or ())
            ),
            default=0,
        )


def end_of(month: str) -> int:
    """Return the end of a month in UTC, in milliseconds since the Unix epoch."""
    year, number = int(month[:4]), int(month[5:])
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return round(end.timestamp() * 1_000)


def _text(millis: int) -> str:
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M}"


# --- reading and showing --------------------------------------------------------------------------


class Watch(threading.Thread):
    """Reads events and notifications in its own thread, from the beginning of the topics."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="watch", daemon=True)
        self.progress = Progress(REGIONS)
        self._kafka = bootstrap
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Read until `end` is called, and then to the end of the topics."""
        try:
            asyncio.run(self._read())
        except (KafkaError, OSError) as error:
            self._error = error

    def check(self) -> None:
        """Raise RunFailed if the log cannot be read, or the stream is stalled."""
        if self._error is not None:
            raise RunFailed(f"the log cannot be read any more: {self._error!r}")
        if self.progress.stalled is not None:
            raise RunFailed(f"the coordinator stopped committing: {self.progress.stalled}")

    def end(self) -> None:
        """Read what is in the topics now, and end the thread; may be repeated."""
        self._over.set()
        if self.is_alive():
            self.join(_END_SECONDS)

    async def _read(self) -> None:
        sources = [
            TopicPartition(topic, n) for topic in (TOPICS.events, TOPICS.commits) for n in range(PARTITIONS)
        ]
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        async with started(consumer):
            consumer.assign(sources)
            while not self._over.is_set():
                await self._read_on(consumer)
            ends = await consumer.end_offsets(sources)
            while any([await consumer.position(source) < end for source, end in ends.items()]):
                await self._read_on(consumer)

    async def _read_on(self, consumer: AIOKafkaConsumer) -> None:
        for records in (await read_on(consumer, timeout_ms=_POLL_MS)).values():
            for record in records:
                self._apply(record)

    def _apply(self, record: Any) -> None:
        if record.topic == TOPICS.events:
            reading = read_record(record.offset, record.timestamp, record.headers, record.value)
            if reading.record is not None:
                self.progress.apply(reading.record)
        elif not isinstance(found := read_notification(record.headers, record.value), Flaw):
            self.progress.notice(found, record.timestamp)


class Display:
    """Writes notes, and below them the newest state; may be used from any thread.

    A terminal has the state in one line that is replaced. Elsewhere it is a new line, at most every 3 s.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._lock = threading.Lock()
        self._line = ""
        self._due = 0.0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Write a permanent line."""
        with self._lock:
            self._write(f"{text}\n")
            if self._terminal and self._line:
                self._write(self._line)

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show the newest state. Unless `at_once`, updates are limited to a readable rate."""
        with self._lock:
            if text == self._line or (time.monotonic() < self._due and not at_once):
                return
            self._line = text
            self._due = time.monotonic() + (_REDRAW_SECONDS if self._terminal else _LINE_SECONDS)
            self._write(text if self._terminal else f"{text}\n")

    def keep(self) -> None:
        """Keep the last state on the screen, before other output."""
        with self._lock:
            if self._terminal and self._line:
                self._out.write("\n")
            self._line = ""

    def _write(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f} s  {text}"
        if self._terminal:
            # A longer line would wrap, and could not be replaced.
            width = shutil.get_terminal_size().columns - 1
            line = f"\r\x1b[K{line if text.endswith(chr(10)) else line[:width]}"
        self._out.write(line)
        self._out.flush()
