"""Bodies of the events of the log, as JSON on the wire.

A body repeats nothing that the attributes of the message contain (stream, region, incarnation, checkpoint,
writer, attempt). Times are milliseconds since the Unix epoch, sizes are bytes. Unknown fields are ignored, so
that a newer minor version can add some; a breaking change is a new major version in the event's type.

Each list, text and number has a limit, which is part of the major version. The state of a stream contains
what events state, and has to fit into one message of Kafka. A number that something counts on has a range
that leaves room for its successors.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}$"
INCARNATION_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""Name of a stream, a region or a writer.

Letters, digits, `_`, `.` and `-`, no `/`, at most 200 characters.
"""
IncarnationId = Annotated[str, StringConstraints(pattern=INCARNATION_PATTERN)]
"""Id of an incarnation: as a name, of at most 64 characters. Each position has one."""

MOST_REGIONS: Final = 1_000
"""Regions that one event names."""
MOST_REGION_NAMES: Final = 65_536
"""Characters of the names of all regions together: a state record repeats them up to fourteen times."""
MOST_FILES: Final = 100_000
"""Files of one event, and events of one checkpoint."""
MOST_TEXT: Final = 65_536
"""Bytes of everything that one completion has for later readers: source offsets, and state of listeners."""

CURRENT_SCHEMA: Final = -1
"""In place of the id of a schema: the one that the table has now."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
CheckpointNumber = Annotated[int, Field(ge=0, le=10**18 - 1)]
"""As many digits as the attribute `checkpoint` may have."""
AssignmentNumber = Annotated[int, Field(ge=0, le=2**62)]
FileSize = Annotated[int, Field(ge=0, le=2**50)]
"""Tables add sizes up in 64 bits, as they do with rows."""
Interval = Annotated[int, Field(ge=0, le=86_400_000)]
"""Milliseconds between two heartbeats, at most a day: a silent driver is noticed after three of them."""
Rows = Annotated[int, Field(ge=0, le=2**40)]
"""More rows than a file can have. Tables add them up in 64 bits, so one wrong count must not end that."""
FutureLimit = Annotated[int, Field(ge=0, le=400_000_000_000_000)]
"""Milliseconds; more than from the year 1 to 9999."""
Millis = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
EventId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MOST_FURTHER_TABLES: Final = 499
"""Tables of one stream beside its anchor."""
MOST_LOCATIONS: Final = 64
"""Locations of one policy."""
Location = Annotated[str, StringConstraints(max_length=1024)]
Uri = Annotated[str, StringConstraints(max_length=2048)]
Identity = Annotated[str, StringConstraints(max_length=256)]
LONGEST_REASON: Final = 1_000
"""Characters of the reason of a checkpoint that failed."""
LONGEST_METADATA: Final = 262_144
"""Bytes of the metadata of one file. In base64, they fit into a message of the default size."""
MOST_PARTITION_FIELDS: Final = 100
LONGEST_FIELD_NAME: Final = 256
"""Characters of the name of a partition field."""
MOST_PARTITION_VALUE: Final = 4096
"""Characters of one partition value."""
LONGEST_PATH: Final = 2048
"""Characters of the path of a file, relative to its location."""
MOST_FACTS: Final = 16
"""Facts of one file."""
LONGEST_FACTS: Final = 1_000
"""Bytes of all facts of one file, as JSON: an event has room for those of each of its files."""
PartitionValues = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=LONGEST_FIELD_NAME)],
        Annotated[str, StringConstraints(max_length=MOST_PARTITION_VALUE)] | None,
    ],
    Field(max_length=MOST_PARTITION_FIELDS),
]
ListenerState = Annotated[str, StringConstraints(max_length=4096)]
_PLAIN: Final = r"^[ -~]{1,128}$"
SourceDigest = Annotated[str, StringConstraints(pattern=_PLAIN)]
OptionalDigest = Annotated[str, StringConstraints(pattern=r"^[ -~]{0,128}$")]
"""Empty: left out."""
"""At most 128 printable characters of ASCII: a state record has many of them."""
Digest = Annotated[str, StringConstraints(pattern=_PLAIN)]
DecisionId = Annotated[int, Field(ge=1, le=2**62)]
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
SourceOffsets = Annotated[str, StringConstraints(max_length=65_536)]
"""Offsets of the source in the engine's own notation, opaque to the coordinator."""

