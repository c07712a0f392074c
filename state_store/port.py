"""View of a stream for other services, and the port of the store that keeps it.

The view is made from the stream's state record, and no decision depends on it. A lost view affects only
displays, until the next commit writes it again.
"""

from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sluicegate.events.models import Assignment, Millis, Name, Position

VIEW_VERSION: Final = 2
"""Version 2 adds fallbacks, savepoint, assignments and the listeners' state of each region.

The region state `removed` is also new.
"""

MAX_REVISION: Final = 2**53 - 1
"""Largest revision. Redis compares revisions as floating-point numbers, which are exact up to here."""


class StateStoreError(Exception):
    """Base of the errors of state stores. None of them may delay a commit."""


class StateStoreUnavailable(StateStoreError):
    """The store failed or did not respond in time. A write may have taken effect; it is safe to retry or to
    skip."""


class UnreadableView(StateStoreError):
    """The stored value is not a valid view; the text contains the remedy. The next write replaces it."""


class RegionView(BaseModel):
    """State of one region."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: Literal["active", "idle", "closed", "stalled", "removed"] = "active"
    reason: str | None = None
    """Reason why the region is stalled, with the remedy; or why it fell back, was removed or is not owned."""
    refused: str | None = None
    """Reason why its last opening was refused. Its query does not run, whatever `state` is."""
    heard: Millis | None = None
    """Append time of the last event that its job sent."""
    lineage: Name | None = None
    """Live incarnation, the one whose driver may add checkpoints."""
    watermark: Millis | None = None
    """Watermark at the region's committed position."""
    consecutive_fallbacks: Annotated[int, Field(ge=0)] = 0
    """Number of consecutive cuts in which the region fell back."""
    owned: bool = True
    """False: restored without owning the files of its parents. A full commit resets it to True."""
    listeners: dict[Name, str] = {}
    """Opaque state of listeners, as of the region's committed position."""


class SavepointView(BaseModel):
    """A full commit that was requested, possibly several times, and is not committed yet."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    names: tuple[Name, ...]
    drain: bool = False
    """True if the regions are closed with it."""
    targets: dict[Name, Position] = {}
    """Position to reach, by region."""


class RetryView(BaseModel):
    """A failed effect that is retried."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    effect: str
    """Kind of effect, such as `publish`."""
    reason: str
    """Reason of the last failure."""
    failures: Annotated[int, Field(ge=1)]
    since: Millis


class StreamView(BaseModel):
    """State of one stream as of a revision. Times are milliseconds since the Unix epoch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Annotated[int, Field(ge=1)] = VIEW_VERSION
    stream: Name
    revision: Annotated[int, Field(ge=-1, le=MAX_REVISION)]
    """Log offset of the state record that the view was made from; -1: before any event."""
    updated_at: Millis
    commit_user: str
    decision: Annotated[int, Field(ge=0)] = 0
    """Last committed decision; 0: none yet."""
    snapshot: int | None = None
    """Snapshot of that decision in the table."""
    cut: dict[Name, Position] = {}
    """Committed position of each region. Regions without one are absent."""
    fallbacks: dict[Name, Position | None] = {}
    """Active regions that did not advance in the last commit, with their committed positions."""
    forced_by: tuple[Name, ...] = ()
    """Regions that reached the limit of consecutive fallbacks, so the next commit must be full."""
    joined: str | None = None
    """Reason why all regions count as one, with full commits only; None: no such reason."""
    savepoint: SavepointView | None = None
    """Pending savepoint or drain."""
    watermark: Millis | None = None
    assignment: Annotated[int, Field(ge=0)] | None = None
    """Number of the assignment in force."""
    assigned: tuple[Name, ...] = ()
    """Regions of the assignment in force."""
    next_assignment: Assignment | None = None
    """Assignment that was opened and takes effect with its first full commit."""
    regions: dict[Name, RegionView] = {}
    listeners: dict[str, dict[str, Any]] = {}
    """State of each listener by its name, as JSON."""
    warnings: tuple[str, ...] = ()
    """Conditions that an operator should see although the stream makes progress."""
    stalled: str | None = None
    """Reason why the stream makes no progress, with the remedy; None: no problem."""
    retries: tuple[RetryView, ...] = ()
    """Failed effects that are being retried, even if they do not count as a stall yet."""
    paused: str | None = None
    """Reason for a pause, with the way to end it; None: not paused."""


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

    async def streams(self) -> list[str]:
        """Return the names of the streams that have a view, sorted."""

    async def remove(self, stream: str) -> None:
        """Remove the stream's view with its revision, after its topic was deleted or created again."""

    async def ping(self) -> None:
        """Return if the store responds, else raise StateStoreUnavailable."""

    async def close(self) -> None:
        """Close the store's connections. Repeated calls are allowed."""
