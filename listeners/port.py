"""Port of listeners: work that follows a commit, such as marks, tags and webhooks.

A listener is deterministic in the middle. `apply` and `due` are pure: from an outcome, or the time, and the
listener's state, they make the next state and actions. The host runs the actions, in order, one at a time. It
writes the state, with the place in the feed, after all actions of the step are done. So a crash repeats
actions, with the same keys: at least once.

A type of listeners is an entry point of the group `sluicegate.listeners`: its name is the setting `type`, its
object is a `ListenerType`. So a package of a third party can add one.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from sluicegate.events.models import CutReverted, TableSummary
from sluicegate.events.notifications import Committed

if TYPE_CHECKING:
    import aiohttp

    from sluicegate.events.notifications import Notification, NotificationType, SavepointTaken
    from sluicegate.lakes.port import Adapter, TableRef


class ListenerRefused(Exception):
    """A listener makes no sense for its stream, or cannot be made. The text has the way out."""


class ListenerUnready(ListenerRefused):
    """A file or a package that the settings name cannot be used now. It is tried again until it can."""


class State(BaseModel):
    """Base of a listener's state: JSON in its record. A field that is added later needs a default."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Options(BaseModel):
    """Base of a listener's own settings: the keys of its table in the settings beside the common ones.

    A secret is a `SecretStr`, or the path of a file that contains it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Outcome:
    """One notification of a stream. A decision that was committed is visible in the table."""

    id: str
    """Id of the notification. A repetition has the same one, and does not reach a listener again."""
    type: "NotificationType"
    """COMMITTED, PARTIALLY_COMMITTED, REVERTED or SAVEPOINT_TAKEN."""
    stream: str
    time: int
    """Time of the notification, in milliseconds since the Unix epoch."""
    body: "Committed | CutReverted | SavepointTaken"

    @property
    def decision(self) -> int:
        """Return the decision; that of a savepoint is the newest one at its end, 0 if there is none."""
        return self.body.decision


def as_of_table(outcome: Outcome, name: str, location: str) -> Outcome:
    """Return an outcome as a listener of a further table gets it.

    Files, partitions and snapshot are those of the table, the watermark is that of the stream. A commit that
    does not touch the table has no files, and the snapshot that the table has since before. `location`: URI
    of the table.
    """
    body = outcome.body
    if isinstance(body, CutReverted):
        return outcome
    known = body.tables.get(name)
    changes: dict[str, Any] = {"snapshot": known.snapshot if known is not None else None, "tables": {}}
    if isinstance(body, Committed):
        touched = known is not None and known.decision == body.decision
        summary, own = body.summary, None
        if summary is not None:
            own = summary.tables.get(name) if touched else _untouched(location)
        if own is not None and summary is not None:
            content = {key: getattr(own, key) for key in TableSummary.model_fields}
            changes["summary"] = summary.model_copy(update={**content, "tables": {}, "previous": None})
        else:
            changes["summary"] = None
        files = own.files if own is not None and own.files is not None else body.files
        changes["files"] = files if touched else 0
    return replace(outcome, body=body.model_copy(update=changes))


def _untouched(location: str) -> TableSummary:
    return TableSummary(table=location, files=0, rows=0, bytes=0, partitions=0, touched=(), sizes=())


@dataclass(frozen=True)
class Action:
    """One step in the world outside, as data. Subclass it with what the listener needs to run it."""

    key: str
    """Idempotency key: the same for a repetition after a crash, and for no other action of the listener."""
    text: str
    """Short description for logs and status, such as `mark dt=2026-01-01 done`."""


@dataclass(frozen=True)
class Done:
    """The action took effect, now or earlier."""


@dataclass(frozen=True)
class Failed:
    """The action had no effect. It is tried again, with growing pauses."""

    reason: str
    """A sentence, and what to do."""


@dataclass(frozen=True)
class Unknown:
    """The action may have had an effect. It is tried again under the same key."""

    reason: str
    """A sentence, and what to do."""


@dataclass(frozen=True)
class Refused:
    """The action can never take effect as it is. The listener stops until somebody acts."""

    reason: str
    """A sentence, with the way out."""


Result = Done | Failed | Unknown | Refused

S = TypeVar("S", bound=State)
O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True)
class Step(Generic[S]):
    """The next state of a listener, and the actions that lead to it."""

    state: S
    actions: tuple[Action, ...] = ()
    wake: int | None = None
    """Time of the next call of `due`, in milliseconds since the Unix epoch; None: after the next outcome."""


@dataclass(frozen=True)
class Stream:
    """Facts of the stream that a listener belongs to."""

    name: str
    format: str
    table: "TableRef"
    """The table that the listener belongs to, as the adapter parsed it, with its options.

    The location of a further table is empty in `ListenerType.check`.
    """
    adapter: "Adapter"
    commit_user: str
    partial: bool
    """True if a commit may leave regions out."""
    tables: "Mapping[str, TableRef]" = field(default_factory=dict)
    """By name, the further tables of the stream, with empty locations. Those of another table has none."""


@dataclass(frozen=True)
class Services:
    """Clients and threads of the host, lent to a listener."""

    http: "aiohttp.ClientSession"
    """Session for requests of this listener alone."""
    publish: "Callable[[Notification], Awaitable[None]]"
    """Append a notification to the commits topic. Raises KafkaError. An `id` derived from the action's key
    makes a repetition recognisable."""
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Run a function that blocks in a thread. A hanging storage delays this listener alone."""