# A parent segment, the root, or a scheme: with any of them a path could leave the event's location.
_ESCAPES: Final = re.compile(r"(?:^|/)\.\.(?:/|$)|^/|^[A-Za-z][A-Za-z0-9+.\-]*:")


def _stays_inside(path: str) -> str:
    if (".." in path or ":" in path or path.startswith("/")) and _ESCAPES.search(path):
        raise ValueError("a path must be relative, without a scheme and without '..'")
    return path


RelativePath = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_PATH), AfterValidator(_stays_inside)
]


Facts = Annotated[
    dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=LONGEST_FACTS)],
    ],
    Field(max_length=MOST_FACTS),
]
"""Texts by names: results of the user's own work on a file, such as those of a scan."""


class Body(BaseModel):
    """Base of every event body: immutable, and tolerant of unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        allow_inf_nan=False,
    )


class FileInfo(Body):
    """One data file. Its footer, or a blob of the lake adapter, says what a table must know about it."""

    path: RelativePath
    """Relative to the event's `location`: no scheme, no `..`, not absolute."""
    size: FileSize
    """In bytes, as the storage has it."""
    rows: Rows
    """Number of rows in the file."""
    partition: PartitionValues = {}
    """Partition values as text, as the table's partition spec makes them; null: the value is null."""
    min_event_time: Millis | None = None
    """Lowest event time of the rows; None: unknown."""
    max_event_time: Millis | None = None
    """Highest event time of the rows; None: unknown."""
    metadata: Annotated[
        bytes,
        # A JSON Schema counts the characters of base64: four for three bytes.
        Field(max_length=LONGEST_METADATA, json_schema_extra={"maxLength": -(-LONGEST_METADATA // 3) * 4}),
    ] = b""
    """Blob of the lake adapter. Its writer half writes it, and only its committer half reads it.

    Empty: the committer reads the file's Parquet footer, and makes the table's entry from that.
    """


def _not_empty(files: tuple[FileInfo, ...]) -> tuple[FileInfo, ...]:
    # A list that is empty by mistake would move the source offsets past rows that no file has.
    if not files:
        raise ValueError('the list has no file; a checkpoint without rows has "events": [] in place of files')
    return files


class FilesWritten(Body):
    """Files of one writer attempt, or a part of them."""

    format: Name
    """Name of the lake adapter: `paimon`, `iceberg` or `delta`."""
    format_version: Count = 0
    """Version of the adapter's metadata blobs; 0 if no file has one."""
    location: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    """URI of the folder that the paths are relative to."""
    schema_id: Annotated[int, Field(ge=CURRENT_SCHEMA, le=2**63 - 1)] = CURRENT_SCHEMA
    """Id of the table's schema that the files were written with. Delta has none: see the page of files.

    Left out or -1, in Delta alone: the schema that the table has at the check."""
    spec_id: Count = 0
    """Id of the table's partition spec that the files were written with; 0 where the format has none."""
    table_identity: Identity = ""
    """Identity of the table that the files were written for: one that was made again has another. It is the
    table's uuid in Iceberg, the id of its metadata in Delta, and a digest of its first schema in Paimon. The
    coordinator refuses the files of another table; without an identity, nothing is compared."""
    schema_digest: Annotated[str, StringConstraints(max_length=128)] = ""
    """Digest of the content of that schema, made by the lake adapter. A table that was restored from a copy
    and then altered can have another schema of the same id: the coordinator refuses the files of the former
    one. Without a digest, nothing is compared. Delta needs none: there the id is one."""
    files: Annotated[
        tuple[FileInfo, ...],
        Field(max_length=MOST_FILES, json_schema_extra={"minItems": 1}),
        AfterValidator(_not_empty),
    ]
    """At least one, and as many as the attribute `files` states, with no path twice."""
    facts: Annotated[dict[RelativePath, Facts], Field(max_length=MOST_FILES)] = {}
    """By the paths of files, results of the user's own work on them. Readers of the log use them; the
    coordinator does not."""


class Predecessor(Body):
    """The checkpoint before another one. Within an incarnation, its number identifies it."""

    incarnation: Annotated[str, StringConstraints(pattern=f"^$|{INCARNATION_PATTERN}")] = ""
    """Incarnation that has completed it. Left out: the same as that of the completion."""
    checkpoint: CheckpointNumber
    """Its number."""
    digest: OptionalDigest = ""
    """Digest of its source range. Only a predecessor of the same incarnation may leave it out."""


class Position(Predecessor):
    """A checkpoint of a region, identified by incarnation, number and content."""

    incarnation: IncarnationId
    """Incarnation that has completed it."""
    checkpoint: CheckpointNumber
    """Its number."""
    digest: SourceDigest
    """Digest of the source range of this checkpoint. Replays have the same digest."""


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A snapshot by its position and the identity of its content, so that a rolled back table is noticed."""

    id: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    """Its position: higher than that of the snapshot that it was made on, not always by one."""
    identity: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    """Identity of its content."""


class FurtherTable(Body):
    """A table of the stream beside its anchor, as a coordinator has read it from the catalog."""

    identifier: Uri
    """Its name in the anchor's catalog."""
    identity: Identity
    """Its uuid: a table that was made again has another."""
    location: Uri
    """URI of the folder that the paths of its files are relative to."""
    allowed_locations: Annotated[tuple[Location, ...], Field(max_length=MOST_LOCATIONS)] = ()
    """URI prefixes; its data files outside all of them are refused."""


class TableVersion(Body):
    """A further table as of one decision: the newest decision that touched it, and its snapshot."""

    decision: Count = 0
    """0: no decision has touched it yet."""
    snapshot: SnapshotRef | None = None
    """None: no decision has touched it, or its history has only later snapshots."""


class KnownTable(Body):
    """A further table in the registry of the log."""

    terms: FurtherTable
    newest: TableVersion = TableVersion()
    doubted: Annotated[bool, Field(exclude=True)] = False
    """True: the table was seen without its newest decision, so that only its history can show that one."""


class Planned(Body):
    """A checkpoint that the driver's checkpoint location contains."""

    checkpoint: CheckpointNumber
    """Its number."""
    digest: SourceDigest
    """Digest of its source range."""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({*names}) < len(names):
        raise ValueError("each region is named once")
    return names


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    if (found := sum(map(len, names))) > MOST_REGION_NAMES:
        raise ValueError(f"the names have {found} characters together, and at most {MOST_REGION_NAMES} fit")
    return names


AllowedRegions = Annotated[tuple[Name, ...], Field(max_length=MOST_REGIONS), AfterValidator(_short)]


class Assignment(Body):
    """The numbered set of a stream's regions."""

    number: AssignmentNumber
    """Higher than that of the assignment before, by at most 2^52; 0 is a usual first one."""
    regions: Annotated[
        tuple[Name, ...], Field(min_length=1, max_length=MOST_REGIONS), AfterValidator(_distinct)
    ]
    """All regions. Each registration of the assignment names the same ones."""
    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    """Id of the decision with the final cut of the previous assignment; 0: there is none."""


SingleRegionReason = Literal["fixed-buckets"]
"""Reason why all writers of a stream are one failure domain. Cuts of such a stream are full."""


class RegionRegistered(Body):
    """A driver asks to add checkpoints of one incarnation to the stream."""

    base: Position | None = None
    """Decided position that the incarnation starts from; None: the region has none yet."""
    replaces: IncarnationId | None = None
    """Live incarnation that this one replaces; None: the region has none, or it is this one."""
    planned: Annotated[tuple[Planned, ...], Field(max_length=2)] = ()
    """Newest checkpoints of the location, at most two, newest first. Only plain restarts have any."""
    assignment: Assignment
    """Assignment that the region belongs to."""
    table: Uri | None = None
    """Table that the writers write to; None: unknown. Of several it is the anchor."""
    tables: Annotated[tuple[Name, ...], Field(max_length=MOST_FURTHER_TABLES)] = ()
    """Names of the further tables that the writers write to, as the policy has them."""
    bounded: bool = False
    """True: the source ends, and the region closes then."""
    probe: bool = False
    """True: answer, but change nothing."""
    takes_over: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    """For a driver that keeps no state: an end offset of the stream's partition, fetched since its start.

    The incarnation replaces whatever is live, and starts from the committed position, which the answer has
    with its source offsets. It is refused if a registration of the region was accepted at or after that end:
    so of two drivers one wins, and one that stood still never ends the one that works. `base`, `replaces` and
    `planned` are left out."""
    offsets_kind: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{0,64}$")] = ""
    """Kind of source offsets that the driver writes and can continue from: lower-case words with hyphens.

    A region of another kind is not taken over."""
    rests: bool = False
    """True: the region is idle whenever nothing of it is pending, as one of batch jobs. It has no heartbeats.

    Its rows may be behind the watermark when they arrive."""

    @model_validator(mode="after")
    def _check_take_over(self) -> Self:
        if self.takes_over is not None and (self.base or self.replaces or self.planned):
            raise ValueError("takes_over excludes base, replaces and planned; leave them out")
        return self


def _as_position(found: Predecessor) -> Predecessor:
    """Return a predecessor that leaves nothing out as a position."""
    if isinstance(found, Position) or not (found.incarnation and found.digest):
        return found
    # This takes half the time of `model_construct`.
    return Position(incarnation=found.incarnation, checkpoint=found.checkpoint, digest=found.digest)


class CheckpointCompleted(Body):
    """A driver states what makes up a checkpoint: events that it names, or files that this one carries."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"files": {"type": "object"}}, "required": ["files"]},
            "then": {"properties": {"events": {"maxItems": 0}}},
            "else": {"required": ["events"]},
        }
    )

    events: Annotated[tuple[EventId, ...], Field(max_length=MOST_FILES)] = ()
    """Ids of the `files.written` of the winning attempts; empty for a checkpoint without rows."""
    files: FilesWritten | None = None
    """In place of events: the files of the checkpoint, all of one attempt of one writer.

    The attributes have the writer and the attempt then, as those of a `files.written`. One that does not fit
    into a message names a `files.written` instead."""
    predecessor: Annotated[Predecessor, AfterValidator(_as_position)] | None
    """Checkpoint before this one, possibly of an earlier incarnation; None for a region's first."""
    source_digest: OptionalDigest = ""
    """Digest of the source range that was really read. A replay of the checkpoint has the same.

    Left out: a digest of the number, the source offsets and the ids of the events. If the completion carries
    the files, its own id takes their place. So a completion with another id is no replay then."""
    watermark: Millis | None = None
    """Event time below which the region expects no rows, in Unix milliseconds; None: unknown.

    One that is later than the policy's `future_limit` after the append time counts as none."""
    listeners: Annotated[Mapping[Name, ListenerState], Field(max_length=64)] = {}
    """State of listeners as of this checkpoint. Absent listeners keep their previous state."""
    source_offsets: SourceOffsets | None = None
    """Place in the source after this checkpoint, as text of the writer; answers give it back.

    With the state of listeners at most 65,536 bytes in UTF-8."""

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        # One validator: each costs every completion a call.
        if self.files is not None and self.events:
            raise ValueError("events and files exclude each other; leave one of them out")
        if self.files is None and "events" not in self.model_fields_set:
            raise ValueError("either events or files is needed; a checkpoint without rows has no events: []")
        size = size_of_texts(self.source_offsets, self.listeners)
        if size > MOST_TEXT:
            raise ValueError(
                f"source offsets and the state of listeners have {size} bytes, and at most {MOST_TEXT} count"
            )
        return self


def default_source_digest(checkpoint: int, events: Sequence[str], source_offsets: str | None) -> str:
    """Return the source digest of a completion that states none.

    Equal source offsets alone would make a second completion with other rows a replay.
    """
    return hashlib.sha256(json.dumps([checkpoint, list(events), source_offsets]).encode()).hexdigest()


def size_of_texts(source_offsets: str | None, listeners: Mapping[str, str]) -> int:
    """Return the bytes of source offsets, and of the state of listeners."""
    states = sum(len(text.encode()) for text in (*listeners.keys(), *listeners.values())) if listeners else 0
    return states + len((source_offsets or "").encode())


SLOW_CODES: Final = ("", "declined")
"""Codes of a decline by a driver that still works on its checkpoint: it is late, and has not failed."""


class CheckpointFailed(Body):
    """A checkpoint will not be sealed soon, or never. It has no effect once the checkpoint is sealed."""

    outcome: Literal["declined", "lost"]
    """`declined`: its driver makes it again, or ends with work under way. Commits do not wait for the region
    until it seals a checkpoint or registers.

    `lost`: its files can never be there, so its region stalls. A coordinator sends it for events that the log
    has lost; an uploader, or the driver, for files that cannot be uploaded."""
    run: EventId | None = None
    """With `declined`: id of the registration with which the driver's process began. One of an older process
    does not count."""
    code: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{0,64}$")] = ""
    """Code of the failure, for programs: lower-case words with hyphens."""
    reason: Annotated[str, StringConstraints(max_length=LONGEST_REASON)] = ""
    """Text of the failure, for people; without secrets."""


class RegionHeartbeat(Body):
    """The driver is alive. A coordinator also sends one, for an idle region that is silent.

    A driver that may have said `idle` since its registration states the number of the next checkpoint with
    `begins`, and has the acknowledgement before a writer gets the first row of it."""

    idle: bool = False
    """True: no checkpoint is under way, and none has begun after the one that `after` names."""
    after: CheckpointNumber | None = None
    """With `idle`: the newest checkpoint that has begun; None: this process knows of none."""
    begins: CheckpointNumber | None = None
    """Checkpoint that begins. The region is not idle until a heartbeat names this one or a later one."""
    interval: Interval | None = None
    """Milliseconds until the next heartbeat; None: unknown, or no further heartbeat follows."""
    silent: bool = False
    """True only in a coordinator's heartbeat: the driver was silent for too long to count as idle."""
    run: EventId
    """Id of the registration with which the driver's process began. Events of an older process do not count.
    """

    @model_validator(mode="after")
    def _check_state(self) -> Self:
        if sum((self.idle, self.begins is not None, self.silent)) > 1:
            raise ValueError("idle, begins and silent exclude each other; send one of them")
        if self.after is not None and not self.idle:
            raise ValueError("after is the newest checkpoint before idleness: it needs idle")
        return self


class RegionClosed(Body):
    """A region ends after its final checkpoint."""

    final: CheckpointNumber | None
    """None: this incarnation has completed no checkpoint, so the region ends at its base."""
    run: EventId
    """Id of the registration with which the driver's process began."""


class StreamPolicy(Body):
    """Settings that decide which decisions are valid."""

    number: Count
    """That of the policy before plus 1; the first policy has 1. Of two with one number, the first wins."""
    partial: Literal["allow", "never"] = "never"
    max_consecutive_fallbacks: Number = 3
    max_failure_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Largest share of active, non-idle regions that may fall back in one cut."""
    regions: AllowedRegions = ()
    """Regions that may register; empty: any region may."""
    allowed_locations: Annotated[tuple[Location, ...], Field(max_length=MOST_LOCATIONS)] = ()
    """URI prefixes; data files outside all of them are refused."""
    future_limit: FutureLimit = 86_400_000
    """Milliseconds by which a watermark may be later than the append time of its completion. A later one
    counts as none, and is shown as a condition; so does one outside of the years 1 to 9999."""
    file_names: Literal["checked", "unchecked"] = "checked"
    """Checked: the name of a data file must contain the digest of its attempt."""
    single_region: SingleRegionReason | None = None
    """Set if the table itself makes all writers one region."""
    tables: Annotated[Mapping[Name, FurtherTable], Field(max_length=MOST_FURTHER_TABLES)] = {}
    """By name, the tables of the stream beside its anchor. A name that is left out takes no more files."""


# A new order also needs:
# - its arguments in `_NEEDED`, and its line in the docstring of `StreamCommand`;
# - its effect in `core/commands.py`, and in `replay/audit.py` if its outcome comes later;
# - if it lasts: its state in `core/state.py`, its effect on choice and validity in `core/cuts.py`, its
#   condition in `core/conditions.py` and `observe/messages.py`, its view in `observe/view.py` and
#   `state_store/port.py`, its word in `cli/status.py` and in `web/static/text.js`;
# - a command in `cli`, and an entry in `COMMANDS` of `cli/history.py`;
# - a golden case, and its rule in `tests/simulator/truth.py` and `coverage.py`.
# Readers of an older release do not know it, so it is a breaking change.
Command = Literal[
    "remove",
    "discard",
    "close",
    "withdraw",
    "revert",
    "savepoint",
    "drain",
    "cancel",
    "pause",
    "resume",
    "skip",
]


class StreamCommand(Body):
    """An order of an operator. It is part of the log, so every coordinator applies it alike.

    - `remove`: close a region at its last sealed checkpoint, and end its incarnation.
    - `discard`: close a region at its decided position, and end its incarnation.
    - `close`: remove all regions of an assignment.
    - `withdraw`: undo the acceptance of an assignment that has decided nothing yet.
    - `revert`: give up the unresolved decision; the named region needs a new incarnation.
    - `savepoint`: report the cut with which everything sealed until now is committed.
    - `drain`: report the cut with which all regions of the assignment have ended.
    - `cancel`: forget a savepoint or a drain. With a name that none has, it is the note of an order whose
      work is outside of the log.
    - `pause`, `resume`: stop and start decisions. `resume` with a head states that no commit of the
      unresolved decision is in the table at or before that snapshot. With a table, too, it states that this
      further table is right at that snapshot, and that `decision` is the newest one there.
    - `skip`: read over one record that only a newer release reads. Its region stalls until a new incarnation.
    """

    command: Command
    region: Name | None = None
    number: AssignmentNumber | None = None
    """Number of the assignment. An order that arrives late has no effect on a later one."""
    decision: DecisionId | None = None
    name: Name | None = None
    """Name of the savepoint or drain."""
    head: SnapshotRef | None = None
    """Only of `resume`: the snapshot up to which no commit of `decision` is in the table."""
    offset: Count | None = None
    """Offset of the record to skip, which is before the order."""
    digest: Digest | None = None
    """Digest of that record: SHA-256 over its key, headers and value."""
    table: Name | None = None
    """Only of `resume`: the further table of which `head` is right, with `decision` as its newest of ours."""
    known: Count | None = None
    """Beside `table`: the newest decision that touched it, as the operator saw it in the log.

    The order has no effect once another one is there."""

    @model_validator(mode="after")
    def _check_arguments(self) -> Self:
        missing = [each for each in _NEEDED.get(self.command, ()) if getattr(self, each) is None]
        if missing:
            raise ValueError(f"{self.command} needs {' and '.join(missing)}")
        return self


_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "remove": ("region", "number"),
    "discard": ("region", "number"),
    "close": ("number",),
    "withdraw": ("number",),
    "revert": ("decision", "region"),
    "savepoint": ("name",),
    "drain": ("name",),
    "cancel": ("name",),
    "skip": ("offset", "digest"),
}


class CutDecided(Body):
    """A decision: commit everything between the previous cut and this one, under this id."""

    decision: DecisionId
    cut: Annotated[dict[Name, Position], Field(max_length=MOST_REGIONS)]
    """Positions of all regions that have one."""
    digest: Digest
    """Digest of the completions that the decision includes."""
    head: SnapshotRef | None = None
    """Head of the table before this event was appended; None: an empty table. It is not part of the digest.
    """


class FilesOfSize(Body):
    """Files of one partition and commit that have sizes from half of `below` to less than it."""

    below: Number
    """Bytes, a power of two."""
    files: Number
    bytes: Count
    """Sum of their sizes."""


class TableSummary(Body):
    """Contents that a commit added to one table. A coordinator that has not seen a value has null."""

    table: Uri
    """URI of the table's data."""
    files: Count | None = None
    rows: Count | None = None
    bytes: Count | None = None
    """Sum of the sizes of the files."""
    partitions: Count | None = None
    """Number of partitions that got files; 1 if the table has none."""
    touched: Annotated[tuple[PartitionValues, ...], Field(max_length=MOST_TEXT)] | None = None
    """Those partitions, each as the files have it (`FileInfo.partition`), in a fixed order.

    Null: unknown, since a repair wrote the outcome, or their texts are too long."""
    sizes: tuple[tuple[FilesOfSize, ...], ...] | None = None
    """In the order of `touched`, the files of each partition by size. Null: unknown, for the same reasons."""


class CommitSummary(TableSummary):
    """Contents and times of a commit, for people and listeners. No commit is decided from it.

    The contents are those of the stream's own table. A coordinator that took the stream over in mid-commit
    knows less: what it has not seen is null.
    """

    tables: Annotated[Mapping[Name, TableSummary], Field(max_length=MOST_FURTHER_TABLES)] = {}
    """By name, the further tables that the decision touches."""
    moved: Annotated[tuple[Name, ...], Field(max_length=MOST_REGIONS)] = ()
    """Regions whose position the decision changed."""
    forced: bool = False
    """True for a full cut that had to be full: a region had fallen back as often as the policy allows."""
    previous: SnapshotRef | None = None
    """The table's head before the decision; null: an empty table."""
    first_event: Millis | None = None
    """Append time of the first event of the checkpoints in it."""
    sealed: Millis | None = None
    """Append time of the event that sealed the last of the checkpoints in it."""
    decided: Millis | None = None
    """Append time of the decision."""
    visible: Millis
    """Time at which the coordinator saw the commit in the table, by its own clock."""

    def total(self, counted: Literal["rows", "bytes", "partitions"]) -> int | None:
        """Return a count of all tables together; None if that of one is unknown."""
        counts: list[int | None] = [getattr(each, counted) for each in (self, *self.tables.values())]
        return None if None in counts else sum(each for each in counts if each is not None)


class CutCommitted(Body):
    """The outcome of a decision: its commit is visible in the table."""

    decision: DecisionId
    digest: Digest
    table: Identity
    """Identity of the table."""
    snapshot: SnapshotRef | None = None
    """None: the table's history contains only later snapshots."""
    tables: Annotated[Mapping[Name, SnapshotRef | None], Field(max_length=MOST_FURTHER_TABLES)] = {}
    """By name, the snapshots of the further tables that the decision touched; null as above."""
    left_out: Annotated[tuple[Name, ...], Field(max_length=MOST_FURTHER_TABLES)] = ()
    """Tables that the decision touches and that lack it: the policy names them no more."""
    summary: CommitSummary | None = None


class CutReverted(Body):
    """The outcome of a reverted decision: an empty commit has taken its place in the table."""

    decision: DecisionId
    digest: Digest
    """Digest of the revert."""
    table: Identity
    snapshot: SnapshotRef | None = None


class CutAbandoned(Body):
    """An attempt in which too many regions would have fallen back; it consumes no decision id."""

    decision: DecisionId
    """Id that the next decision has."""
    attempt: Number
    """Number of attempts abandoned since the last decision, this one included."""
    kind: Literal["forced", "ratio"]
    """Forced: a full cut was needed; counters start again at 0. Ratio: too many regions; counters rise."""
    regions: Annotated[tuple[Name, ...], Field(max_length=MOST_REGIONS)]
    """Regions that would have fallen back in the attempt."""
