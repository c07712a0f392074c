"""Bodies for a call in a thread, brought up a few at a time: a commit may be larger than the memory."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

MOST: Final = 500
"""Offsets that are asked for at once."""

Read = Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, bytes]]]
"""The bodies at the first of these ascending offsets, of one at least, and of as many as is reasonable."""


class BodySource(Protocol):
    """Bodies by their offset, best asked for in ascending order."""

    def __getitem__(self, offset: int, /) -> bytes:
        """The body there. Raises BodyUnavailable, KafkaError or TimeoutError."""
        ...


class Supply:
    """Bodies that the event loop reads when the thread that asks for them gets there.

    Made on the event loop; `held` are the bodies that are at hand, which need no reading.
    """

    def __init__(self, offsets: Sequence[int], held: Mapping[int, bytes], read: Read) -> None:
        self._offsets = sorted(offsets)
        self._places = {offset: place for place, offset in enumerate(self._offsets)}
        self._ahead = held
        self._read = read
        self._loop = asyncio.get_running_loop()

    def __getitem__(self, offset: int, /) -> bytes:
        """The body there; to be called outside of the event loop, unless it is at hand."""
        if offset not in self._ahead:
            place = self._places[offset]
            # What was read before goes first, so that never more than one reading is held.
            self._ahead = {}
            reading = self._read(self._offsets[place : place + MOST])
            self._ahead = asyncio.run_coroutine_threadsafe(reading, self._loop).result()
        return self._ahead[offset]
