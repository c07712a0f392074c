"""What the core wants done, and what it is told of the outcome: data on both sides.

Effects that are handed out together are independent of each other. What depends on an outcome is
handed out after it, so the order of a commit is: ask, publish, record, announce, view, offsets.
A void is a commit too, of no files; its event in the log comes between the publication and the record.
An effect may be run again after any crash.
"""

from dataclasses import dataclass

from sluicegate.coordinator.core.state import Due, StateRecord
from sluicegate.events.models import CutAbandoned, CutDecided, CutVoided, StreamPolicy
from sluicegate.lakes.port import (
    Answer,
    Conflict,
    NotPublished,
    OutcomeUnknown,
    Publication,
    SnapshotRef,
    TableState,
)


@dataclass(frozen=True, slots=True)
class InspectTable:
    """Check that the table is in scope and say where it stands. Result: TableState, TableUnfit or Failed."""


@dataclass(frozen=True, slots=True)
class FetchEnd:
    """Fetch the end offset of the stream's partition. Result: EndOffset or Failed."""


@dataclass(frozen=True, slots=True)
class PartsOf:
    """The `files.written` events that a cut would take from one region."""

    region: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Check that the events' files could be committed to the stream's table.

    Result: FilesChecked, TableReplaced or Failed.
    """

    parts: tuple[PartsOf, ...]
    allowed_locations: tuple[str, ...]
    table: str
    """The identity that the stream knows."""
    names_checked: bool = True
    """Whether the names of the files must carry the digests of their attempts."""


@dataclass(frozen=True, slots=True)
class AppendPolicy:
    """Append `stream.policy` to the log. Result: Appended or Failed."""

    body: StreamPolicy


@dataclass(frozen=True, slots=True)
class AppendDecision:
    """Append `cut.decided` to the log. Result: Appended or Failed (which leaves open whether it was)."""

    body: CutDecided


@dataclass(frozen=True, slots=True)
class AppendAbandoned:
    """Append `cut.abandoned` to the log. Result: Appended or Failed."""

    body: CutAbandoned


@dataclass(frozen=True, slots=True)
class AppendVoided:
    """Append `cut.voided` to the log. Result: Appended or Failed."""

    body: CutVoided


@dataclass(frozen=True, slots=True)
class Carry:
    """Append the events at these offsets again, in order, then `lineage.carried`. Result: Appended or Failed.

    The copies name where their originals stood first. The result is the offset of the last event.
    """

    region: str
    lineage: str
    upto: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the table whether it has the decision. Result: an Answer of the port, or Failed."""

    decision: int
    digest: str
    table: str
    recorded: SnapshotRef | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit on exactly the head that was asked. Result: a Publication of the port."""

    decision: int
    digest: str
    head: SnapshotRef | None
    watermark: int | None
    offsets: tuple[int, ...]
    allowed_locations: tuple[str, ...]
    names_checked: bool = True


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the state record. Result: Done or Failed."""

    record: StateRecord


@dataclass(frozen=True, slots=True)
class Announce:
    """Append a notification to the commits topic. Result: Done or Failed."""

    due: Due


@dataclass(frozen=True, slots=True)
class WriteView:
    """Write the stream's view to the state store, in one atomic write. Result: Done or Failed."""

    record: StateRecord


@dataclass(frozen=True, slots=True)
class ReleaseOffsets:
    """Set the group offset to the smallest offset still needed in the partition. Result: Done or Failed."""


Effect = (
    InspectTable
    | FetchEnd
    | CheckFiles
    | AppendPolicy
    | AppendDecision
    | AppendAbandoned
    | AppendVoided
    | Carry
    | Ask
    | Publish
    | WriteRecord
    | Announce
    | WriteView
    | ReleaseOffsets
)


@dataclass(frozen=True, slots=True)
class Done:
    """The effect is durable."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect was not seen to succeed; it may have. It is tried again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class TableUnfit:
    """The table is out of scope or unusable until somebody changes it."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndOffset:
    """The offset behind the last record of the partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The event stands in the log at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class FilesChecked:
    """Per region that cannot be committed as it is, the reason; empty if all can."""

    problems: dict[str, str]


Append = AppendPolicy | AppendDecision | AppendAbandoned | AppendVoided
"""What goes to the log, and is read back from it."""

Retried = Failed | Conflict | NotPublished | OutcomeUnknown
"""Results after which an effect is tried again; each has its reason."""

Result = Done | Failed | TableState | TableUnfit | EndOffset | Appended | FilesChecked | Answer | Publication
