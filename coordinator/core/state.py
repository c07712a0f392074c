"""The light state of a stream: small, serialisable, and whole in every state record.

The heavy part, what is pending, is in the ledger and is refilled from the log.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from sluicegate.events.envelope import BODIES, EventType
from sluicegate.events.models import (
    Assignment,
    CutAbandoned,
    CutCommitted,
    CutVoided,
    OpeningAnswered,
    Parent,
    Position,
    SavepointTaken,
    StreamPolicy,
    StreamStalled,
)
from sluicegate.lakes.port import SnapshotRef

RECORD_VERSION: Final = 1


class Light(BaseModel):
    """The base of the record's models; fields of newer minor versions are ignored."""

    model_config = ConfigDict(extra="ignore")


class LineageState(Light):
    """One life of a region's checkpoint numbering."""

    opened_at: int
    """Offset of its first accepted opening; events before it are not its own."""
    start: int | None = None
    """Its parent's last checkpoint that counts; None if it has no parent or builds on nothing of it."""
    limit: int | None = None
    """Set when a child names it: its last checkpoint that counts; -1 if none does."""
    decided: int | None = None
    """Its last checkpoint that a valid decision includes."""
    written: int | None = None
    """Its highest checkpoint of which an event counted."""
    watermark: int | None = None
    """The region's, in milliseconds, at the decided checkpoint."""
    highest: int | None = None
    """The highest watermark that its decided checkpoints carry."""
    assignment: int = 0
    """The number of the assignment under which it was first opened."""
    continued: int = 0
    """The number of the assignment under which it was last opened."""
    parents: list[Parent] = []
    """Checkpoints of other regions that it builds on: they are in every cut that it is in."""
    held: int | None = None
    """Its first checkpoint that is never to be committed: lost, contradicted, or given up."""
    dropped: bool = False
    """Others went on from elsewhere: nothing of it was committed, or ever is."""

    @property
    def undecided(self) -> bool:
        """Whether anything was written of it that no decision includes and that may still count."""
        last = -1 if self.written is None else self.written
        if self.limit is not None:
            last = min(last, self.limit)
        return last > (-1 if self.decided is None else self.decided)


class RegionState(Light):
    """A region: which lineages it lived, and where it stands."""

    lineages: dict[str, LineageState] = {}
    chain: list[str] = []
    """The lineages from the one the ref is in to the live one, which is the last."""
    accepted: list[str] = []
    """Lineages that the operator of an older release allowed to start without parents, wherever that is."""
    accepted_behind: dict[str, Position | None] = {}
    """Lineages that the operator allowed to start without parents, each behind one ref."""
    ref: Position | None = None
    """The region's component of the last decided cut."""
    ref_digest: str | None = None
    """Digest of the source range at the ref: tells a replay from other content."""
    watermark: int | None = None
    """Milliseconds since the Unix epoch, at the ref."""
    listeners: dict[str, str] = {}
    """State of listeners, at the ref."""
    fallbacks: int = 0
    """How many cuts in a row it did not move in though it owed."""
    joined: str | None = None
    """Why its writers, and with them the stream's, are one region; None if they are independent."""
    owned: bool = True
    """False: what its parents wrote belongs to somebody else, until a full cut says all anew."""
    removed: bool = False
    """An operator removed it: it is not waited for."""
    idle: bool = False
    """Its last heartbeat claims that it has no work, and no event has contradicted that."""
    bounded: bool = False
    closed: bool = False
    final: int | None = None
    """The final checkpoint of the live lineage, once the region is closed."""
    left: bool = False
    """Closed, and the final checkpoint is in the cut."""
    fault: str | None = None
    """Why the region stalls until a new lineage replaces the live one."""

    @property
    def live(self) -> str | None:
        """The lineage whose driver may add checkpoints."""
        return self.chain[-1] if self.chain else None

    @property
    def resting(self) -> bool:
        """Whether it is idle: a heartbeat cannot make it so while it has undecided work."""
        return self.idle and not any(self.lineages[lineage].undecided for lineage in self.chain)


class Order(Light):
    """One operator's wish for a savepoint."""

    name: str
    drain: bool = False
    """Whether the regions were closed with it."""


class Savepoint(Light):
    """A full cut that operators asked for, which is to reach all that was completed then."""

    orders: list[Order] = []
    targets: dict[str, Position] = {}

    def joined_by(self, order: Order, targets: dict[str, Position]) -> "Savepoint":
        """With another order, which the same cut will answer."""
        return Savepoint(orders=[*self.orders, order], targets={**self.targets, **targets})


class Before(Light):
    """What a decision changed, as it was before: where a void goes back to."""

    regions: dict[str, RegionState] = {}
    assignment: Assignment | None = None
    next: Assignment | None = None
    savepoint: Savepoint | None = None
    watermark: int | None = None


