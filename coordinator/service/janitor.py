"""Janitor: deletes orphaned files of the streams that this process commits, one stream at a time.

A sweep runs in a child process, because following a long log in a thread delays the event loop by 100 ms. It
follows the rule of `sluicegate orphans`: log and table are checked again directly before each deletion. So
the child may be killed at any moment, and does no harm if it outlives the coordinator.
"""

import asyncio
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.settings.model import Settings

log = structlog.get_logger(__name__)

LOOK: Final = 1.0
"""Seconds between two checks for due sweeps, and for the end of a sweep."""
NICE: Final = 10
"""Niceness of a sweep."""
PATIENCE: Final = 0.2
"""Seconds for which the event loop waits for a terminated child process."""


class Janitor:
    """Sweeps streams that have a janitor, one interval after the last sweep or the service start."""

    def __init__(self, settings: Callable[[], Settings], owned: Callable[[], Collection[str]]) -> None:
        """Make a janitor.

        `settings` returns the settings in force. `owned` returns the ready streams that this process commits.
        """
        self._settings = settings
        self._owned = owned
        self._started = time.monotonic()
        self._swept: dict[str, float] = {}

    async def run(self) -> None:
        """Sweep until cancelled. A running sweep is ended then, and when its stream is revoked."""
        while True:
            await asyncio.sleep(LOOK)
            streams = self._settings().streams
            wanted = [name for name, stream in streams.items() if stream.has_janitor]
            owned = self._owned() if wanted else ()
            due = [name for name in wanted if name in owned and self._is_due(name)]
            if due:
                await self._sweep(min(due, key=lambda name: self._swept.get(name, self._started)))

    def _is_due(self, stream: str) -> bool:
        last = self._swept.get(stream, self._started)
        return time.monotonic() - last >= self._settings().streams[stream].janitor.interval

    async def _sweep(self, stream: str) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(self._settings(), stream, theirs), name="janitor", daemon=True
        )
        try:
            await asyncio.to_thread(process.start)
            theirs.close()
            await self._over(process, stream)
            self._log(stream, _outcome(ours))
        finally:
            ours.close()
            _end(process)
            self._swept[stream] = time.monotonic()

    async def _over(self, process: BaseProcess, stream: str) -> None:
        """Wait until the sweep has ended, or its stream is revoked."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process.sentinel, ended.set)
        try:
            while not ended.is_set() and stream in self._owned():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LOOK)
        finally:
            loop.remove_reader(process.sentinel)

    def _log(self, stream: str, outcome: dict[str, Any] | str) -> None:
        if isinstance(outcome, dict):
            log.info("orphaned files deleted", stream=stream, **outcome)
        else:
            log.warning("orphaned files not deleted, will be tried again", stream=stream, reason=outcome)


def _outcome(pipe: Connection) -> dict[str, Any] | str:
    """Return the figures that the process sent before its end, or the reason why there are none."""
    try:
        if pipe.poll():
            sent = pipe.recv()
            return sent if isinstance(sent, dict) else str(sent)
    except EOFError:
        pass
    return "the sweep was ended before it was complete"


def _end(process: BaseProcess) -> None:
    """End the process if it still runs. A process that does not end at once is killed and not awaited."""
    if process.pid is None:
        return
    process.terminate()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()


def _work(settings: Settings, stream: str, pipe: Connection) -> None:
    """Run one sweep in a child process, and send its result or error."""
    # Only the child process needs this code.
    from sluicegate.coordinator.replay.decisions import ReplayRefused
    from sluicegate.coordinator.replay.orphans import Search, Swept
    from sluicegate.coordinator.replay.reading import require_verified
    from sluicegate.coordinator.replay.tables import connect

    async def sweep() -> Swept:
        grace = round(settings.streams[stream].janitor.grace * 1000)
        async with connect(settings, stream) as found:
            log, start = found.log, found.start
            if settings.kafka.signing.mode == "required":
                # A file of a decision that cannot be verified looks like an orphan.
                await require_verified(log, stream, start, ())
            # A further table may be in another storage than the anchor.
            tables = [each for each in found.tables(None) if not each.name or each.settings.has_janitor]
            search = Search(stream, log, start, tables, grace)
            return await search.sweep(time.time_ns() // 1_000_000)

    os.nice(NICE)
    # The outcome has the errors, so the client's log lines would only repeat them.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    try:
        swept = asyncio.run(sweep())
        failed = "; ".join(f"{name}: {why}" for name, why in sorted(swept.failed.items()))
        done = {key: value for key, value in swept._asdict().items() if key != "failed"}
        pipe.send(done | ({"not_searched": failed} if failed else {}))
    except (ReplayRefused, KafkaError, TimeoutError, OSError) as error:
        pipe.send(str(error) or type(error).__name__)
