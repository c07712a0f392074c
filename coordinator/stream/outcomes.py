"""Newest outcomes of one stream, in memory for its listeners: those that this owner has announced."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Committed, Notification, SavepointTaken
from sluicegate.listeners.port import Outcome
from sluicegate.state_store import ListenerView

HELD: Final = 64
"""Outcomes in memory. A listener with a larger backlog reads the commits topic."""


class Announced(NamedTuple):
    """An outcome, and its offset in the commits topic."""

    offset: int
    outcome: Outcome


def outcome_of(found: Notification, time: int) -> Outcome | None:
    """Return a notification as an outcome; None if it is none."""
    if isinstance(found.body, Committed | CutReverted | SavepointTaken):
        return Outcome(found.id, found.type, found.stream, time, found.body)
    return None


class Outcomes:
    """A short memory of the feed. Nothing of it is needed: the commits topic has the same."""

    def __init__(self, before: int = 0, *, keeps: bool = True) -> None:
        """`before` is the newest decision with an outcome when this owner began; it announces all later ones.

        `keeps`: the stream has listeners, so outcomes are held.
        """
        self.before = before
        self.complete_from: int | None = None
        """Every outcome from this offset on is held; None: nothing is known yet."""
        self.shown: dict[str, ListenerView] = {}
        """State of each listener, for people."""
        self.version = 0
        """Rises with each change of `shown`."""
        self._held: deque[Announced] = deque()
        self._keeps = keeps
        self._dropped_to = 0
        """Offset after the newest outcome that was dropped."""
        self._changed = asyncio.Event()

    def origin(self, end: int) -> int | None:
        """Return the offset before the first outcome of this owner; None if outcomes were dropped.

        `end` is an end offset of the topic.
        """
        return None if self._dropped_to else min([end, *(each.offset for each in self._held)])

    def complete(self, end: int) -> None:
        """Note an end offset: what this owner has announced since is held, and nothing else follows."""
        if self.complete_from is None:
            self.complete_from = max(end, self._dropped_to)

    def announced(self, found: Notification, offset: int, time: int) -> None:
        """Take a notification that was appended at an offset and a time."""
        outcome = outcome_of(found, time)
        if outcome is None or not self._keeps:
            return
        self._held.append(Announced(offset, outcome))
        if len(self._held) > HELD:
            self._dropped_to = self._held.popleft().offset + 1
            if self.complete_from is not None:
                self.complete_from = max(self.complete_from, self._dropped_to)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def since(self, offset: int) -> list[Announced] | None:
        """Return the outcomes from an offset on; None if the topic must be read."""
        if self.complete_from is None or offset < self.complete_from:
            return None
        return [each for each in self._held if each.offset >= offset]

    async def wait(self, offset: int, seconds: float) -> None:
        """Wait for an outcome from this offset on, at most so many seconds."""
        if not self._held or self._held[-1].offset < offset:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    def show(self, listener: str, view: ListenerView) -> None:
        """Set the state of a listener for people."""
        if self.shown.get(listener) != view:
            self.shown[listener] = view
            self.version += 1

    def hide(self, listener: str) -> None:
        """Forget the state of a listener."""
        if self.shown.pop(listener, None) is not None:
            self.version += 1

    def views(self, newest: int) -> Mapping[str, ListenerView]:
        """Return the state of all listeners; `newest` is the newest decision with an outcome."""
        return {
            name: each.model_copy(update={"backlog": max(0, newest - (each.decision or 0))})
            for name, each in sorted(self.shown.items())
        }
