"""Envelope of an event: the attributes that routing and aggregation need, without the body."""

from enum import StrEnum
from typing import Final, NamedTuple

from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutVoided,
    FilesWritten,
    LineageCarried,
    OpeningAnswered,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    SavepointTaken,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)


class EventType(StrEnum):
    """Type of an event; on the wire `sluicegate.<type>.v<major>`."""

    REGION_OPENED = "region.opened"
    FILES_WRITTEN = "files.written"
    CHECKPOINT_COMPLETED = "checkpoint.completed"
    CHECKPOINT_FAILED = "checkpoint.failed"
    LINEAGE_CARRIED = "lineage.carried"
    REGION_HEARTBEAT = "region.heartbeat"
    REGION_CLOSED = "region.closed"
    STREAM_POLICY = "stream.policy"
    STREAM_COMMAND = "stream.command"
    CUT_DECIDED = "cut.decided"
    CUT_ABANDONED = "cut.abandoned"
    CUT_VOIDED = "cut.voided"
    OPENING_ANSWERED = "opening.answered"
    CUT_COMMITTED = "cut.committed"
    CUT_PARTIALLY_COMMITTED = "cut.partially_committed"
    SAVEPOINT_TAKEN = "savepoint.taken"
    STREAM_STALLED = "stream.stalled"


BODIES: Final[dict[EventType, type[Body]]] = {
    EventType.REGION_OPENED: RegionOpened,
    EventType.FILES_WRITTEN: FilesWritten,
    EventType.CHECKPOINT_COMPLETED: CheckpointCompleted,
    EventType.CHECKPOINT_FAILED: CheckpointFailed,
    EventType.LINEAGE_CARRIED: LineageCarried,
    EventType.REGION_HEARTBEAT: RegionHeartbeat,
    EventType.REGION_CLOSED: RegionClosed,
    EventType.STREAM_POLICY: StreamPolicy,
    EventType.STREAM_COMMAND: StreamCommand,
    EventType.CUT_DECIDED: CutDecided,
    EventType.CUT_ABANDONED: CutAbandoned,
    EventType.CUT_VOIDED: CutVoided,
    EventType.OPENING_ANSWERED: OpeningAnswered,
    EventType.CUT_COMMITTED: CutCommitted,
    EventType.CUT_PARTIALLY_COMMITTED: CutCommitted,
    EventType.SAVEPOINT_TAKEN: SavepointTaken,
    EventType.STREAM_STALLED: StreamStalled,
}

MAJOR_VERSION: Final = 1

NO_CHECKPOINT: Final = -1


class Origin(NamedTuple):
    """Original position of an event that was appended again before retention deletes the original."""

    offset: int
    time: int
    """Append time of the original, in milliseconds since the Unix epoch."""


class Envelope(NamedTuple):
    """Attributes of an event. Fields that do not apply are empty (`checkpoint`: NO_CHECKPOINT)."""

    id: str
    """Unique for each event. Duplicates in the log have the same id."""
    type: EventType
    stream: str
    region: str = ""
    lineage: str = ""
    checkpoint: int = NO_CHECKPOINT
    writer: str = ""
    files: int = 0
    """Number of files that the body of a `files.written` lists."""
    attempt: str = ""
    """Random for each try of the writer. The events of one try share it."""
    origin: Origin | None = None
    """Set if this event is a copy of an earlier one with the same id."""
    rows: int = 0
    """Number of rows in the files of a `files.written`; 0 also if the writer does not count. Display only."""


class Event(NamedTuple):
    """An envelope with its body."""

    envelope: Envelope
    body: Body


class Flaw(StrEnum):
    """Reason code of a malformed message. It is part of the id of its dead letter."""

    NO_EVENT = "no-event"
    SPEC_VERSION = "spec-version"
    SOURCE = "source"
    CONTENT_TYPE = "content-type"
    CONTRADICTION = "contradiction"
    UNKNOWN_TYPE = "unknown-type"
    NEWER_VERSION = "newer-version"
    MALFORMED_ATTRIBUTE = "malformed-attribute"
    MISSING_ATTRIBUTE = "missing-attribute"
    MALFORMED_BODY = "malformed-body"


class Poison(NamedTuple):
    """A malformed message with the reason. It is returned as data, never raised."""

    reason: str
    stream: str | None
    """Stream that the message names; None if that attribute is unreadable."""
    flaw: Flaw

    @property
    def newer_version(self) -> bool:
        """True if the message has a newer major version than this release supports. A newer release may read
        it."""
        return self.flaw is Flaw.NEWER_VERSION
