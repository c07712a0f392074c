"""State of a run of the demo, by the notifications of its commits."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Final, TextIO

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import REGIONS
from sluicegate.events.notifications import Committed, Notification, Stalled, read_notification
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_on
from sluicegate.kafka.topics import TopicNames
from sluicegate.texts import counted

TOPICS: Final = TopicNames("demo")
PARTITIONS: Final = 1

_POLL_MS: Final = 100
_END_SECONDS: Final = 20.0
_LINE_SECONDS: Final = 3.0


class Progress:
    """State of the run. A notification may be repeated after a kill; a repetition changes nothing."""

    def __init__(self) -> None:
        self.commits = 0
        self.rows = 0
        self.committed = dict.fromkeys(REGIONS, -1)
        """By region, the newest batch in the table; -1 before the first."""
        self.watermark: int | None = None
        self.stalled: str | None = None

    def notice(self, notification: Notification, time: int) -> None:
        """Apply a notification that was appended at `time`, in milliseconds since the Unix epoch."""
        match notification.body:
            case Committed() as body if body.decision > self.commits:
                self.commits, self.watermark = body.decision, body.watermark
                self.rows += (body.summary.total("rows") or 0) if body.summary is not None else 0
                self.committed |= {region: at.checkpoint for region, at in body.cut.items()}
            case Stalled() as body:
                self.stalled = None if body.ended else body.reason

    def __str__(self) -> str:
        """Format the progress in one line."""
        if not self.commits:
            return "nothing is committed yet"
        newest = "none yet"
        if self.watermark is not None:
            newest = f"{datetime.fromtimestamp(self.watermark / 1000, UTC):%Y-%m-%d %H:%M} UTC"
        return f"{counted(self.rows, 'row')} in {counted(self.commits, 'commit')}, watermark {newest}"


class Watch(threading.Thread):
    """Reads the notifications in its own thread, from the beginning of the topic."""

    def __init__(self, bootstrap: str, progress: Progress) -> None:
        super().__init__(name="watch", daemon=True)
        self.progress = progress
        self._kafka = bootstrap
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Read until `end` is called."""
        try:
            asyncio.run(self._read())
        except (KafkaError, OSError) as error:
            self._error = error

    def check(self) -> None:
        """Raise RunFailed if the topic cannot be read, or the stream is stalled."""
        if self._error is not None:
            raise RunFailed(f"the notifications cannot be read any more: {self._error!r}")
        if self.progress.stalled is not None:
            raise RunFailed(f"the coordinator stopped committing: {self.progress.stalled}")

    def end(self) -> None:
        """End the thread; may be repeated."""
        self._over.set()
        if self.is_alive():
            self.join(_END_SECONDS)

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        async with started(consumer):
            consumer.assign([TopicPartition(TOPICS.commits, number) for number in range(PARTITIONS)])
            while not self._over.is_set():
                for records in (await read_on(consumer, timeout_ms=_POLL_MS)).values():
                    for record in records:
                        found = read_notification(record.headers, record.value)
                        if isinstance(found, Notification):
                            self.progress.notice(found, record.timestamp)


class Display:
    """Writes notes, and the state at most every 3 s, each with the time; may be used from any thread."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = ""
        self._due = 0.0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Write a line."""
        self._out.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        self._out.flush()

    def show(self, text: str) -> None:
        """Write the newest state, unless it is the last one, or too early."""
        if text != self._shown and time.monotonic() >= self._due:
            self._shown, self._due = text, time.monotonic() + _LINE_SECONDS
            self.note(text)
