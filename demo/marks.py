"""Marks of the twelve months, each compared with the watermarks of the airports at its commit.

A month must be marked with the first commit at which all airports have passed its end. A coordinator that was
killed may repeat a mark, under the same id.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.stream.records import read_topic
from sluicegate.demo.data import PARTITION, REGIONS
from sluicegate.demo.errors import RunFailed
from sluicegate.demo.services import PARTITIONS, TOPICS
from sluicegate.events.codec import Flaw, read_record
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CheckpointCompleted
from sluicegate.events.notifications import Committed, Notification, PartitionDone, read_notification
from sluicegate.kafka.clients import started

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
