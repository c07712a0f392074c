"""The one model of a stream's state, and the port of the store that keeps it.

The service makes a view from the stream's state record. `/status`, the HTTP interface, the live page, the
command line and the store all have this model. No decision depends on it. A lost view affects only displays,
until the next commit writes it again.
"""

from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sluicegate.events.models import Millis, Name, Position, SnapshotRef

MAX_REVISION: Final = 2**53 - 1
"""Largest revision. Redis compares revisions as floating-point numbers, which are exact up to here."""

Number = Annotated[int, Field(ge=0)]


class StateStoreError(Exception):
    """Base of the errors of state stores. None of them may delay a commit."""


class StateStoreUnavailable(StateStoreError):
    """The store failed or did not respond in time. A write may have taken effect; it is safe to retry or to
    skip."""


class UnreadableView(StateStoreError):
    """The stored value is not a valid view; the text contains the remedy. The next write replaces it."""


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ProblemView(_View):
    """A problem: its code and arguments for programs, and its sentences for people."""

    code: str
    message: str
    arguments: dict[str, Any] = {}


class ConditionView(ProblemView):
    """Something that keeps the stream, or one region of it, from progress, or that people should know."""

    kind: Literal["stall", "pause", "wait", "retry", "refusal"]
    """stall: somebody must act. wait: something must arrive. retry: a step fails and is tried again."""
    region: Name | None = None
    """None: it concerns the whole stream."""
    table: Name | None = None
    """The further table that it is about; None: the anchor, or no table."""
    retry_in: Number | None = None
    """Milliseconds until the next try; None: nothing is tried."""


class RegionView(_View):
    """State of one region."""

    phase: Literal["waiting", "live", "closed", "removed", "left"] = "waiting"
    assigned: bool = True
    """True if the assignment in force has it."""
    ended: bool = False
    """True if it is closed or removed, and everything of it is committed."""
    idle: bool = False
    """True if its newest heartbeat says so; cuts also ask if something of it is pending (`Log.is_idle`)."""
    stalled: ProblemView | None = None
    """The problem because of which the region waits for a reset."""
    failed: Millis | None = None
    """Append time at which its driver has told that its newest checkpoint fails; None: it has told none."""
    refused: ProblemView | None = None
    """The refusal of its newest registration. Its query does not run, in whatever phase the region is."""
    incarnation: Name | None = None
    """Live incarnation, the one whose driver may add checkpoints."""
    base: Position | None = None
    """Position at which its newest incarnation began."""
    final: int | None = None
    """Its last checkpoint, once it is closed."""
    source_offsets: str | None = None
    """Source offsets at the committed position; opaque."""
    watermark: Millis | None = None
    """Watermark at the committed position."""
    consecutive_fallbacks: Number = 0
    """Number of consecutive cuts in which the region fell back."""
    moved: Millis | None = None
    """Append time of the decision that has moved it to its newest position."""
    heard: Millis | None = None
    """Append time of the newest event of its driver."""
    heartbeat_interval: Number | None = None
    """Milliseconds between its heartbeats, as its driver states them."""
    listeners: dict[Name, str] = {}
    """Opaque state of listeners, as of the committed position."""


class WaitingView(_View):
    """Files of one region that are in no decision."""

    files: Number
    rows: Number
    since: Millis
    """Append time of the first event of the oldest checkpoint."""


class AssignmentView(_View):
    """The assignment in force."""

    number: Number
    regions: tuple[Name, ...]
    after: Number = 0
    """Decision with the cut that it follows; 0: none."""
    provisional: bool = False
    """True until its first decided cut: until then it can be withdrawn."""


class PendingView(_View):
    """The decision without an outcome, which is on its way into the table."""

    decision: Number
    files: Number
    regions: tuple[Name, ...]
    """Regions that move."""
    fallbacks: tuple[Name, ...] = ()
    """Regions that fell back."""
    revert_of: Name | None = None
    """Region that the order to revert names; None: the decision is not being reverted."""


class ListenerView(_View):
    """State of one listener of the stream."""

    type: str
    decision: Number | None = None
    """Newest decision that it has handled; None: none yet."""
    backlog: Number = 0
    """Number of decisions with an outcome that it has not handled."""
    problem: ProblemView | None = None
    """Reason why it makes no progress; None: it does, or has nothing to do."""
    stopped: bool = False
    """True if it does nothing until somebody acts on the problem."""
    handled_at: Millis | None = None
    """Time at which it handled an outcome last."""
    note: str | None = None
    """Something that people should know, and that stops nothing: actions that were skipped."""


class SavepointView(_View):
    """A savepoint or a drain that is not reached yet."""

    name: Name
    drain: bool = False
    """True if it is reached when all regions have ended."""
    targets: dict[Name, Position] = {}
    """Position to reach, by region."""
    unreached: tuple[Name, ...] = ()
    """Regions for which it waits."""


