"""The view of a stream that other services read, and the store that holds it.

It is made from the stream's state record and is never read to decide anything: losing it costs nothing
but what is shown, until the next commit writes it again.
"""

from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sluicegate.events.models import Assignment, Millis, Name, Position

VIEW_VERSION: Final = 2
"""2: fallbacks, savepoint, assignments and listeners' state of each region; regions may be `removed`."""

MAX_REVISION: Final = 2**53 - 1
"""Redis compares revisions as floating-point numbers, which are exact up to here."""


class StateStoreError(Exception):
    """The base of the errors that state stores raise; none of them may hold up a commit."""


class StateStoreUnavailable(StateStoreError):
    """The store did not answer in time or failed; a write may have happened or not. Try again, or go on."""


class UnreadableView(StateStoreError):
    """What is stored is no view; the text says what to do. The next write replaces it."""


class RegionView(BaseModel):
    """How one region stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: Literal["active", "idle", "closed", "stalled", "removed"] = "active"
    reason: str | None = None
    """Why it is stalled, and what to do; or why it stayed behind, was removed or is not owned."""
    refused: str | None = None
    """Why its last opening was refused: its query does not run, whatever the state was before."""
    heard: Millis | None = None
    """When its job last sent an event, by Kafka's append time."""
    lineage: Name | None = None
    """The one whose driver may add checkpoints."""
    watermark: Millis | None = None
    """At the region's place in the cut."""
    consecutive_fallbacks: Annotated[int, Field(ge=0)] = 0
    """How many cuts in a row it stayed behind in."""
    owned: bool = True
    """False: restored without owning what its parents wrote, until a full commit."""
    listeners: dict[Name, str] = {}
    """State of listeners, opaque, as it was frozen with the region's checkpoint in the cut."""


class SavepointView(BaseModel):
    """A full commit that was ordered, perhaps several times, and is still to come."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    names: tuple[Name, ...]
    drain: bool = False
    """Whether the regions are closed with it."""
    targets: dict[Name, Position] = {}
    """What it reaches, by region."""


class RetryView(BaseModel):
    """A step that fails and is tried again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    effect: str
    """Its kind, such as `publish`."""
    reason: str
    """Of the last failure."""
    failures: Annotated[int, Field(ge=1)]
    since: Millis


class StreamView(BaseModel):
    """How one stream stands, as of a revision. Times are milliseconds since the Unix epoch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Annotated[int, Field(ge=1)] = VIEW_VERSION
    stream: Name
    revision: Annotated[int, Field(ge=-1, le=MAX_REVISION)]
    """The offset as of which the state record is that it was made from; -1: before any event."""
    updated_at: Millis
    commit_user: str
    decision: Annotated[int, Field(ge=0)] = 0
    """The last committed decision; 0: none yet."""
    snapshot: int | None = None
    """The table's snapshot of that decision."""
    cut: dict[Name, Position] = {}
    """Up to where each region is in the table; regions of which nothing is there are absent."""
    fallbacks: dict[Name, Position | None] = {}
    """Regions that did not move in the last commit though they should have, and where they stand."""
    forced_by: tuple[Name, ...] = ()
    """Regions that may not stay behind once more, so that the next commit has to be full."""
    joined: str | None = None
    """Why all regions count as one, so that every commit is full; None if they do not."""
    savepoint: SavepointView | None = None
    """One that waits."""
    watermark: Millis | None = None
    assignment: Annotated[int, Field(ge=0)] | None = None
    """The number of the assignment in force."""
    assigned: tuple[Name, ...] = ()
    """Its regions."""
    next_assignment: Assignment | None = None
    """One that was opened, and holds from its first full commit on."""
    regions: dict[Name, RegionView] = {}
    listeners: dict[str, dict[str, Any]] = {}
    """The state of each listener by its name, as JSON."""
    warnings: tuple[str, ...] = ()
    """What an operator should know though the stream goes on."""
    stalled: str | None = None
    """Why the stream does not go on though it should, and what to do; None: nothing is wrong."""
    retries: tuple[RetryView, ...] = ()
    """What fails and is tried again, whether it counts as a stall yet or not."""
    paused: str | None = None
    """Who wants it to stand still, and how it goes on; None: nobody does."""


class StateStore(Protocol):
    """Holds one view per stream; every call ends within a bounded time, or raises StateStoreUnavailable."""

    async def write(self, view: StreamView) -> bool:
        """Replace the stream's view in one atomic step; False if a higher revision is stored.

        An equal revision is written again and is True: it comes from the same state record, but the
        listeners may have moved since.
        """

    async def read(self, stream: str) -> StreamView | None:
        """Return the stream's view, None if there is none. Raises UnreadableView."""

    async def streams(self) -> list[str]:
        """Return the names of the streams that have a view, in order."""

    async def remove(self, stream: str) -> None:
        """Forget the stream's view and its revision: after its topic was made anew, or when it is gone."""

    async def ping(self) -> None:
        """Return if the store answers."""

    async def close(self) -> None:
        """Give the store's connections back; may be repeated."""
