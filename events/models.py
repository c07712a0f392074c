"""Bodies of all events, as they stand in JSON on the wire.

A body says nothing that its envelope says already (stream, region, lineage, checkpoint, writer).
Times are milliseconds since the Unix epoch, sizes are bytes. Unknown fields are ignored, so that a
newer minor version can add some; a breaking change is a new major version in the event's type.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A stream, region, lineage or writer: letters, digits, `_`, `.` and `-`, no `/`, at most 200 characters."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Millis = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
EventId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
ListenerState = Annotated[str, StringConstraints(max_length=4096)]
SourceDigest = Annotated[str, StringConstraints(min_length=1, max_length=128)]

# A parent segment, the root, or a scheme: with them a path could leave the event's location.
_ESCAPES: Final = re.compile(r"(?:^|/)\.\.(?:/|$)|^/|^[A-Za-z][A-Za-z0-9+.\-]*:")


def _stays_inside(path: str) -> str:
    if (".." in path or ":" in path or path.startswith("/")) and _ESCAPES.search(path):
        raise ValueError("a path must be relative, without a scheme and without '..'")
    return path


RelativePath = Annotated[str, StringConstraints(min_length=1), AfterValidator(_stays_inside)]


class Body(BaseModel):
    """The base of every event body: immutable, tolerant of fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class FileInfo(Body):
    """One data file, and the table format's own description of it as an opaque blob."""

    path: RelativePath
    """Relative to the event's `location`; no scheme, no `..`, not absolute."""
    size: Count
    rows: Count
    partition: dict[str, str] = {}
    min_event_time: Millis | None = None
    max_event_time: Millis | None = None
    metadata: bytes = b""
    """Written by the writer half of the lake adapter, read by its committer half only."""


class FilesWritten(Body):
    """The files, or a part of them, of one writer attempt."""

    format: Name
    """The lake adapter that wrote the metadata, such as `paimon`."""
    format_version: Count
    """The version of the adapter's metadata blobs."""
    location: Annotated[str, StringConstraints(min_length=1)]
    """URI of the folder that the paths are relative to."""
    schema_id: Count
    files: tuple[FileInfo, ...]


class Position(Body):
    """A place in a region's history: a checkpoint of a lineage."""

    lineage: Name
    checkpoint: Count


class Parent(Body):
    """Where a new lineage starts: behind this checkpoint of that region's lineage."""

    region: Name
    lineage: Name
    checkpoint: Count | None
    """None: the parent had completed nothing that the new lineage builds on."""


class Assignment(Body):
    """The stream's regions, numbered; the highest number wins."""

    number: Count
    regions: tuple[Name, ...]


class RegionOpened(Body):
    """A driver asks to add checkpoints of a lineage to the stream."""

    parents: tuple[Parent, ...] = ()
    assignment: Assignment
    sink: Literal["independent", "all-to-all", "shared-files"] = "independent"
    """All-to-all: an exchange joins all writers; shared-files: several writers fill one physical file.

    With either the stream is one region, whatever its assignment says: its cuts are full.
    """
    bounded: bool = False
    planned: Count | None = None
    """The newest checkpoint that the driver's own records know, which may not be older than the table's."""
    planned_digest: SourceDigest | None = None
    """Digest of the source range of that checkpoint; None if the driver cannot tell."""
    previous_digest: SourceDigest | None = None
    """The same of the checkpoint before that one: a checkpoint that is planned anew is not in the log yet."""
    parent_digest: SourceDigest | None = None
    """The same of the parent of the same region, where the driver's records have that checkpoint."""
    owned: bool = True
    """False: restored without claiming ownership of what the parents wrote."""
    table: str | None = None
    """URI of the folder of the table that the writers write to; None: not told."""


class CheckpointCompleted(Body):
    """A driver names the events that make up a checkpoint; only these count."""

    events: tuple[EventId, ...]
    predecessor: Count | None
    """The checkpoint before this one in the lineage; None for the lineage's first."""
    source_digest: SourceDigest
    """Digest of the source range that the checkpoint read: equal for replays, different otherwise."""
    watermark: Millis | None = None
    listeners: dict[Name, ListenerState] = {}
    """State of listeners, opaque, frozen with this checkpoint; absent ones keep what they had."""


class CheckpointFailed(Body):
    """A hint, or the news that a completed checkpoint's files will never come."""

    outcome: Literal["late", "redo", "lost"]
    reason: str = ""


class LineageCarried(Body):
    """All that a lineage still needs stands in the log again: the copies before this event.

    It has an effect only if they are whole.
    """

    upto: Count
    """The offset up to which the log had been read when the copies were made."""


