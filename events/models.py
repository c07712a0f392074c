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
    sink: Literal["independent", "all-to-all"] = "independent"
    """All-to-all: an exchange joins all writers, so that they are one region by definition."""
    bounded: bool = False
    owned: bool = True
    """False: restored without claiming ownership of what the parents wrote."""
    table: str | None = None
    """URI of the folder of the table that the writers write to; None: not told."""


class CheckpointCompleted(Body):
    """A driver names the events that make up a checkpoint; only these count."""

    events: tuple[EventId, ...]
    predecessor: Count | None
    """The checkpoint before this one in the lineage; None for the lineage's first."""
    source_digest: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """Digest of the source range that the checkpoint read: equal for replays, different otherwise."""
    watermark: Millis | None = None


class CheckpointFailed(Body):
    """A hint, or the news that a completed checkpoint's files will never come."""

    outcome: Literal["late", "redo", "lost"]
    reason: str = ""


class RegionHeartbeat(Body):
    """The driver lives; `idle` says that its source has nothing new."""

    idle: bool = False


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


class StreamCommand(Body):
    """An operator's order, by way of the log so that every coordinator obeys it alike."""

    command: Literal["accept", "resume"]
    """`accept`: let this region's lineage start although it names no parents.

    `resume`: decide again, after the cause of a logged stall has been removed.
    """
    region: Name | None = None
    lineage: Name | None = None

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.command == "accept" and (self.region is None or self.lineage is None):
            raise ValueError("accept needs a region and a lineage")
        return self


class CutDecided(Body):
    """A decision: commit everything between the cut before and this one, under this id."""

    decision: Annotated[int, Field(ge=1)]
    cut: dict[Name, Position]
    final: bool = False
    """Whether the cut carries the final checkpoint of a closed region; such a cut is full."""
    completions: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """Digest of the completions that the commit includes."""


class OpeningAnswered(Body):
    """The coordinator's answer to one `region.opened`."""

    opening: EventId
    accepted: bool
    reason: str = ""
    """Why it was refused, and the command that goes on."""
    committed: Position | None = None
    """Where the region stands in the last cut."""


class CutCommitted(Body):
    """A commit is visible in the table."""

    decision: int
    cut: dict[Name, Position]
    fallbacks: dict[Name, Position | None] = {}
    """Regions that did not move though they should have, with their ref; empty for a full cut."""
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
