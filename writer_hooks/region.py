"""Region of a writer, its incarnations, and the events that the writer publishes for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import uuid4

from sluicegate.events.envelope import NO_CHECKPOINT, Envelope, EventType, with_counts
from sluicegate.events.files import FileTooLarge, attempt_digest, split_files
from sluicegate.events.models import (
    Assignment,
    Body,
    FilesWritten,
    Planned,
    Position,
    RegionRegistered,
    SingleRegionReason,
)
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks.errors import EventTooLarge
from sluicegate.writer_hooks.kafka import KafkaSettings

DEFAULT_PREFIX: Final = "sluicegate"
FOREVER: Final = "forever"
"""Value of the option registration.timeout that waits without limit."""


class Event(NamedTuple):
    """An event of the log, not encoded yet."""

    envelope: Envelope
    body: Body


class Registered(NamedTuple):
    """An accepted registration of this driver process."""

    incarnation: str
    run: str
    """Id of the registration."""


class Live(NamedTuple):
    """The live incarnation of a region, with the registration of its newest run, as of one answer."""

    incarnation: str | None
    run: str | None
    answered: frozenset[str] = frozenset()
    """Ids of the registrations of the region whose answers were read up to this one."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a stream, with its Kafka topics and timeouts."""

    stream: str
    name: str
    kafka: KafkaSettings
    assignment: Assignment
    bounded: bool = False
    single_region: SingleRegionReason | None = None
    """Reason for which the writers of the stream are one failure domain; None: regions are independent."""
    owned: bool = True
    """False: the source was restored without claiming ownership of earlier files."""
    table: str | None = None
    """URI of the table's folder, in the form that the coordinator compares; None: unknown."""
    topic_prefix: str = DEFAULT_PREFIX
    publish_timeout: float = 60.0
    """Seconds in which Kafka must acknowledge published events."""
    registration_timeout: float = 60.0
    """Seconds in which a coordinator must answer a registration; infinite: no limit."""

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
        incarnation: str,
        body: Body,
        *,
        checkpoint: int = NO_CHECKPOINT,
        writer: str = "",
        attempt: str = "",
    ) -> Event:
        """Return an event of this region with a new id."""
        place = (self.stream, self.name, incarnation, checkpoint)
        return Event(Envelope(str(uuid4()), kind, *place, writer, attempt), body)

    def registration(
        self,
        incarnation: str,
        base: Position | None,
        *,
        planned: Sequence[Planned] = (),
        replaces: str | None = None,
        probe: bool = False,
        rests: bool = False,
    ) -> Event:
        """Return the event that asks to add checkpoints of an incarnation to the stream.

        With `probe` it asks for the answer alone, and changes nothing. With `rests` the region is idle until
        its next completion.
        """
        body = RegionRegistered(
            base=base,
            replaces=replaces,
            planned=tuple(planned),
            assignment=self.assignment,
            single_region=self.single_region,
            table=self.table,
            bounded=self.bounded,
            owned=self.owned,
            probe=probe,
            rests=rests,
        )
        return self.event(EventType.REGION_REGISTERED, incarnation, body)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Identity of one writer attempt."""

    incarnation: str
    checkpoint: int
    writer: str
    id: str = field(default_factory=lambda: uuid4().hex)
    """Random for each try. It distinguishes the files and events of different tries of a writer."""


def digest_of(region: Region, attempt: Attempt) -> str:
    """Return the digest that the file names of the attempt contain."""
    return attempt_digest(
        region.stream, region.name, attempt.incarnation, attempt.checkpoint, attempt.writer, attempt.id
    )


def files_written(region: Region, attempt: Attempt, body: FilesWritten, limit: int) -> list[Event]:
    """Return events that list the files of an attempt, each small enough for a message of `limit` bytes.

    Raises EventTooLarge if a single file's description exceeds the limit.
    """
    try:
        parts = split_files(body, limit)
    except FileTooLarge as error:
        raise EventTooLarge(f"{error}; the option message.max.bytes must follow it") from error
    return [file_event(region, attempt, part) for part in parts]


def file_event(region: Region, attempt: Attempt, body: FilesWritten) -> Event:
    """Return the event with files of an attempt, with a new id."""
    envelope, _ = region.event(
        EventType.FILES_WRITTEN,
        attempt.incarnation,
        body,
        checkpoint=attempt.checkpoint,
        writer=attempt.writer,
        attempt=attempt.id,
    )
    return Event(with_counts(envelope, body), body)
