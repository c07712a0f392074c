"""Region of a writer, and the events that the writer publishes for it."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sluicegate.events.envelope import Envelope, EventType, NO_CHECKPOINT
from sluicegate.events.models import Assignment, Body, Event, FilesWritten
from sluicegate.events.naming import attempt_digest
from sluicegate.events.splitting import FileTooLarge, split_files
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks.errors import EventTooLarge
from sluicegate.writer_hooks.kafka import KafkaSettings

DEFAULT_PREFIX: Final = "sluicegate"
FOREVER: Final = "forever"
"""Value of the option opening.timeout that waits without limit."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a stream, with its Kafka topics and timeouts."""

    stream: str
    name: str
    kafka: KafkaSettings
    assignment: Assignment
    bounded: bool = False
    sink: Literal["independent", "all-to-all", "shared-files"] = "independent"
    owned: bool = True
    """False: the query was restored without claiming ownership of the files of its parents."""
    table: str | None = None
    """URI of the table's folder, in the form that the coordinator compares; None: unknown."""
    topic_prefix: str = DEFAULT_PREFIX
    publish_timeout: float = 60.0
    """Seconds in which Kafka must acknowledge published events."""
    opening_timeout: float = 60.0
    """Seconds in which a coordinator must answer an opening; infinite: no limit."""

    @property
    def events_topic(self) -> str:
        """Topic for the events of the region."""
        return TopicNames(self.topic_prefix).events

    @property
    def commits_topic(self) -> str:
        """Topic with the coordinator's answers."""
        return TopicNames(self.topic_prefix).commits

    def event(
        self,
        kind: EventType,
        lineage: str,
        body: Body,
        *,
        checkpoint: int = NO_CHECKPOINT,
        writer: str = "",
        files: int = 0,
        attempt: str = "",
        rows: int = 0,
    ) -> Event:
        """Return an event of this region with a new id."""
        place = (self.stream, self.name, lineage, checkpoint)
        envelope = Envelope(str(uuid4()), kind, *place, writer, files, attempt, rows=rows)
        return Event(envelope, body)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Identity of one writer attempt."""

    lineage: str
    checkpoint: int
    writer: str
    id: str = field(default_factory=lambda: uuid4().hex)
    """Random for each try. It distinguishes the files and events of different tries of a writer."""


def digest_of(region: Region, attempt: Attempt) -> str:
    """Return the digest that the file names of the attempt contain."""
    return attempt_digest(
        region.stream, region.name, attempt.lineage, attempt.checkpoint, attempt.writer, attempt.id
    )


def table_uri(location: str) -> str:
    """Return the canonical URI of a table's folder for its path or URI, as events contain it.

    A URI of another scheme than `file` is returned unchanged.
    """
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return location
    return Path(os.path.abspath(unquote(parts.path) if parts.scheme else location)).as_uri()


def files_written(region: Region, attempt: Attempt, body: FilesWritten, limit: int) -> list[Event]:
    """Return events that list the files of an attempt, each small enough for a message of `limit` bytes.

    Raises EventTooLarge if a single file's description exceeds the limit.
    """
    try:
        parts = split_files(body, limit)
    except FileTooLarge as error:
        raise EventTooLarge(f"{error}; the option message.max.bytes must follow it") from error
    return [
        region.event(
            EventType.FILES_WRITTEN,
            attempt.lineage,
            part,
            checkpoint=attempt.checkpoint,
            writer=attempt.writer,
            files=len(part.files),
            attempt=attempt.id,
            rows=sum(file.rows for file in part.files),
        )
        for part in parts
    ]