class RegionHeartbeat(Body):
    """The driver lives; `idle` says that its source has nothing new."""

    idle: bool = False
    interval: Count | None = None
    """Milliseconds until the next heartbeat is due; None: the driver does not tell, or none follows."""


class RegionClosed(Body):
    """The region ends after its final checkpoint; None if it never completed one."""

    final: Count | None


class StreamPolicy(Body):
    """The settings that decide whether a decision is valid; the highest number wins."""

    number: Count
    partial: Literal["allow", "never"] = "never"
    max_consecutive_fallbacks: Annotated[int, Field(ge=1)] = 3
    allowed_locations: tuple[str, ...]
    """URI prefixes; data files outside all of them are refused."""
    file_names: Literal["checked", "unchecked"] = "checked"
    """Checked: a data file whose name does not carry the digest of its attempt is refused."""
    joined: str = ""
    """Why the table makes the stream one region, so that its cuts are full; empty if it does not."""


class StreamCommand(Body):
    """An operator's order, by way of the log so that every coordinator obeys it alike."""

    command: Literal["accept", "resume", "pause", "remove", "void", "drain", "savepoint"]
    """`accept`: let this region's lineage start behind a position although it names no parents.

    `resume`: decide again, after the cause of a logged stall has been removed, or after a pause.
    `pause`: decide nothing until the stream is resumed.
    `remove`: wait no more for this region; what it has sealed is still committed.
    `void`: give the pending decision up; the named checkpoint of the region is held out of later cuts.
    `savepoint`: have one full cut reach all that every region has completed by now.
    `drain`: a savepoint after which every region is closed.
    """
    region: Name | None = None
    lineage: Name | None = None
    decision: Annotated[int, Field(ge=1)] | None = None
    checkpoint: Count | None = None
    name: Name | None = None
    """Of the savepoint."""
    behind: Position | None = None
    """Where the region stood for whoever accepts the lineage, and lets its source start there."""

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
    """A decision: commit everything between the cut before and this one, under this id."""

    decision: Annotated[int, Field(ge=1)]
    cut: dict[Name, Position]
    final: bool = False
    """Whether the cut carries the final checkpoint of a closed region, or a savepoint; it is full then."""
    completions: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """Digest of the completions that the commit includes."""


class CutAbandoned(Body):
    """A full cut that was forced did not come about in time: all counters of fallbacks begin anew.

    In the log it is what resets them; on the commits topic it tells of it. It consumes no decision id.
    """

    decision: Annotated[int, Field(ge=1)]
    """The id that the cut would have had, and that the next one still has."""
    attempt: Annotated[int, Field(ge=1)]
    """How many were abandoned since the decision before."""
    regions: tuple[Name, ...]
    """Those that were waited for in vain."""


class CutVoided(Body):
    """A decision was given up: the table holds an empty commit of its id, and all refs are as before it.

    In the log it is what sets them back; on the commits topic it tells of it.
    """

    decision: Annotated[int, Field(ge=1)]
    region: Name
    checkpoint: Count
    """Held out of later cuts, with all that follows it, until a new lineage replaces the region's."""


class SavepointTaken(Body):
    """Everything that every region had completed when a savepoint was asked for is committed."""

    name: Name
    drained: bool
    """Whether the regions were closed with it."""
    decision: int
    """The last commit of it; 0 if there was nothing to commit."""
    cut: dict[Name, Position]
    snapshot: int | None
    watermark: Millis | None


class OpeningAnswered(Body):
    """The coordinator's answer to one `region.opened`."""

    opening: EventId
    accepted: bool
    reason: str = ""
    """Why it was refused, and the command that goes on."""
    committed: Position | None = None
    """Where the region stands in the last cut."""
    start: Position | None = None
    """The checkpoint of its region that an accepted lineage goes on from, until a cut includes the lineage.

    A lineage without parents has its source read on from behind it: what lies before is, or will be, in the
    table even if a decision that is under way now is voided.
    """


class CutCommitted(Body):
    """A commit is visible in the table."""

    decision: int
    cut: dict[Name, Position]
    fallbacks: dict[Name, Position | None] = {}
    """Regions that did not move though they should have, with their ref; empty for a full cut."""
    forced: bool = False
    """Whether it had to be full, because a region had fallen back as often in a row as it may."""
    listeners: dict[Name, dict[Name, str]] = {}
    """By region, the state of listeners as of its component of the cut."""
    snapshot: int | None
    """None: the table's history no longer has it, only later ones of the same stream."""
    watermark: Millis | None
    files: Count


class StreamStalled(Body):
    """The stream, or one region of it, does not go on by itself; `reason` says what to do.

    On the commits topic it is a notification. In the log of events it is the stall itself: nothing is
    decided behind it until the stream is resumed.
    """

    reason: str
    region: Name | None = None
