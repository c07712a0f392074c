"""Bodies of all events, as JSON on the wire.

A body repeats nothing that its envelope contains (stream, region, lineage, checkpoint, writer). Times are
milliseconds since the Unix epoch, sizes are bytes. Unknown fields are ignored, so a newer minor version can
add some. A breaking change is a new major version in the event's type.
"""

# Field names are those of protocol version 1: there, `lineage` means incarnation and `voided` means reverted.
import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""Name of a stream, region, incarnation or writer.

Letters, digits, `_`, `.` and `-`, no `/`, at most 200 characters.
"""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Millis = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
EventId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
ListenerState = Annotated[str, StringConstraints(max_length=4096)]
SourceDigest = Annotated[str, StringConstraints(min_length=1, max_length=128)]

# A parent segment, the root, or a scheme: with any of them a path could leave the event's location.
_ESCAPES: Final = re.compile(r"(?:^|/)\.\.(?:/|$)|^/|^[A-Za-z][A-Za-z0-9+.\-]*:")


def _stays_inside(path: str) -> str:
    if (".." in path or ":" in path or path.startswith("/")) and _ESCAPES.search(path):
        raise ValueError("a path must be relative, without a scheme and without '..'")
    return path


RelativePath = Annotated[str, StringConstraints(min_length=1), AfterValidator(_stays_inside)]


class Body(BaseModel):
    """Base of every event body: immutable, and tolerant of unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class FileInfo(Body):
    """One data file, with the table format's own description of it as an opaque blob."""

    path: RelativePath
    """Relative to the event's `location`: no scheme, no `..`, not absolute."""
    size: Count
    rows: Count
    partition: dict[str, str] = {}
    min_event_time: Millis | None = None
    max_event_time: Millis | None = None
    metadata: bytes = b""
    """Blob of the lake adapter. Its writer half writes it, and only its committer half reads it."""


class FilesWritten(Body):
    """Files of one writer attempt, or a part of them."""

    format: Name
    """Name of the lake adapter that wrote the metadata, such as `paimon`."""
    format_version: Count
    """Version of the adapter's metadata blobs."""
    location: Annotated[str, StringConstraints(min_length=1)]
    """URI of the folder that the paths are relative to."""
    schema_id: Count
    files: tuple[FileInfo, ...]


class Position(Body):
    """A checkpoint of an incarnation of a region."""

    lineage: Name
    checkpoint: Count


class Parent(Body):
    """The checkpoint after which a new incarnation starts."""

    region: Name
    lineage: Name
    checkpoint: Count | None
    """None: the parent completed no checkpoint that the new incarnation builds on."""


class Assignment(Body):
    """Numbered set of the stream's regions; the highest number wins."""

    number: Count
    regions: tuple[Name, ...]


class RegionOpened(Body):
    """A driver asks to add checkpoints of an incarnation to the stream."""

    parents: tuple[Parent, ...] = ()
    assignment: Assignment
    sink: Literal["independent", "all-to-all", "shared-files"] = "independent"
    """All-to-all: an exchange joins all writers. Shared-files: several writers write to one physical file.

    With either value, the whole stream is one region despite its assignment, and its cuts are full.
    """
    bounded: bool = False
    planned: Count | None = None
    """Newest checkpoint in the driver's checkpoint location; None if it has none.

    A location that is older than the region's committed position in the same incarnation is refused.
    """
    planned_digest: SourceDigest | None = None
    """Digest of the source range of `planned`; None: unknown to the driver."""
    previous_digest: SourceDigest | None = None
    """Digest of the source range of the checkpoint before `planned`.

    It is needed because `planned` itself may not be in the log yet, for example when its batch is planned
    again.
    """
    parent_digest: SourceDigest | None = None
    """Digest of the source range of the parent in the same region; None if the location lacks that
    checkpoint."""
    owned: bool = True
    """False: the source was restored without claiming ownership of the files of its parents."""
    table: str | None = None
    """URI of the folder of the table that the writers write to; None: unknown."""


class CheckpointCompleted(Body):
    """A driver names the events that make up a checkpoint; only these count."""

    events: tuple[EventId, ...]
    predecessor: Count | None
    """Checkpoint before this one in the incarnation; None for the incarnation's first."""
    source_digest: SourceDigest
    """Digest of the source range that the checkpoint read: equal for replays, different otherwise."""
    watermark: Millis | None = None
    listeners: dict[Name, ListenerState] = {}
    """Opaque state of listeners as of this checkpoint. Absent listeners keep their previous state."""


class CheckpointFailed(Body):
    """A hint about a checkpoint, or the report that files of a completed checkpoint are lost."""

    outcome: Literal["late", "redo", "lost"]
    reason: str = ""


class LineageCarried(Body):
    """Confirmation that the copies before this event contain all events that the incarnation still needs.

    The event has an effect only if the copies are complete.
    """

    upto: Count
    """Offset up to which the log had been read when the copies were made."""


class RegionHeartbeat(Body):
    """The driver is alive; `idle` means that its source has no new data."""

    idle: bool = False
    interval: Count | None = None
    """Milliseconds until the next heartbeat; None: unknown, or no further heartbeat follows."""


