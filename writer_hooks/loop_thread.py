"""Event loop in a thread of its own, for blocking callers."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_PATIENCE: Final = 10.0
"""Seconds that cancelled tasks get to close their connections."""

T = TypeVar("T")


class LoopThread:
    """Event loop for blocking callers. Its thread is a daemon, so it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._called: set[asyncio.Task[Any] | None] = set()
        """Tasks of `call` and `start`; all others belong to their clients."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # A client whose own tasks are cancelled under it can lose a connection, which then stays open.
            # Therefore the callers' tasks end first, and close their clients.
            self._loop.run_until_complete(_cancel(lambda: self._called))
            self._loop.run_until_complete(_cancel(asyncio.all_tasks))
            # Transports that were closed last release their sockets in these additional iterations of the
            # loop.
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine to its end and return its result. Raises TimeoutError after `timeout` seconds."""

        async def bounded() -> T:
            async with asyncio.timeout(max(timeout, 0.001)):
                return await coroutine

        return self.start(bounded()).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the background."""

        async def run() -> T:
            task = asyncio.current_task()
            self._called.add(task)
            try:
                return await coroutine
            finally:
                self._called.discard(task)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def stop(self) -> None:
        """Cancel all remaining tasks, end the thread, and wait for it, unless it calls this itself."""
        self.release()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def release(self) -> None:
        """Cancel all remaining tasks, and end the thread without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _cancel(tasks: Callable[[], set[Any]]) -> None:
    """Cancel all these tasks, also new ones, and those of clients that were not closed in time."""
    while others := tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        done, _ = await asyncio.wait(others, timeout=_PATIENCE)
        await asyncio.gather(*done, return_exceptions=True)
