"""Bodies of the messages of the commits topic, the public feed of a stream's outcomes."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from sluicegate.events.codec import Flaw, parse_body, read_addressed
from sluicegate.events.envelope import RawHeader, wire_type
from sluicegate.events.models import (
    Body,
    CommitSummary,
    Count,
    CutAbandoned,
    CutReverted,
    DecisionId,
    EventId,
    IncarnationId,
    Millis,
    Name,
    Position,
    SnapshotRef,
    SourceOffsets,
    TableVersion,
)
from sluicegate.events.problems import Problem


class RegistrationAnswered(Body):
    """The coordinator's answer to one `region.registered`, also to a probe."""

    registration: EventId
    """Id of the event that is answered."""
    accepted: bool
    """True: the incarnation is live."""
    problem: Problem | None = None
    """Reason of a refusal."""
    reason: str = ""
    """The problem as a sentence, with the remedy."""
    committed: Position | None = None
    """The region's committed position as of the registration: the log has the outcome of its decision.

    A new incarnation begins there. None: the region has none, or the coordinator that refuses does not have
    the stream, or cannot read its log up to the registration.
    """
    source_offsets: SourceOffsets | None = None
    """Source offsets of the committed position, if its driver published them."""
    unresolved: DecisionId | None = None
    """Id of the decision that moves the region and has no outcome yet. Before it, no incarnation begins."""
    live: IncarnationId | None = None
    """The region's live incarnation; None: it has none, or `committed` cannot be known either."""
    run: EventId | None = None
    """Id of the newest accepted registration of the live incarnation. The driver of an older one stops."""
    decision: Count = 0
    """Id of the newest decision. A registration of a new assignment names it in `Assignment.after`."""


class Committed(Body):
    """A commit is visible: the public form of an outcome."""

    decision: DecisionId
    cut: dict[Name, Position]
    fallbacks: Mapping[Name, Position | None] = {}
    """Active regions that stayed at their position; empty for a full cut."""
    listeners: Mapping[Name, Mapping[Name, str]] = {}
    snapshot: SnapshotRef | None
    watermark: Millis | None
    files: Count
    tables: Mapping[Name, TableVersion] = {}
    """The vector: by name, the newest decision that touched each further table, and its snapshot."""
    summary: CommitSummary | None = None
    """None: a repair wrote the outcome."""


class SavepointTaken(Body):
    """A savepoint or a drain is reached: what was sealed at the order is committed."""

    name: Name
    drained: bool
    decision: Count
    """Newest decision; 0: there is no decision yet."""
    cut: dict[Name, Position]
    snapshot: SnapshotRef | None
    tables: Mapping[Name, TableVersion] = {}
    """The vector, as of `Committed`."""
    watermark: Millis | None
    discarded: tuple[Name, ...] = ()
    """Regions of which something that was sealed at the order has been discarded since."""


class PartitionDone(Body):
    """A partition is complete by the rule of a listener. Late data gives another one."""

    table: str
    """URI of the table."""
    partition: str
    """Values as people and Hive write them, such as `dt=2013-01-01/hour=05`; a null is without `=`."""
    values: dict[str, str | None]
    """The same values, as the files have them."""
    start: Millis | None
    """Time of its first possible row; null: the partition has no time."""
    end: Millis | None
    """Time after its last possible row."""
    decision: DecisionId
    """Newest commit that gave it files. With the partition, it identifies the mark."""
    snapshot: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None
    """Snapshot of the table that has all its files; null: unknown."""
    watermark: Millis | None
    """That of the cut."""
    reason: Literal["watermark", "idle", "drained"]
    """Rule by which it is done."""
    late: bool
    """True if it got files after its end had passed: whoever read it before reads it again."""
    number: Count
    """1 for the first mark, as far as the listener remembers."""


class IncarnationsEnded(Body):
    """An order of an operator has ended incarnations. Nothing that they complete from now on counts."""

    incarnations: dict[Name, Name]
    """By region. The driver of one asks the coordinator, and stops."""


class StreamAdopted(Body):
    """An operator has continued the stream from its table.

    Outcomes of later decisions that were announced before are given up, and the next decisions use their
    numbers again.
    """

    decision: Count
    """Newest decision that the table has; 0: none."""
    snapshot: SnapshotRef | None


class Stalled(Body):
    """A condition that needs an operator has appeared or ended."""

    problem: Problem
    reason: str = ""
    ended: bool = False


class NotificationType(StrEnum):
    """Type of a record of the commits topic; on the wire `sluicegate.<type>.v<major>`."""

    REGISTRATION_ANSWERED = "registration.answered"
    COMMITTED = "commit.visible"
    PARTIALLY_COMMITTED = "commit.partially_visible"
    ABANDONED = "attempt.abandoned"
    REVERTED = "decision.reverted"
    SAVEPOINT_TAKEN = "savepoint.taken"
    PARTITION_DONE = "partition.done"
    ENDED = "incarnations.ended"
    STALLED = "stream.stalled"
    ADOPTED = "stream.adopted"


NOTIFICATION_BODIES: Final[dict[NotificationType, type[Body]]] = {
    NotificationType.REGISTRATION_ANSWERED: RegistrationAnswered,
    NotificationType.COMMITTED: Committed,
    NotificationType.PARTIALLY_COMMITTED: Committed,
    NotificationType.ABANDONED: CutAbandoned,
    NotificationType.REVERTED: CutReverted,
    NotificationType.SAVEPOINT_TAKEN: SavepointTaken,
    NotificationType.PARTITION_DONE: PartitionDone,
    NotificationType.ENDED: IncarnationsEnded,
    NotificationType.STALLED: Stalled,
    NotificationType.ADOPTED: StreamAdopted,
}

NOTIFICATION_TYPES: Final = {wire_type(kind): kind for kind in NotificationType}
"""By the value of `ce_type`."""


class Notification(NamedTuple):
    """A message of the commits topic."""

    id: str
    """Derived from what it announces: a repetition has the same."""
    type: NotificationType
    stream: str
    region: str
    """Empty if it concerns the whole stream."""
    incarnation: str
    body: Body


# Reading of the public feed: notifications on the commits topic.


def read_notification(headers: Sequence[RawHeader], value: bytes | None) -> Notification | Flaw:
    """Read a message of the commits topic."""
    read = read_addressed(headers, NOTIFICATION_TYPES)
    if isinstance(read, Flaw):
        return read
    body = parse_body(NOTIFICATION_BODIES[read.kind], value)
    if isinstance(body, Problem):
        return Flaw(body, read.stream)
    return Notification(read.id, read.kind, read.stream, read.region, read.incarnation, body)