class FurtherTableView(_View):
    """A further table of the stream, as of its newest outcome."""

    identifier: str
    """Its name in the catalog of the anchor."""
    identity: str
    location: str
    """URI of the folder of its files."""
    decision: Number = 0
    """Newest decision that touched it; 0: none yet."""
    snapshot: SnapshotRef | None = None
    """Its snapshot of that decision; None: there is none, or only later ones can be read."""


class StreamView(_View):
    """State of one stream as of a revision. Times are milliseconds since the Unix epoch."""

    stream: Name
    revision: Annotated[int, Field(ge=-1, le=MAX_REVISION)]
    """Log offset of the state record that the view was made from; -1: before any event."""
    updated_at: Millis
    """Time for which the view holds."""
    low_water: Number = 0
    """First log offset that a recovery reads."""
    commit_user: str | None = None
    """None: no coordinator has served the stream, and the settings at hand do not have it."""
    table: str | None = None
    """URI of the table; None: the settings at hand do not have the stream."""
    table_identity: str | None = None
    table_head: SnapshotRef | None = None
    """The table's head as of its last answer."""
    owner: str | None = None
    """Owner of the stream in the settings; None: none is named."""
    decided: Number = 0
    """Newest decision; 0: none yet."""
    committed: Number = 0
    """Newest decision with an outcome; 0: none yet. One above it is still on its way into the table."""
    pending: PendingView | None = None
    """The decision above `committed`; None: there is none."""
    snapshot: SnapshotRef | None = None
    """The table's snapshot of the newest outcome."""
    tables: dict[Name, FurtherTableView] = {}
    """By name, the tables of the stream beside `table`, which is its anchor: with `snapshot`, the vector."""
    cut: dict[Name, Position] = {}
    """Committed position of each region. Regions without one are absent."""
    decided_cut: dict[Name, Position] = {}
    """Position of each region in the newest decision; equal to `cut` if that is committed."""
    partial: Literal["allow", "never"] | None = None
    """Policy of partial commits: they may leave a region out, or never; None: it is not in the log yet."""
    forced_by: tuple[Name, ...] = ()
    """Regions that reached the maximum of consecutive fallbacks, so the next commit is full."""
    absent: tuple[Name, ...] = ()
    """Regions for which no commit waits: silent, stalled, declined, or without a driver."""
    max_consecutive_fallbacks: Number | None = None
    """That maximum; None: no policy is in the log yet."""
    waiting: dict[Name, WaitingView] = {}
    """Files that are in no decision, of each region that has any."""
    single_region: str | None = None
    """Reason why all regions are one failure domain, with full commits only; None: they are not."""
    savepoints: tuple[SavepointView, ...] = ()
    watermark: Millis | None = None
    """Watermark of the newest commit."""
    assignment: AssignmentView | None = None
    next_assignment_after: Number | None = None
    """Value of `assignment.after` for the next assignment; None while this one lasts."""
    regions: dict[Name, RegionView] = {}
    silent: tuple[Name, ...] = ()
    """Live regions whose heartbeats are missing as of `updated_at`: their drivers have probably ended."""
    strangers: dict[Name, ProblemView] = {}
    """Refusals of regions that the stream does not have."""
    listeners: dict[str, ListenerView] = {}
    """State of each listener by its name, at the time of `updated_at` or later."""
    conditions: tuple[ConditionView, ...] = ()
    """Everything that keeps the stream or a region from progress, the gravest first; empty: nothing does."""
    paused: bool = False


class Stamp(NamedTuple):
    """Identity of one stored view, whether it can be read or not."""

    revision: int
    updated_at: str
    """As it is stored."""


class StateStore(Protocol):
    """Port of a store with one view per stream.

    Every call ends within a bounded time, or raises StateStoreUnavailable.
    """

    async def write(self, view: StreamView) -> bool:
        """Replace the stream's view atomically. Return False if a higher revision is stored.

        A view of equal revision is written, and the result is True. It is from the same state record, but
        the state of listeners may have changed since.
        """

    async def read(self, stream: str) -> StreamView | None:
        """Return the stream's view, None if there is none. Raises UnreadableView."""

    async def stamp(self, stream: str) -> Stamp | None:
        """Return the identity of the stored view; None if there is none, or if it has no revision."""

    async def replace(self, view: StreamView, stamp: Stamp) -> bool:
        """Replace the view that has this stamp, whatever its revision is. Return False if it is another one.

        For a view that was made from another log. The comparison and the write are one atomic step, so a
        view that another process has written meanwhile stays.
        """

    async def streams(self) -> list[str]:
        """Return the names of the streams that have a view, sorted."""

    async def read_all(self) -> "dict[str, StreamView | UnreadableView]":
        """Return all views by stream, in few exchanges with the store, however many they are.

        Each is whole, but they need not be of one moment. One that cannot be read is the error that `read`
        raises.
        """

    async def remove(self, stream: str) -> None:
        """Remove the stream's view with its revision: it is forgotten, or continues in another log."""

    async def ping(self) -> None:
        """Return if the store responds, else raise StateStoreUnavailable."""

    async def close(self) -> None:
        """Close the store's connections. Repeated calls are allowed."""
