"""LogState: everything that a stream's log amounts to, except the checkpoints that are pending.

Only `Replica.apply` changes it, so it is a function of the log. It is small, and part of each state record.
"""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from sluicegate.events.problems import Problem
from sluicegate.events.version4 import Head, Position, StreamPolicy


class Light(BaseModel):
    """Base of everything in a state record; fields of newer minor versions are ignored."""

    model_config = ConfigDict(extra="ignore")


class Incarnation(Light):
    """One life of a region's checkpoint numbering."""

    id: str
    since: int
    """Offset of the record that made it live. Earlier events with its name do not count."""
    base: Position | None
    """The position that it started from."""


class RegionState(Light):
    """One region: its newest incarnation, and its decided position."""

    incarnation: Incarnation | None = None
    """The newest one; None before the first registration."""
    live: bool = False
    """Whether this incarnation may add checkpoints. False after a removal, a revert or a new assignment."""
    run: str | None = None
    """Id of the newest accepted registration: heartbeats and closings of older processes do not count."""

    position: Position | None = None
    """The decided position: the region's component of the newest decided cut.

    It is the committed position once that decision is committed. A revert takes it back."""
    source_offsets: str | None = None
    """Source offsets at the position; opaque."""
    watermark: int | None = None
    """Milliseconds since the Unix epoch, at the position. It never falls within an incarnation."""
    listeners: dict[str, str] = {}
    """State of listeners, at the position."""
    fallbacks: int = 0
    """How many cuts in a row left the region behind."""

    idle: bool = False
    """The newest heartbeat said so, and no event has contradicted it."""
    closed: bool = False
    """The driver or an operator ended the region; it is gone once the cut includes its final checkpoint."""
    final: int | None = None
    """Final checkpoint of a closed region; None: the region ends at its position."""
    removed: bool = False
    """An operator closed it, so it does not come back under this assignment."""
    bounded: bool = False
    owned: bool = True
    single_region: str | None = None
    """Why the writers of this region, and so the stream's, are one failure domain."""
    fault: Problem | None = None
    """Why the region stalls until a new incarnation registers."""

    @property
    def gone(self) -> bool:
        """Return whether the region is closed and the newest decided cut includes its final checkpoint."""
        if not self.closed:
            return False
        if self.final is None:
            return True
        return self.incarnation is not None and self.covers(self.incarnation.id, self.final)

    def is_live(self, incarnation: str) -> bool:
        """Return whether this is the region's live incarnation."""
        return self.live and self.incarnation is not None and self.incarnation.id == incarnation

    def covers(self, incarnation: str, checkpoint: int) -> bool:
        """Return whether the position includes this checkpoint."""
        at = self.position
        return at is not None and at.incarnation == incarnation and at.checkpoint >= checkpoint


class AssignmentState(Light):
    """The numbered set of regions that is in force."""

    number: int
    regions: list[str]
    provisional: bool = True
    """True until the first decided cut, which is full. Until then an operator may withdraw it."""


class Former(Light):
    """An assignment that has ended, and its regions, while its successor may still be withdrawn."""

    assignment: AssignmentState
    regions: dict[str, RegionState]


class Target(Light):
    """The checkpoint of one region that a savepoint must reach."""

    incarnation: str
    checkpoint: int


class Savepoint(Light):
    """A barrier that an operator asked for."""

    name: str
    drain: bool = False
    """True: reached when all regions of the assignment are gone. It has no targets of its own."""
    targets: dict[str, Target] = {}
    awaited: list[str] = []
    """Regions that had nothing sealed at the order: their next sealed checkpoint is the target."""


class Move(Light):
    """One region's share of a decision."""

    after: Position | None
    """The region's position before the decision."""
    to: Position
    since: int
    """Offset from which events of its incarnation count."""


class Undo(Light):
    """What a decision replaced in one region, for a revert."""

    watermark: int | None
    source_offsets: str | None
    listeners: dict[str, str]
    fallbacks: int
    owned: bool


class Revert(Light):
    """A valid order to give the unresolved decision up."""

    offset: int
    region: str


class Decision(Light):
    """A valid decision without an outcome."""

    id: int
    digest: str
    offset: int
    """Offset of its event in the log."""
    cut: dict[str, Position]
    moves: dict[str, Move]
    fallbacks: dict[str, Position | None] = {}
    """Regions left behind, with their positions."""
    watermark: int | None
    """The stream's, with this decision."""
    parts: list[int]
    """Offsets of the `files.written` events that it includes, in commit order."""
    files: int
    first_offset: int
    """Offset of the first event that is needed to commit it."""
    head: Head | None = None
    """The table's head before the decision was appended."""
    revert: Revert | None = None
    undo: dict[str, Undo] = {}
    undo_watermark: int | None = None
    undo_provisional: bool = False
    """Whether this is the first decision of its assignment."""
    undo_former: Former | None = None


class Proof(Light):
    """An operator's statement: no commit of this decision is in the table at or before this head."""

    decision: int
    head: Head


class LogState(Light):
    """The fold of a stream's log, as of one offset."""

    partition: int | None = None
    """The partition of the first registration."""
    table: str | None = None
    """Identity of the table, from the first outcome."""
    policy: StreamPolicy | None = None
    assignment: AssignmentState | None = None
    former: Former | None = None
    """The assignment before, while the current one is provisional."""
    withdrawn: int = -1
    """The highest number of a withdrawn assignment; it never comes back."""
    regions: dict[str, RegionState] = {}
    ended: list[str] = []
    """Incarnations that ended, of all regions; none of them lives again."""
    savepoints: list[Savepoint] = []
    paused: bool = False
    decided: int = 0
    """Id of the newest valid decision."""
    pending: Decision | None = None
    """The newest valid decision, while it has no outcome."""
    proof: Proof | None = None
    snapshot: Head | None = None
    """The table's snapshot of the newest outcome."""
    watermark: int | None = None
    attempt: int = 0
    """Attempts abandoned since the newest decision."""

    def active(self) -> Iterator[tuple[str, RegionState | None]]:
        """Yield the regions that are not gone; None for those that never registered."""
        for name in self.assignment.regions if self.assignment else ():
            region = self.regions.get(name)
            if region is None or not region.gone:
                yield name, region
