"""Tasks that end when they must, and long loops that let others run."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

AGAIN: Final = 2.0
"""Seconds after which a running task is cancelled again."""
PIECE: Final = 50
"""Items between two turns of the event loop; most work on one stream takes 50 microseconds."""
PAUSE: Final = 0.002
"""Seconds between two pieces of work that has no deadline.

Without a pause, the event loop keeps the interpreter from the threads that commit.
"""

T = TypeVar("T")


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each has ended, with any result.

    A cancellation can be lost. `asyncio.wait_for` of Python 3.11 drops one that arrives together with its
    result. The Kafka client drops one that arrives while it closes.
    """
    every = list(tasks)
    going = {task for task in every if not task.done()}
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=AGAIN)
    for task in every:
        if not task.cancelled():
            # Retrieve the exception: asyncio logs exceptions that nobody retrieves.
            task.exception()


@asynccontextmanager
async def ended_with(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine beside a block, and cancel it at the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end([task])


async def in_pieces(items: Iterable[T], size: int = PIECE, pause: float = 0.0) -> AsyncIterator[T]:
    """Yield items, and let other tasks run after each piece, for `pause` seconds at least.

    The items may be stale then.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % size == 0:
            await asyncio.sleep(pause)
