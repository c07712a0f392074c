"""Types of the events of the log, and the attributes of one event in memory."""

from enum import StrEnum
from typing import Final, NamedTuple
from zlib import crc32

from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    FilesWritten,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)

# Names and values of the attributes of messages, which are headers.
#
# The CloudEvents attributes are headers `ce_*`, as the Kafka protocol binding 1.0 has them in binary mode.
# The extension attributes carry what routing and aggregation need, so neither needs a body.

Header = tuple[str, bytes]
RawHeader = tuple[str, bytes | None]
"""A header as it comes from the log, where values may be absent."""

SPEC_VERSION: Final = b"1.0"
CONTENT_TYPE: Final = b"application/json"
SOURCE: Final = b"/sluicegate"
"""The source of messages of this project; other producers name their own."""
NUMBER_PATTERN: Final = "^(0|[1-9][0-9]{0,17})$"
"""Every number of so many digits fits into 64 bits. One number has one notation."""
SOURCE_PATTERN: Final = r"^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]{1,1000}$"
"""Characters of a URI reference (RFC 3986)."""
MAX_ID_LENGTH: Final = 64


PROBE: Final = b"sluicegate.probe"
"""Type of a message that proves the right to write. Every reader passes over it, in every topic."""
MAJOR_VERSION: Final = 5
"""Version of the protocol, and major version of all types."""


def wire_type(kind: StrEnum) -> bytes:
    """Return the value of `ce_type` for messages of a type, of the log or of the commits topic."""
    return f"sluicegate.{kind}.v{MAJOR_VERSION}".encode()


class EventType(StrEnum):
    """Type of an event; on the wire `sluicegate.<type>.v<major>`."""

    REGION_REGISTERED = "region.registered"
    FILES_WRITTEN = "files.written"
    CHECKPOINT_COMPLETED = "checkpoint.completed"
    CHECKPOINT_FAILED = "checkpoint.failed"
    REGION_HEARTBEAT = "region.heartbeat"
    REGION_CLOSED = "region.closed"
    STREAM_POLICY = "stream.policy"
    STREAM_COMMAND = "stream.command"
    CUT_DECIDED = "cut.decided"
    CUT_COMMITTED = "cut.committed"
    CUT_REVERTED = "cut.reverted"
    CUT_ABANDONED = "cut.abandoned"


FILES_WRITTEN: Final = EventType.FILES_WRITTEN
CHECKPOINT_COMPLETED: Final = EventType.CHECKPOINT_COMPLETED
"""The types of most events. Their look-up in the enum takes ten times as long, several times for each record.
"""

PER_CHECKPOINT: Final = frozenset(
    {EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED, EventType.CHECKPOINT_FAILED}
)
"""Types of events of one checkpoint, with its number as an attribute."""
PER_REGION: Final = PER_CHECKPOINT | {
    EventType.REGION_REGISTERED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
}
PER_WRITER: Final = frozenset({EventType.FILES_WRITTEN})
"""Types of events that always have files. A completion has the same attributes if it carries files."""

BODIES: Final[dict[EventType, type[Body]]] = {
    EventType.REGION_REGISTERED: RegionRegistered,
    EventType.FILES_WRITTEN: FilesWritten,
    EventType.CHECKPOINT_COMPLETED: CheckpointCompleted,
    EventType.CHECKPOINT_FAILED: CheckpointFailed,
    EventType.REGION_HEARTBEAT: RegionHeartbeat,
    EventType.REGION_CLOSED: RegionClosed,
    EventType.STREAM_POLICY: StreamPolicy,
    EventType.STREAM_COMMAND: StreamCommand,
    EventType.CUT_DECIDED: CutDecided,
    EventType.CUT_COMMITTED: CutCommitted,
    EventType.CUT_REVERTED: CutReverted,
    EventType.CUT_ABANDONED: CutAbandoned,
}

NO_CHECKPOINT: Final = -1
UNCOUNTED: Final = -1
"""Number of files of an event that does not state it. Who reads the body counts them."""


class Envelope(NamedTuple):
    """Attributes of an event. Attributes that do not apply are empty (`checkpoint`: NO_CHECKPOINT)."""

    id: str
    """Unique for each event. Duplicates in the log have the same id."""
    type: EventType
    stream: str
    region: str = ""
    incarnation: str = ""
    checkpoint: int = NO_CHECKPOINT
    writer: str = ""
    """Writer of the files. Only events with files have one: `files.written`, and a completion that carries
    them."""
    attempt: str = ""
    """Random for each try of the writer. The events of one try share it."""
    files: int = 0
    """Number of files in the body; UNCOUNTED: the attributes do not state it."""
    rows: int = 0
    """Number of rows in these files; 0 if the writer does not count. Display only."""
    bytes: int = 0
    """Size of these files in bytes; 0 if unknown. It counts for `commit_max_bytes`."""
    table: str = ""
    """Further table of the stream that the files are for; empty: its anchor, which is its only one mostly."""


class LogRecord(NamedTuple):
    """One decoded record of a stream's partition."""

    offset: int
    time: int
    """Append time in milliseconds since the Unix epoch."""
    envelope: Envelope
    body: Body | None
    """None for a `files.written`, whose body is not needed to decide, and for an unreadable body.

    A completion has no files here: one that carries them names itself, and only its envelope has a writer."""
    unreadable: str = ""
    """Reason why the body cannot be decoded; empty: it can."""
    skipped: str = ""
    """Digest of a record that only a newer release reads, and that an order skips; empty: it is none."""


def with_counts(envelope: Envelope, body: FilesWritten) -> Envelope:
    """Return the envelope of an event with files, with the counts of these."""
    rows, size = sum(file.rows for file in body.files), sum(file.size for file in body.files)
    return envelope._replace(files=len(body.files), rows=rows, bytes=size)


# Keys and partitions: the partition comes from the stream alone, so one partition has all of a stream.


def key_of(stream: str, region: str = "", checkpoint: int = NO_CHECKPOINT) -> bytes:
    """Return the key `stream/region/checkpoint`, without the parts that do not apply."""
    parts = [stream]
    if region:
        parts.append(region)
        if checkpoint != NO_CHECKPOINT:
            parts.append(str(checkpoint))
    return "/".join(parts).encode()


def partition_of(stream: str, partitions: int) -> int:
    """The partition of a stream's events and records in a topic of that many partitions (CRC-32, modulo)."""
    return crc32(stream.encode()) % partitions
