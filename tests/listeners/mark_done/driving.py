"""A host of one listener for tests: it runs steps as the port says, and can crash before a state is kept."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from sluicegate.events.models import CommitSummary, Position, SnapshotRef
from sluicegate.events.notifications import Committed, Notification, NotificationType, SavepointTaken
from sluicegate.lakes.registry import adapter
from sluicegate.listeners.mark_done.listener import TYPE
from sluicegate.listeners.port import (
    Action,
    Done,
    Listener,
    ListenerType,
    Options,
    Outcome,
    Result,
    Services,
    Step,
    Stream,
)

POSITION = Position(incarnation="q", checkpoint=1, digest="d")


def stream_of(format: str, table: str, options: Mapping[str, str] | None = None) -> Stream:
    """Return the facts of a stream `flights` of a table."""
    found = adapter(format)
    return Stream(
        name="flights",
        format=format,
        table=found.parse_table(table, options),
        adapter=found,
        commit_user="sluicegate-flights",
        partial=True,
    )


def committed(
    decision: int,
    *partitions: Mapping[str, str | None],
    watermark: int | None,
    time: int = 0,
    fallbacks: tuple[str, ...] = (),
    unknown: bool = False,
) -> Outcome:
    """Return the outcome of a commit that gave files to these partitions."""
    touched = None if unknown else tuple(dict(each) for each in partitions)
    body = Committed(
        decision=decision,
        cut={"r": POSITION},
        fallbacks=dict.fromkeys(fallbacks),
        snapshot=SnapshotRef(id=decision * 10, identity="i"),
        watermark=watermark,
        files=max(1, len(partitions)) if partitions or unknown else 0,
        summary=CommitSummary(table="file:/t", touched=touched, visible=time),
    )
    kind = NotificationType.PARTIALLY_COMMITTED if fallbacks else NotificationType.COMMITTED
    return Outcome(id=f"c{decision}", type=kind, stream="flights", time=time, body=body)


def drained(decision: int, *, watermark: int | None, time: int = 0) -> Outcome:
    """Return the end of a drain."""
    body = SavepointTaken(
        name="end", drained=True, decision=decision, cut={}, snapshot=None, watermark=watermark
    )
    return Outcome(
        id=f"d{decision}", type=NotificationType.SAVEPOINT_TAKEN, stream="flights", time=time, body=body
    )


class Crash(Exception):
    """The end of the process."""


@dataclass
class Host:
    """The host of the listener of one stream. A new one continues from the kept state, as after a restart."""

    options: Options
    stream: Stream
    kind: ListenerType[Any] = TYPE
    kept: dict[str, Any] | None = None
    """The state, as JSON."""
    crash: Callable[[], bool] = lambda: False
    """Asked before and after each action, and before the state is kept."""
    published: list[Notification] = field(default_factory=list)
    ran: list[Action] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    wake: int | None = None

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession()
        self.listener = self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.listener.close()
        await self.http.close()

    def open(self) -> Listener[Any]:
        services = Services(http=self.http, publish=self.publish, in_thread=asyncio.to_thread)
        self.kind.check(self.options, self.stream)
        return self.kind.open(self.options, self.stream, services)

    def restart(self) -> None:
        """Begin again with the kept state alone."""
        self.listener = self.open()

    async def publish(self, notification: Notification) -> None:
        self.published.append(notification)

    @property
    def state(self) -> Any:
        return self.listener.initial() if self.kept is None else self.listener.load(self.kept)

    async def see(self, *outcomes: Outcome) -> None:
        """Apply outcomes, and call `due` after each, as if no time had passed since."""
        for outcome in outcomes:
            await self.take(self.listener.apply(outcome, self.state))
            await self.clock(outcome.time)

    async def clock(self, now: int) -> None:
        await self.take(self.listener.due(now, self.state))

    async def take(self, step: Step[Any]) -> None:
        """Run the actions, in order, and keep the state. Stops at a result that is not Done."""
        for action in step.actions:
            self.end()
            result = await self.listener.run(action)
            self.ran.append(action)
            self.results.append(result)
            if not isinstance(result, Done):
                raise NotDone(result)
            self.end()
        self.end()
        self.kept = step.state.model_dump(mode="json")
        self.wake = step.wake

    def end(self) -> None:
        if self.crash():
            raise Crash


class NotDone(Exception):
    """An action was not done; the host would repeat it."""

    @property
    def result(self) -> Result:
        found: Result = self.args[0]
        return found
