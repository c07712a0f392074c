"""LogState: the fold of a stream's log, except its pending checkpoints.

Only `Replica.apply` changes it, so it is a function of the log. It is small, and part of each state record.

A position is *decided* at the offset of its decision, and *committed* once the log has the outcome. In
between, a revert can take it back. A cut follows the decided positions, a new incarnation the committed ones.
"""

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from sluicegate.events.models import KnownTable, Position, SnapshotRef, StreamPolicy, TableVersion
from sluicegate.events.problems import Problem

MOST_ENDED: Final = 1_000
"""Ended incarnations that are remembered; the oldest are forgotten first."""
MOST_KNOWN_TABLES: Final = 1_000
"""Further tables that are remembered; of those that the policy leaves out, the oldest are forgotten first."""
MOST_STEP: Final = 2**52
"""Most by which the number of a checkpoint or an assignment exceeds the one before.

Numbers have a limit on the wire. One mistaken number must not be so high that no later one is possible. The
step leaves room for numbers that are a time in microseconds.
"""


class Light(BaseModel):
    """Base of everything in a state record; fields of newer minor versions are ignored."""

    model_config = ConfigDict(extra="ignore")


class Incarnation(Light):
    """One life of a region's checkpoint numbering. Its id is random, and never lives twice."""

    id: str
    from_offset: int
    """Offset of the record that made it live. Earlier events with its name do not count."""
    base: Position | None
    """The position that it started from."""
    offsets_kind: str = ""
    """Kind of its source offsets."""


class RegionPhase(StrEnum):
    """Part of a region in the assignment."""

    WAITING = "waiting"
    """It has to register: none of its incarnations may add checkpoints."""
    LIVE = "live"
    """Its newest incarnation may add checkpoints."""
    CLOSED = "closed"
    """Its driver ended it. A later completion or registration of the incarnation opens it again."""
    REMOVED = "removed"
    """An operator ended it. It does not come back under this assignment."""
    LEFT = "left"
    """It ended in an earlier assignment, and the newest one does not list it."""


_HAS_LIVE: Final = (RegionPhase.LIVE, RegionPhase.CLOSED)
"""Each event of a region is compared with it, and a look-up in the enum takes ten times as long."""


class Decline(Light):
    """A checkpoint that the driver will not complete soon."""

    checkpoint: int
    at: int = 0
    """Append time of its event."""
    code: str = ""
    reason: str = ""


class RegionState(Light):
    """One region: its phase, its newest incarnation, and its decided position."""

    phase: RegionPhase = RegionPhase.WAITING
    incarnation: Incarnation | None = None
    """The newest one; None before the first registration."""
    run: str | None = None
    """Id of the newest accepted registration: heartbeats and closings of older processes do not count."""
    registered: int = -1
    """Offset of the region's newest accepted registration, also of an assignment that was withdrawn."""
    idle: bool = False
    """True if the newest heartbeat says so, and no event has contradicted it."""
    rests: bool = False
    """True if its registration says so, and no heartbeat since: it is idle once nothing of it is pending."""
    begun: int | None = None
    """The highest checkpoint that has begun in the run, as far as the log states it.

    An idle heartbeat that names none, or a lower one, was sent before that, and has no effect on `idle`.
    """
    final: int | None = None
    """Final checkpoint of a region that ends. None: a closed one ends at its position, others do not end."""
    fault: Problem | None = None
    """Reason for which the region stalls until a new incarnation registers."""
    declined: Decline | None = None
    """The newest decline; None once the region has sealed something, or a process has registered."""

    position: Position | None = None
    """The region's component of the newest decided cut."""
    source_offsets: str | None = None
    """Source offsets at the position; opaque."""
    offsets_kind: str = ""
    """Their kind."""
    watermark: int | None = None
    """Milliseconds since the Unix epoch, at the position. It never falls within an incarnation."""
    doubt: Problem | None = None
    """Problem of the watermark that the checkpoint of the position states; for status."""
    listeners: dict[str, str] = {}
    """State of listeners, at the position."""
    fallbacks: int = 0
    """Number of cuts in a row with which the region fell back."""
    moved_at: int | None = None
    """Append time of the decision that has moved it to its position; None before the first one."""
    behind_since: int | None = None
    """Append time of the decision with which it fell back first since its position; None if it has not."""

    @property
    def accepts_checkpoints(self) -> bool:
        """True if the incarnation may add checkpoints. A closed one may: work can overtake its closing."""
        return self.phase in _HAS_LIVE

    @property
    def live_incarnation(self) -> str | None:
        """Return the id of the live incarnation; None if there is none."""
        return self.incarnation.id if self.incarnation is not None and self.phase in _HAS_LIVE else None

    @property
    def ends(self) -> bool:
        """True if the region ends at a known checkpoint."""
        return self.phase in (RegionPhase.CLOSED, RegionPhase.REMOVED, RegionPhase.LEFT)

    @property
    def is_absent(self) -> bool:
        """True if nothing of the region can enter a cut soon: it has no driver, stalls, or has declined."""
        return self.live_incarnation is None or self.fault is not None or self.declined is not None

    @property
    def removed(self) -> bool:
        """True if an operator ended the region under this assignment."""
        return self.phase is RegionPhase.REMOVED

    @property
    def has_ended(self) -> bool:
        """True if the region is closed, and its position includes its final checkpoint."""
        if not self.ends or self.final is None:
            return self.ends
        return self.incarnation is not None and self.covers(self.incarnation.id, self.final)

    def covers(self, incarnation: str, checkpoint: int) -> bool:
        """True if the position includes this checkpoint."""
        return reaches(self.position, incarnation, checkpoint)