class RegionClosed(Body):
    """The region ends after its final checkpoint; None if it never completed one."""

    final: Count | None


class StreamPolicy(Body):
    """Settings that decide which decisions are valid; the highest number wins."""

    number: Count
    partial: Literal["allow", "never"] = "never"
    max_consecutive_fallbacks: Annotated[int, Field(ge=1)] = 3
    allowed_locations: tuple[str, ...]
    """URI prefixes; data files outside all of them are refused."""
    file_names: Literal["checked", "unchecked"] = "checked"
    """Checked: a data file is refused if its name does not contain the digest of its attempt."""
    joined: str = ""
    """Reason why the table makes the stream one region, with full cuts only; empty: no such reason."""


class StreamCommand(Body):
    """An order of an operator. It is part of the log, so every coordinator applies it alike."""

    command: Literal["accept", "resume", "pause", "remove", "void", "drain", "savepoint"]
    """`accept`: let an incarnation of this region start after a position although it names no parents.

    - `resume`: decide again, after the cause of a logged stall was removed or after a pause.
    - `pause`: decide nothing until the stream is resumed.
    - `remove`: stop waiting for this region; its sealed checkpoints are still committed.
    - `void`: revert the pending decision, and exclude the named checkpoint of the region from later cuts.
    - `savepoint`: take one full cut that contains every checkpoint completed until now.
    - `drain`: take a savepoint, then close every region.
    """
    region: Name | None = None
    lineage: Name | None = None
    decision: Annotated[int, Field(ge=1)] | None = None
    checkpoint: Count | None = None
    name: Name | None = None
    """Name of the savepoint or drain."""
    behind: Position | None = None
    """Committed position of the region when the operator accepts the incarnation; its source starts there."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        needed = _COMMAND_NEEDS.get(self.command, ())
        if any(getattr(self, each) is None for each in needed):
            raise ValueError(f"{self.command} needs {' and '.join(needed)}")
        return self


_COMMAND_NEEDS: Final = {
    "accept": ("region", "lineage"),
    "remove": ("region",),
    "void": ("decision", "region", "checkpoint"),
    "savepoint": ("name",),
    "drain": ("name",),
}


class CutDecided(Body):
    """A decision: commit everything between the previous cut and this one, under this id."""

    decision: Annotated[int, Field(ge=1)]
    cut: dict[Name, Position]
    final: bool = False
    """True if the cut is full: it contains the final checkpoint of a closed region, or a savepoint."""
    completions: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """Digest of the completions that the commit includes."""


class CutAbandoned(Body):
    """A forced full cut was not reached in time, so all fallback counters start again at 0.

    In the log this event resets the counters. On the commits topic it is a notification. It consumes no
    decision id.
    """

    decision: Annotated[int, Field(ge=1)]
    """Id that the cut would have had. The next decision has the same id."""
    attempt: Annotated[int, Field(ge=1)]
    """Number of cuts abandoned since the previous decision, this one included."""
    regions: tuple[Name, ...]
    """Regions that did not become ready in time."""


class CutVoided(Body):
    """A decision was reverted: an empty commit has its id, and committed positions are as before it.

    In the log this event restores the committed positions. On the commits topic it is a notification.
    """

    decision: Annotated[int, Field(ge=1)]
    region: Name
    checkpoint: Count
    """Excluded from later cuts, with all checkpoints after it, until a new incarnation replaces the region's.
    """


class SavepointTaken(Body):
    """All checkpoints completed before a savepoint was requested are committed."""

    name: Name
    drained: bool
    """True if the regions were closed with the savepoint."""
    decision: int
    """Newest decision of the savepoint; 0 if there was nothing to commit."""
    cut: dict[Name, Position]
    snapshot: int | None
    watermark: Millis | None


class OpeningAnswered(Body):
    """The coordinator's answer to one `region.opened`."""

    opening: EventId
    accepted: bool
    reason: str = ""
    """Reason for a refusal, with the command that resolves it."""
    committed: Position | None = None
    """The region's committed position."""
    start: Position | None = None
    """Checkpoint after which an accepted incarnation starts; None after a cut includes the incarnation.

    An incarnation without parents reads its source from after this checkpoint. Everything before it is in the
    table or will be, even if the pending decision is reverted.
    """


class CutCommitted(Body):
    """A commit is visible in the table."""

    decision: int
    cut: dict[Name, Position]
    fallbacks: dict[Name, Position | None] = {}
    """Active regions that did not advance, with their committed positions; empty for a full cut."""
    forced: bool = False
    """True if the cut had to be full, because a region reached the limit of consecutive fallbacks."""
    listeners: dict[Name, dict[Name, str]] = {}
    """State of listeners by region, as of the region's position in the cut."""
    snapshot: int | None
    """None: the table's history contains only later snapshots of the same stream."""
    watermark: Millis | None
    files: Count


class StreamStalled(Body):
    """The stream, or one region of it, needs an operator; `reason` contains the remedy.

    On the commits topic this event is a notification. In the event log it is the stall itself: nothing is
    decided after it until the stream is resumed.
    """

    reason: str
    region: Name | None = None