class Decision(Light):
    """A valid decision, held whole from the log until its outcome is known."""

    id: int
    digest: str
    offset: int
    """Where it stands in the log."""
    cut: dict[str, Position]
    fallbacks: dict[str, Position | None] = {}
    """Regions that owed and did not move, with their ref."""
    forced: bool = False
    """Whether it had to be full, because a region was at its most fallbacks."""
    final: bool
    savepoint: Savepoint | None = None
    """The savepoint that is taken with it."""
    watermark: int | None
    listeners: dict[str, dict[str, str]] = {}
    parts: list[int]
    """Offsets of the `files.written` events that it includes."""
    files: int
    first_offset: int
    """The first event that is needed to commit it."""
    last_time: int = 0
    """Append time in milliseconds of the last event that it includes."""
    void: tuple[str, int] | None = None
    """Set when an operator gives it up: the region and the checkpoint to be held out."""
    before: Before | None = None
    """Of the last decision only."""


Notice = OpeningAnswered | CutCommitted | CutAbandoned | CutVoided | SavepointTaken | StreamStalled


class Due(Light):
    """A notification that follows the record it stands in; repeated after a crash, with the same id."""

    id: str
    type: EventType
    region: str = ""
    lineage: str = ""
    body: Notice

    @field_validator("body", mode="before")
    @classmethod
    def _by_type(cls, value: object, info: ValidationInfo) -> object:
        return BODIES[info.data["type"]].model_validate(value) if isinstance(value, dict) else value


class LightState(Light):
    """Everything but the pending events, as of one offset."""

    partition: int | None = None
    """The partition of the first opening."""
    table: str | None = None
    """Identity of the table."""
    recorded: SnapshotRef | None = None
    """The newest snapshot known to be followed by no unresolved decision of ours; None: an empty table."""
    contradicted: SnapshotRef | None = None
    """The recorded snapshot, if the table was seen to have another in its place, or none that follows it."""
    assignment: Assignment | None = None
    """The one in force: the last that had a full cut, or the first."""
    next: Assignment | None = None
    """A higher one that has been opened, and has had no full cut yet."""
    assignments: list[Assignment] = []
    """The one in force, the newest, and those of which a lineage is undecided or a region not yet opened."""
    policy: StreamPolicy | None = None
    regions: dict[str, RegionState] = {}
    savepoint: Savepoint | None = None
    """One that is still to be taken."""
    attempt: int = 0
    """How many forced cuts were abandoned since the last decision."""
    abandoned_at: int | None = None
    """Append time in milliseconds of the last abandonment."""
    decided: int = 0
    """Id of the last valid decision."""
    committed: int = 0
    """Id of the last decision whose outcome is known."""
    snapshot: int | None = None
    """The table's snapshot of the last committed decision, if it was seen."""
    watermark: int | None = None
    blocked: str | None = None
    """Why nothing is decided until an operator resumes the stream, by way of the log."""
    paused: bool = False
    """Whether that is an operator's pause, and nothing is wrong."""
    pending: list[Decision] = []
    """Valid decisions whose outcome is not known, in order."""


EffectKind = Literal[
    "inspect",
    "fetch_end",
    "check",
    "append",
    "carry",
    "ask",
    "publish",
    "record",
    "announce",
    "view",
    "offsets",
]
"""The kinds of effects, each in one word."""


class Retrying(Light):
    """An effect that failed and is tried again."""

    effect: EffectKind
    reason: str
    """Of the last failure."""
    failures: int
    lasted: int
    """Milliseconds between the first failure and the last."""


class Waiting(Light):
    """What a region has written and is in no decision yet."""

    files: int
    rows: int
    """0 also if the writers do not tell."""
    since: int
    """Append time in milliseconds of the first event of the oldest checkpoint."""


class StateRecord(Light):
    """The value of a stream's record in the compacted state topic."""

    version: int = RECORD_VERSION
    stream: str
    applied: int
    """P: every event at or before this offset is in `state`; -1 if none is."""
    commit_user: str | None = None
    """As whom the stream commits; None in records of older releases."""
    applied_id: str | None = None
    """Id of the stream's event at P: another one there means that the topic was made anew."""
    low_water: int
    """The smallest offset that a recovery must read."""
    state: LightState
    due: list[Due] = []
    stalled: str | None = None
    """Why the stream does not go on; for status only."""
    joined: str | None = None
    """Why the stream is one region, so that its cuts are full; for status only."""
    waits: list[str] = []
    """What the next cut waits for; for status only."""
    refused: dict[str, str] = {}
    """By region, why its last opening was refused, until one is accepted or its query goes on; for status."""
    misplaced: dict[str, tuple[str, str, int]] = {}
    """Events that completions name, and in which region, lineage and checkpoint they lie instead."""
    heard: dict[str, int] = {}
    """By region, the append time in milliseconds of the last event that its job sent; for status only."""
    heartbeats: dict[str, int] = {}
    """By region, the milliseconds between its heartbeats; for status only."""
    waiting: dict[str, Waiting] = {}
    """By region, what is written and in no decision; for status only."""
    retries: list[Retrying] = []
    """What failed and is tried again; for status only."""