def reaches(at: Position | None, incarnation: str, checkpoint: int) -> bool:
    """True if a position is at or after this checkpoint of the same incarnation."""
    return at is not None and at.incarnation == incarnation and at.checkpoint >= checkpoint


class AssignmentState(Light):
    """The numbered set of regions that is in force."""

    number: int
    regions: list[str]
    after: int = 0
    """Id of the decision with the cut that it follows; 0: there was none."""
    provisional: bool = True
    """True until the first decided cut, which is full. Until then an operator may withdraw it."""


class Former(Light):
    """An assignment that has ended, and its regions, while its successor may still be withdrawn."""

    assignment: AssignmentState | None
    """None: the stream was adopted with positions that an operator stated."""
    regions: dict[str, RegionState]

    @property
    def suspended(self) -> list[str]:
        """Return the incarnations that a withdrawal would bring back."""
        return [life for each in self.regions.values() if (life := each.live_incarnation) is not None]


class Savepoint(Light):
    """A savepoint or a drain that an operator ordered, until it is reached."""

    name: str
    offset: int
    """Offset of its order in the log: a name may be used again."""
    drain: bool = False
    """True: reached when all regions of the assignment have ended. It has no targets."""
    targets: dict[str, Position] = {}
    """By region, the position that it has to reach; one that is committed is removed."""
    awaited: list[str] = []
    """Regions that had nothing sealed at the order: their next sealed checkpoint is the target."""
    sealed_later: list[str] = []
    """Regions whose target was sealed after the order."""
    discarded: list[str] = []
    """Regions of which something that was sealed at the order is discarded."""


class Revert(Light):
    """A valid order to give the unresolved decision up."""

    offset: int
    region: str


class Before(Light):
    """State before a decision. A revert puts it back; it is kept until the outcome, and no longer."""

    regions: dict[str, RegionState]
    """Shallow copies: while a decision is unresolved, no rule changes incarnations or positions in place."""
    watermark: int | None
    provisional: bool
    """True if the decision is the first one of its assignment."""
    former: Former | None


class Decision(Light):
    """A valid decision without an outcome."""

    id: int
    digest: str
    offset: int
    """Offset of its event in the log."""
    cut: dict[str, Position]
    fallbacks: dict[str, Position | None]
    """Regions that fall back, with their positions."""
    watermark: int | None = None
    """The stream's, with this decision."""
    parts: list[int]
    """Offsets of the events with files that it includes, in commit order."""
    files: int
    parts_of: dict[str, list[int]] = {}
    """By name, those of them that are for each further table that it touches."""
    tables: dict[str, KnownTable] = {}
    """These tables, as of its own offset: nothing later changes where its files belong."""
    first_offset: int
    """Offset of the first event of a checkpoint up to its positions: a recovery reads them again."""
    head: SnapshotRef | None = None
    """The table's head before the decision was appended."""
    revert: Revert | None = None
    before: Before

    @property
    def moves(self) -> dict[str, Position]:
        """Return the components of the cut that differ from the cut before."""
        return {name: at for name, at in self.cut.items() if at != self.before.regions[name].position}


