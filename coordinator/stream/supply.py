"""Event bodies for a call in a thread, read a few at a time: a commit may be larger than the memory."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from sluicegate.kafka.bodies import WrittenEvent

MOST: Final = 500
"""Maximum number of offsets in one read."""

T = TypeVar("T")

Read = Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, T]]]
"""Returns events at the first of these ascending offsets: one at least, and a reasonable number."""


class BodySource(Protocol):
    """Events with their bodies by offset; access in ascending order is fastest."""

    def __getitem__(self, offset: int, /) -> WrittenEvent:
        """Return the event at an offset. Raises BodyUnavailable, KafkaError or TimeoutError."""
        ...


class Supply(Generic[T]):
    """Events that the event loop reads ahead while a thread works on earlier ones.

    Make it on the event loop. `held` are the bodies in memory, which need no read. At most two reads are in
    memory at a time.
    """

    def __init__(self, offsets: Sequence[int], held: Mapping[int, T], read: Read[T]) -> None:
        self._offsets = sorted(offsets)
        self._places = {offset: place for place, offset in enumerate(self._offsets)}
        self._bodies = held
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._coming: tuple[int, Future[Mapping[int, T]]] | None = None
        """Index of the first offset of the next read, and its future result."""

    def __getitem__(self, offset: int, /) -> T:
        """Return the event at an offset. Call it outside of the event loop, unless the body is in memory."""
        if offset not in self._bodies:
            self._bodies = {}
            place = self._places[offset]
            if self._coming is None or self._coming[0] != place:
                self._begin(place)
            self._bodies = self._arrived()
            # Read ahead while the caller works on these bodies.
            self._begin(place + len(self._bodies))
        return self._bodies[offset]

    def _begin(self, place: int) -> None:
        """Start to read the bodies from an index of the offsets."""
        self.close()
        if wanted := self._offsets[place : place + MOST]:
            self._coming = place, asyncio.run_coroutine_threadsafe(self._read(wanted), self._loop)

    def _arrived(self) -> Mapping[int, T]:
        """Wait for the read that was started."""
        if self._coming is None:
            raise LookupError("nothing is being read")
        coming, self._coming = self._coming[1], None
        return coming.result()

    def close(self) -> None:
        """Cancel the read-ahead, if there is one."""
        if self._coming is not None:
            self._coming[1].cancel()
            self._coming = None
