"""An event loop in a thread of its own, for callers that are not asynchronous."""

import asyncio
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
        self._loop.run_forever()
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
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self.release()
        self._thread.join()

    def release(self) -> None:
        """End the thread soon, without waiting for it; nothing may be running in it."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        while others:
            for task in others:
                task.cancel()
            done, others = await asyncio.wait(others, timeout=_PATIENCE)
            await asyncio.gather(*done, return_exceptions=True)
