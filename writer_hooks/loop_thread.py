"""An event loop in a thread of its own, for callers that are not asynchronous."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_PATIENCE: Final = 10.0
"""Seconds to close connections; what still runs then has missed its cancellation."""

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for blocking callers. The thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            # Transports that were closed last let go of their sockets in the turns that this takes.
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine to its end and return its result. Raises TimeoutError after `timeout` seconds."""

        async def bounded() -> T:
            async with asyncio.timeout(max(timeout, 0.001)):
                return await coroutine

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the background."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel whatever still runs, and end the thread."""
        self.release()
        self._thread.join()

    def release(self) -> None:
        """Cancel whatever still runs, and end the thread soon, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # It has ended already.
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _cancel_all() -> None:
    """Also what begins meanwhile, and what a client left behind that could not be closed in time."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        done, _ = await asyncio.wait(others, timeout=_PATIENCE)
        await asyncio.gather(*done, return_exceptions=True)