class Proof(Light):
    """An operator's statement: no commit of this decision is in the table at or before this head."""

    decision: int
    head: SnapshotRef


class SkippedRecord(Light):
    """A record that only a newer release reads, and that an order skips."""

    offset: int
    digest: str
    ordered: bool = False
    """True once its order was read, too."""


class LogState(Light):
    """The fold of a stream's log, as of one offset."""

    partition: int | None = None
    """The partition of the first registration."""
    table: str | None = None
    """Identity of the table, from the first outcome."""
    policy: StreamPolicy = StreamPolicy(number=0)
    """The newest one in the log; number 0: there is none yet."""
    assignment: AssignmentState | None = None
    former: Former | None = None
    """The assignment before, while the current one is provisional."""
    withdrawn: int = -1
    """The highest number of a withdrawn assignment; it never comes back."""
    regions: dict[str, RegionState] = {}
    ended: dict[str, str | None] = {}
    """Incarnations that ended, and their regions; none of them lives again.

    Once a committed cut moves the region, its position is past the base of each, which is the reason for
    which a registration fails from then on. None: remembered longer, because another region without a
    position would accept the base "none", or because the region is unknown. At most MOST_ENDED: without a
    commit, each start of a driver may add one. A registration of an older one would be accepted as that of a
    new incarnation, so nothing that it sent before counts.
    """
    skipped: list[SkippedRecord] = []
    savepoints: list[Savepoint] = []
    paused: bool = False
    decided: int = 0
    """Id of the newest valid decision."""
    unresolved: Decision | None = None
    """The newest valid decision, while it has no outcome."""
    proof: Proof | None = None
    snapshot: SnapshotRef | None = None
    """The table's snapshot of the newest outcome."""
    outcome: str = ""
    """Digest of the newest outcome: that of its decision, or of the revert; empty if it is not known."""
    tables: dict[str, KnownTable] = {}
    """The registry: every further table that was ever in the policy. No validity depends on it."""
    watermark: int | None = None
    attempt: int = 0
    """Number of attempts abandoned since the newest decision."""

    @property
    def stated_regions(self) -> Collection[str] | None:
        """Return the regions whose positions an operator stated, until a full cut after that is committed.

        None: none are stated. The first cut of an assignment is full. A revert brings back what was before.
        """
        former = self.former or (self.unresolved.before.former if self.unresolved is not None else None)
        if former is not None:
            return former.regions if former.assignment is None else None
        # Its assignment was withdrawn.
        return self.regions if self.assignment is None and self.regions else None

    @property
    def has_savepoint(self) -> bool:
        """True while a savepoint is open: an operator waits for commits."""
        return any(not each.drain for each in self.savepoints)

    @property
    def cut(self) -> dict[str, Position]:
        """Return the newest decided cut: the positions of all regions that have one."""
        return {name: each.position for name, each in self.regions.items() if each.position is not None}

    @property
    def vector(self) -> dict[str, TableVersion]:
        """Return, by name, the newest decision that touched each further table of the policy."""
        return {name: self.tables[name].newest for name in self.policy.tables}

    def registered(self, name: str, known: KnownTable) -> KnownTable | None:
        """Return what the registry has of this very table; None if the name is another one's by now."""
        found = self.tables.get(name)
        return found if found is not None and found.terms.identity == known.terms.identity else None

    def region(self, name: str) -> RegionState:
        """Return a region; one that has never registered waits for that."""
        return self.regions.get(name) or RegionState()

    def committed(self, name: str) -> RegionState:
        """Return a region as of the newest decision that has an outcome."""
        made = self.unresolved
        if made is not None and name in made.moves:
            return made.before.regions[name]
        return self.region(name)

    def unresolved_of(self, name: str) -> int | None:
        """Return the id of the decision without an outcome that moves a region; None if none does."""
        return self.unresolved.id if self.unresolved is not None and name in self.unresolved.moves else None

    def active(self) -> Iterator[str]:
        """Yield the regions of the assignment that are not gone, registered or not."""
        for name in self.assignment.regions if self.assignment else ():
            if not self.region(name).has_ended:
                yield name
