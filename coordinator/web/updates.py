"""Server-sent events of the page: the whole state at the beginning, and then what changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import BaseModel

from sluicegate.coordinator.tasks import end
from sluicegate.coordinator.web.model import Cut, DeadLetter, DeadLetters, Deployment, Outage, StreamState

if TYPE_CHECKING:
    from sluicegate.coordinator.web.board import Board
    from sluicegate.coordinator.web.feed import Feed

log = structlog.get_logger(__name__)

INTERVAL: Final = 0.5
"""Seconds between two looks for changes."""
STILL: Final = 10.0
"""Seconds after which a message is sent although nothing has changed. A reader notices a lost connection."""
MOST_READERS: Final = 100
MOST_WAITING: Final = 200
"""Messages that wait for one reader. A slower one is disconnected, and connects again."""


class _State(BaseModel):
    whole: bool
    deployment: Deployment
    streams: tuple[StreamState, ...]
    removed: tuple[str, ...] = ()


class _Cuts(BaseModel):
    stream: str
    whole: bool = False
    cuts: tuple[Cut, ...]


class _Letters(DeadLetters):
    whole: bool


class Updates:
    """Readers of the updates, and the task that looks for changes while there are any."""

    def __init__(self, board: "Board", feed: "Feed") -> None:
        self._board, self._feed = board, feed
        self._readers: set[asyncio.Queue[bytes | None]] = set()
        self._shown: dict[str, StreamState] = {}
        self._task: asyncio.Task[None] | None = None
        self._sent = 0.0
        self._outages: tuple[Outage, ...] = ()
        feed.listener = self._happened

    @property
    def full(self) -> bool:
        """True if there are as many readers as are served."""
        return len(self._readers) >= MOST_READERS

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield the messages for one reader, until it is too slow or the service stops."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        await self._board.look()
        if not self._readers:
            self._shown = await self._board.states()
        self._readers.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="updates of the page")
        try:
            yield self._whole()
            while (message := await queue.get()) is not None:
                yield message
        finally:
            self._readers.discard(queue)

    async def close(self) -> None:
        """End all readers."""
        for queue in self._readers:
            _put(queue, None)
        if self._task is not None:
            await end([self._task])

    def _whole(self) -> bytes:
        state = _State(whole=True, deployment=self._board.deployment(), streams=tuple(self._shown.values()))
        letters = _Letters(whole=True, letters=self._feed.letters.all())
        return _message("state", state) + _message("letters", letters)

    async def _look(self) -> None:
        while self._readers:
            await asyncio.sleep(INTERVAL)
            try:
                await self._board.look()
                await self._compare()
            except Exception as error:
                # The page shows old values until then, and nothing else depends on it.
                log.exception("updates of the page failed, they are tried again", reason=repr(error))
                self._send(b": failed\n\n")

    async def _compare(self) -> None:
        found, before = await self._board.states(), self._shown
        changed = tuple(each for name, each in found.items() if not _same(each, before.get(name)))
        removed = tuple(name for name in before if name not in found)
        self._shown = found
        deployment, now = self._board.deployment(), asyncio.get_running_loop().time()
        outages, self._outages = self._outages, deployment.outages
        if changed or removed or outages != deployment.outages or now - self._sent >= STILL:
            state = _State(whole=False, deployment=deployment, streams=changed, removed=removed)
            self._send(_message("state", state))

    def _happened(self, stream: str, what: Cut | DeadLetter) -> None:
        if not self._readers:
            return
        if isinstance(what, Cut):
            self._send(_message("cuts", _Cuts(stream=stream, cuts=(what,))))
        else:
            self._send(_message("letters", _Letters(whole=False, letters=(what,))))

    def _send(self, message: bytes) -> None:
        self._sent = asyncio.get_running_loop().time()
        for queue in list(self._readers):
            if not _put(queue, message):
                self._readers.discard(queue)
                queue.get_nowait()
                _put(queue, None)


def _same(one: StreamState, other: StreamState | None) -> bool:
    """True if a reader would see the same."""
    return other is not None and _seen(one) == _seen(other)


def _seen(state: StreamState) -> tuple[object, ...]:
    # The time of a live state is now, so it always differs.
    view = state.view.model_copy(update={"updated_at": 0}) if state.live else state.view
    return state.live, state.own, state.reasons, state.pending_bytes, state.delays, view


def _put(queue: "asyncio.Queue[bytes | None]", message: bytes | None) -> bool:
    with suppress(asyncio.QueueFull):
        queue.put_nowait(message)
        return True
    return False


def _message(event: str, body: BaseModel) -> bytes:
    return f"event: {event}\ndata: {body.model_dump_json()}\n\n".encode()
