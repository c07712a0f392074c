"""Bodies for a call in a thread, brought up a few at a time: a commit may be larger than the memory."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from sluicegate.kafka.bodies import WrittenEvent

MOST: Final = 500
"""Offsets that are asked for at once."""

T = TypeVar("T")

Read = Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, T]]]
"""The events at the first of these ascending offsets, of one at least, and of as many as is reasonable."""


class BodySource(Protocol):
    """Events with their bodies by their offset, best asked for in ascending order."""

    def __getitem__(self, offset: int, /) -> WrittenEvent:
        """The event there. Raises BodyUnavailable, KafkaError or TimeoutError."""
        ...


class Supply(Generic[T]):
    """Events that the event loop reads ahead while the thread that asks for them works on those before.

    Made on the event loop; `held` are the bodies that are at hand, which need no reading. At most two
    readings are held.
    """

    def __init__(self, offsets: Sequence[int], held: Mapping[int, T], read: Read[T]) -> None:
        self._offsets = sorted(offsets)
        self._places = {offset: place for place, offset in enumerate(self._offsets)}
        self._bodies = held
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._coming: tuple[int, Future[Mapping[int, T]]] | None = None
        """Where the next reading begins, and what comes of it."""

    def __getitem__(self, offset: int, /) -> T:
        """The event there; to be called outside of the event loop, unless it is at hand."""
        if offset not in self._bodies:
            self._bodies = {}
            place = self._places[offset]
            if self._coming is None or self._coming[0] != place:
                self._begin(place)
            self._bodies = self._arrived()
            self._begin(place + len(self._bodies))
        return self._bodies[offset]

    def _begin(self, place: int) -> None:
        """Have the bodies from a place on read."""
        self.close()
        if wanted := self._offsets[place : place + MOST]:
            self._coming = place, asyncio.run_coroutine_threadsafe(self._read(wanted), self._loop)

    def _arrived(self) -> Mapping[int, T]:
        """Wait for what was begun."""
        if self._coming is None:
            raise LookupError("nothing is being read")
        coming, self._coming = self._coming[1], None
        return coming.result()

    def close(self) -> None:
        """End what is being read and was not asked for."""
        if self._coming is not None:
            self._coming[1].cancel()
            self._coming = None
