"""Ends tasks that are not needed any more, also those that do not hear it the first time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

AGAIN: Final = 2.0
"""Seconds after which a task that goes on is told once more."""


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each has ended, whatever became of it.

    A cancellation can be lost: `asyncio.wait_for` of Python 3.11 drops one that comes together with its
    result, and the Kafka client one that comes while it closes.
    """
    every = list(tasks)
    going = {task for task in every if not task.done()}
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=AGAIN)
    for task in every:
        if not task.cancelled():
            # Nobody else may look at how it failed, and it must not be reported as unseen.
            task.exception()


@asynccontextmanager
async def ended_with(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something beside a block, and end it with the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end([task])