class Listener(Protocol[S]):
    """A listener of one stream, while this process owns the stream.

    The host calls one method at a time. The order is that of the decisions. A reverted decision comes as
    REVERTED, and never as COMMITTED.
    """

    @abstractmethod
    def initial(self) -> S:
        """Return the state before the first outcome."""
        ...

    @abstractmethod
    def load(self, state: Mapping[str, Any]) -> S:
        """Return the state from its JSON. Raises ValueError if it cannot be used."""
        ...

    @abstractmethod
    def apply(self, outcome: Outcome, state: S) -> Step[S]:
        """Return the step that an outcome causes. It is pure: no clock, randomness or I/O."""
        ...

    def due(self, now: int, state: S) -> Step[S]:
        """Return the step that the time causes; by default none. It is pure.

        The host calls it after a start, after each outcome, and at `wake` of the last step; only when every
        outcome that the feed had at its last look was applied.
        """
        return Step(state)

    @abstractmethod
    async def run(self, action: Action) -> Result:
        """Run an action, once. The host repeats it under the same key after any result but Done.

        An exception counts as Unknown.
        """
        ...

    async def close(self) -> None:
        """Release resources; by default none. Repeated calls are allowed."""
        return


class StatelessListener(Listener[State]):
    """A listener whose actions depend on one outcome alone."""

    def initial(self) -> State:
        return State()

    def load(self, state: Mapping[str, Any]) -> State:
        return State()


@runtime_checkable
class ListenerType(Protocol[O]):
    """A type of listeners: makes those of this type from their settings."""

    options: type[O]
    """Model of its settings."""

    def check(self, options: O, stream: Stream) -> None:
        """Raise ListenerRefused, with the way out, if these settings make no sense for the stream.

        It needs no connection: the service calls it at the start, and `sluicegate check` too. Raise
        ListenerUnready for what may be there later: the service starts without the listener then.
        """
        ...

    def open(self, options: O, stream: Stream, services: Services) -> Listener[Any]:
        """Return a listener. Raises ListenerRefused."""
        ...


@runtime_checkable
class ChecksTable(Protocol):
    """Capability of a type: its settings are compared with the table, too."""

    def check_table(self, options: Any, stream: Stream) -> None:
        """Raise ListenerRefused, with the way out, if these settings make no sense for the table.

        It reads the table, so it blocks, and raises LakeError, too. The host calls it at the start of a
        listener, and again until the table can be read and fits; so does `sluicegate check`, once.
        """
        ...


# Types of listeners by name, found through entry points; each is imported when it is first asked for.

GROUP: Final = "sluicegate.listeners"


@cache
def listener_type(name: str) -> ListenerType[Any]:
    """Return a type of listeners. Raises ListenerRefused with the way out when there is none."""
    found = {each.name: each for each in entry_points(group=GROUP)}
    entry = found.get(name)
    if entry is None:
        raise ListenerRefused(
            f"unknown type {name!r}; this release knows: {', '.join(sorted(found))}. Set `type` to one, or "
            "install the package that has it"
        )
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        loaded = entry.load()
    except Exception as error:
        raise ListenerRefused(
            f"the type {name} of the package {package} cannot be loaded: {type(error).__name__}: {error}. "
            "Upgrade that package"
        ) from error
    if not isinstance(loaded, ListenerType):
        raise ListenerRefused(
            f"the type {name} of the package {package} lacks members of "
            f"sluicegate.listeners.port.ListenerType. Install releases of {package} and sluicegate that fit "
            "together"
        )
    return loaded
