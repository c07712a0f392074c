"""Newest outcomes of one stream, in memory for its listeners: those that this owner has announced."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sluicegate.coordinator.core.state_record import Due
from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Committed, Notification, SavepointTaken, StreamAdopted
from sluicegate.listeners.port import Outcome
from sluicegate.state_store import ListenerView

HELD: Final = 64
"""Outcomes in memory. A listener with a larger backlog reads the commits topic."""


class NotPlaced(OSError):
    """This process stops before its listeners have records, so the next one announces the outcome."""


class Adoption(NamedTuple):
    """An adoption of the stream, as it is announced."""

    id: str
    """The same for each repetition."""
    decision: int
    """Newest decision that the table had."""


class Announced(NamedTuple):
    """An outcome or an adoption of the stream, and its offset in the commits topic."""

    offset: int
    outcome: Outcome | Adoption


def outcome_of(found: Notification, time: int) -> Outcome | Adoption | None:
    """Return a notification as an outcome, or as an adoption; None if it is none of both."""
    if isinstance(found.body, StreamAdopted):
        return Adoption(found.id, found.body.decision)
    if isinstance(found.body, Committed | CutReverted | SavepointTaken):
        return Outcome(found.id, found.type, found.stream, time, found.body)
    return None


def decision_before(committed: int, due: Iterable[object]) -> int:
    """Return the newest decision of which an owner announces nothing.

    `committed` is the newest one with an outcome when it began, `due` are the bodies that it must announce.
    """
    owed = (each.decision for each in due if isinstance(each, Committed | CutReverted | SavepointTaken))
    return max(0, min([committed, *(decision - 1 for decision in owed)]))


class Outcomes:
    """A short memory of the feed. Nothing of it is needed: the commits topic has the same.

    The first outcome of an owner waits until each listener has a record. So a listener that begins with the
    next outcome misses none, whenever the owner dies. That needs Kafka alone, and no code of a listener.
    """

    def __init__(self, before: int = 0, *, keeps: bool = True) -> None:
        """`before` is as of `decision_before`: this owner announces the outcomes of all later decisions.

        `keeps`: the stream has listeners, so outcomes are held.
        """
        self.before = before
        self.complete_from: int | None = None
        """Every outcome from this offset on is held; None: nothing is known yet."""
        self.shown: dict[str, ListenerView] = {}
        """State of each listener, for people."""
        self.version = 0
        """Rises with each change of `shown`."""
        self.times_made = 0
        """Rises when the commits topic was made again; offsets of different topics are not comparable."""
        self.former: tuple[Announced, ...] = ()
        """Outcomes that were announced in former topics, the newest last."""
        self._last = -1
        """Offset of the newest notification of this owner."""
        self._held: deque[Announced] = deque()
        self._keeps = keeps
        self._dropped_to = 0
        """Offset after the newest outcome that was dropped."""
        self._changed = asyncio.Event()
        self.placed = not keeps
        """True if each listener has a record, or never will have one."""
        self._gave_up = False
        self._gate = asyncio.Event()

    def place(self) -> None:
        """Let outcomes be announced: each listener has a record."""
        self.placed = True
        self._gate.set()

    def give_up(self) -> None:
        """Let no outcome be announced if the listeners have no records yet."""
        self._gave_up = True
        self._gate.set()

    async def before_announcing(self, found: Notification) -> None:
        """Wait until a notification may be announced. Raises NotPlaced."""
        if self.placed or outcome_of(found, 0) is None:
            return
        await self._gate.wait()
        if self._gave_up and not self.placed:
            raise NotPlaced("the listeners of the stream have no records yet; the next owner announces it")

    def complete(self, end: int) -> None:
        """Note an end offset: what this owner has announced since is held, and nothing else follows."""
        if self.complete_from is None:
            self.complete_from = max(end, self._dropped_to)

    def announced(self, found: Notification, offset: int, time: int) -> None:
        """Take a notification that was appended at an offset and a time."""
        if offset <= self._last:
            # Offsets only rise in one topic.
            self.begin_again()
        self._last = offset
        outcome = outcome_of(found, time)
        if outcome is None or not self._keeps:
            return
        self._held.append(Announced(offset, outcome))
        if len(self._held) > HELD:
            self._dropped_to = self._held.popleft().offset + 1
            if self.complete_from is not None:
                self.complete_from = max(self.complete_from, self._dropped_to)
        self._wake()

    def begin_again(self) -> None:
        """Note that the commits topic was made again: it has none of these outcomes, and other offsets."""
        self.former = (*self.former, *self._held)[-HELD:]
        self._held.clear()
        self.complete_from, self._dropped_to, self._last = None, 0, -1
        self.times_made += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def since(self, offset: int) -> list[Announced] | None:
        """Return the outcomes from an offset on; None if the topic must be read."""
        if self.complete_from is None or offset < self.complete_from:
            return None
        return [each for each in self._held if each.offset >= offset]

    async def wait(self, times_made: int, offset: int, seconds: float) -> None:
        """Wait for an outcome from this offset of a topic on, at most so many seconds."""
        if times_made == self.times_made and (not self._held or self._held[-1].offset < offset):
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


def outcomes_after(committed: int, due: Iterable[Due], *, keeps: bool) -> Outcomes:
    """Return the memory of an owner that begins as of `decision_before`; `keeps` as of `Outcomes`."""
    return Outcomes(decision_before(committed, [each.body for each in due]), keeps=keeps)
