"""Effects of the core, and their results, as data.

Effects that are handed out together are independent. One that depends on a result is handed out after it. So
the order of a commit is: ask, publish, append the outcome, record, announce, view, offsets. After a crash,
each effect may be repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.state_record import Due, StateRecord
from sluicegate.events.causes import Cause
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Body, Head, Position
from sluicegate.events.problems import Problem
from sluicegate.lakes.port import Answer, Conflict, NotPublished, OutcomeUnknown, Publication, TableState


@dataclass(frozen=True, slots=True)
class InspectTable:
    """Check that the table is in scope, and read its state. Result: TableState, TableUnfit or Failed."""


@dataclass(frozen=True, slots=True)
class FetchEnd:
    """Fetch the end offset of the partition. Result: EndOffset or Failed."""


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Check that the table would take the files of these events.

    Result: FilesChecked, TableReplaced or Failed.
    """

    parts: Mapping[str, tuple[int, ...]]
    """By region, offsets of the `files.written` events that a cut would take."""
    allowed_locations: tuple[str, ...]
    table: str
    names_checked: bool
    moves: Mapping[str, Position] = field(default_factory=dict)
    """By region, how far the cut would move it, with events that were checked before."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append an event of the coordinator to the log. Result: Appended or Failed (it may be in the log)."""

    type: EventType
    body: Body
    region: str = ""
    incarnation: str = ""


NO_DIGEST: Final = ""
"""In place of a digest, in a question about the next decision: it is expected to be absent."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the table whether it has a decision. Result: an Answer of the port, or Failed."""

    decision: int
    digest: str
    table: str
    known: Head | None
    """A head that no commit of this decision precedes; None: the table was empty."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit on exactly the head that was asked. Result: a Publication of the port.

    Published is also the result if this very commit, made by another process, follows that head already.
    """

    decision: int
    digest: str
    head: Head | None
    watermark: int | None
    offsets: tuple[int, ...]
    allowed_locations: tuple[str, ...]
    names_checked: bool


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
    """Write the stream's view to the state store, atomically. Result: Done or Failed."""

    record: StateRecord


@dataclass(frozen=True, slots=True)
class ReleaseOffsets:
    """Set the group's offset to the smallest one that the partition still needs. Result: Done or Failed."""


Effect = (
    InspectTable
    | FetchEnd
    | CheckFiles
    | Append
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
    """The effect was not seen to succeed; it may have."""

    reason: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class TableUnfit:
    """The table is out of scope, or unusable until somebody changes it."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndOffset:
    """The offset after the last record of the partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The event is in the log at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class FilesChecked:
    """Regions whose files cannot be committed now, or not all of them; empty if all can."""

    problems: dict[str, Problem]
    """By region, the reason."""
    upto: Mapping[str, Position] = field(default_factory=dict)
    """By region, the last checkpoint that fits into the commit."""
    left: frozenset[int] = frozenset()
    """Offsets that were not checked, because they do not fit."""


Retried = Failed | Conflict | NotPublished | OutcomeUnknown
"""Results after which an effect is tried again."""
Result = Done | Failed | TableState | TableUnfit | EndOffset | Appended | FilesChecked | Answer | Publication
