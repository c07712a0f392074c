"""The state of all streams of the deployment: own ones as of now, those of other coordinators from Redis."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from sluicegate.coordinator.core.pending import Checkpoint
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.view import view_of
from sluicegate.coordinator.telemetry.overview import silent_regions
from sluicegate.coordinator.web.feed import Feed
from sluicegate.coordinator.web.model import Deployment, PendingCheckpoint, StreamState
from sluicegate.events.problems import Problem
from sluicegate.state_store import StateStore, StateStoreError, StreamView

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner

LOOK: Final = 2.0
"""Seconds between two looks into Redis."""
PIECE: Final = 10
"""Streams between two turns of the event loop. The state of a small one takes about a millisecond."""
MOST_MISSING: Final = 10
MOST_CHECKPOINTS: Final = 1_000


class _Made(NamedTuple):
    """A view of an own stream, and what it was made from."""

    applied: int
    conditions: tuple[tuple[str, Problem], ...]
    view: StreamView


class Board:
    """Collects the states for whoever looks. It costs nothing while nobody does."""

    def __init__(
        self, settings: Settings, own: Callable[[], "Mapping[str, StreamRunner]"], feed: Feed
    ) -> None:
        """`own` returns the streams of this coordinator."""
        self.store: StateStore | None = None
        self._settings = settings
        self._own = own
        self._feed = feed
        self._made: dict[str, _Made] = {}
        self._views: dict[str, StreamView] = {}
        self._problem: str | None = None
        self._looked = -LOOK

    async def look(self) -> None:
        """Read the views of the other coordinators, if the last look was LOOK seconds ago."""
        if self.store is None or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        try:
            found = await self.store.read_all()
        except StateStoreError as error:
            self._problem = f"streams of other coordinators are shown as they were: {error}"
            return
        self._views = {name: view for name, view in found.items() if isinstance(view, StreamView)}
        unreadable = sorted(set(found) - set(self._views))
        self._problem = (
            f"the views of these streams cannot be read: {', '.join(unreadable)}" if unreadable else None
        )

    def deployment(self) -> Deployment:
        """Return the facts about the deployment."""
        kafka = self._settings.kafka
        problems = [each for each in (self._problem, self._feed.problem) if each]
        return Deployment(
            group=kafka.group_id,
            topic_prefix=kafka.topic_prefix,
            shared=self._settings.redis is not None,
            problem="; ".join(problems) or None,
            now=_now(),
        )

    async def states(self) -> dict[str, StreamState]:
        """Return all streams by name, sorted. Commits continue meanwhile, also with many streams."""
        names = sorted({*self._own(), *self._views})
        found = dict[str, StreamState]()
        for number, name in enumerate(names, 1):
            if (state := self.state(name)) is not None:
                found[name] = state
            if number % PIECE == 0:
                await asyncio.sleep(0)
        self._made = {name: made for name, made in self._made.items() if name in found}
        return found

    def state(self, name: str) -> StreamState | None:
        """Return one stream; None if it is not known."""
        runner, view = self._own().get(name), self._views.get(name)
        # One that is still reading its log knows less than its former coordinator knew.
        if runner is not None and (runner.machine.ready or view is None):
            return self._live(name, runner)
        return self._state(view, live=False) if view is not None else None

    def checkpoints(self, stream: str) -> list[PendingCheckpoint] | None:
        """Return the checkpoints of an own stream that no decision includes; None: it is no own one."""
        runner = self._own().get(stream)
        if runner is None:
            return None
        found = []
        for region, pending in sorted(runner.machine.replica.log.pending.items()):
            sealed = {each.position.checkpoint for each in pending.sealed}
            for number, each in sorted(pending.checkpoints.items()):
                found.append(_pending(region, pending.incarnation, number, each, sealed=number in sealed))
        return found[:MOST_CHECKPOINTS]

    def _live(self, name: str, runner: "StreamRunner") -> StreamState:
        machine = runner.machine
        applied = machine.replica.applied
        conditions = tuple((each.kind, each.problem) for each in machine.conditions())
        made = self._made.get(name)
        if made is None or (made.applied, made.conditions) != (applied, conditions):
            made = self._made[name] = _Made(applied, conditions, view_of(machine.record(), runner.settings))
        silent = silent_regions(
            machine.replica.state, machine.activity.heard, machine.activity.intervals, _now()
        )
        return self._state(made.view, live=True, silent=tuple(silent))

    def _state(self, view: StreamView, *, live: bool, silent: tuple[str, ...] = ()) -> StreamState:
        return StreamState(
            stream=view.stream,
            live=live,
            as_of=_now() if live else view.updated_at,
            silent=silent,
            delays=self._feed.history.delays(view.stream),
            view=view,
        )


def _pending(
    region: str, incarnation: str, number: int, found: Checkpoint, *, sealed: bool
) -> PendingCheckpoint:
    return PendingCheckpoint(
        region=region,
        incarnation=incarnation,
        checkpoint=number,
        named=len(set(found.body.events)) if found.body is not None else None,
        arrived=len(found.parts),
        missing=tuple(sorted(found.missing)[:MOST_MISSING]),
        missing_count=len(found.missing),
        attempts=len({(part.writer, part.attempt) for part in found.parts.values()}),
        files=found.files,
        rows=found.rows,
        first_event=found.first_time,
        last_event=found.last_time,
        sealed=sealed,
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
