"""A driver and a writer with coroutines: each call runs in a thread, so that no test stops its event loop."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from sluicegate.writer_hooks import CommittedCheckpoint, OpenCheckpoint, RegionDriver, Writer, WriterResult
from sluicegate.writer_hooks.writer import Rows


class AsyncRegionDriver:
    """`RegionDriver` with coroutines. Arguments, results and errors are the same."""

    def __init__(self, options: Mapping[str, str], **settings: Any) -> None:
        self._driver = RegionDriver(options, **settings)

    @property
    def committed(self) -> CommittedCheckpoint | None:
        """As `RegionDriver.committed`."""
        return self._driver.committed

    async def start(self) -> CommittedCheckpoint | None:
        """As `RegionDriver.start`."""
        return await asyncio.to_thread(self._driver.start)

    async def begin(self) -> OpenCheckpoint:
        """As `RegionDriver.begin`."""
        return await asyncio.to_thread(self._driver.begin)

    async def give_up(self, checkpoint: OpenCheckpoint) -> None:
        """As `RegionDriver.give_up`."""
        await asyncio.to_thread(self._driver.give_up, checkpoint)

    async def decline(self, checkpoint: OpenCheckpoint, reason: str = "") -> None:
        """As `RegionDriver.decline`."""
        await asyncio.to_thread(self._driver.decline, checkpoint, reason)

    async def complete(self, checkpoint: OpenCheckpoint, results: Iterable[WriterResult], **how: Any) -> None:
        """As `RegionDriver.complete`.

        After a cancellation the outcome is unknown: repeat the call unchanged, or start a new driver.
        """
        await asyncio.to_thread(lambda: self._driver.complete(checkpoint, results, **how))

    async def await_commit(
        self,
        checkpoint: OpenCheckpoint,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CommittedCheckpoint:
        """As `RegionDriver.await_commit`."""
        return await asyncio.to_thread(self._driver.await_commit, checkpoint, timeout)

    async def stop(self) -> None:
        """As `RegionDriver.stop`."""
        await asyncio.to_thread(self._driver.stop)

    async def close(self) -> int | None:
        """As `RegionDriver.close`."""
        return await asyncio.to_thread(self._driver.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class AsyncWriter:
    """`Writer` with coroutines."""

    def __init__(self, checkpoint: OpenCheckpoint, name: str) -> None:
        self._writer = Writer(checkpoint, name)

    async def write(self, rows: Rows) -> None:
        """As `Writer.write`."""
        await asyncio.to_thread(self._writer.write, rows)

    async def finish(self) -> WriterResult:
        """As `Writer.finish`."""
        return await asyncio.to_thread(self._writer.finish)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._writer.abort)
