"""The janitor: deletes orphaned files of the streams that this process commits, one stream at a time.

It works in a process of its own, since following a long log in a thread makes the event loop late by a tenth
of a second; and by the same rule as `sluicegate orphans`, which asks log and table again right before each
deletion. So it may be killed at any moment, and does no harm if it outlives the coordinator.
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
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.settings.model import Settings
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.sweep import Swept, sweep

log = structlog.get_logger(__name__)

LOOK: Final = 1.0
"""Seconds between two looks at what is due, and at whether a sweep is over."""
NICE: Final = 10
"""How much a sweep gives way to other processes."""
PATIENCE: Final = 0.2
"""Seconds for which the event loop waits for a process that was told to end."""


class Janitor:
    """Sweeps streams whose settings ask for it, each an interval after the last time or the start."""

    def __init__(self, settings: Callable[[], Settings], owned: Callable[[], Collection[str]]) -> None:
        """`settings`: those in force; `owned`: the streams that this process commits, and that are ready."""
        self._settings = settings
        self._owned = owned
        self._started = time.monotonic()
        self._swept: dict[str, float] = {}

    async def run(self) -> None:
        """Sweep until cancelled; a sweep under way is ended then, and when its stream is given up."""
        while True:
            await asyncio.sleep(LOOK)
            streams = self._settings().streams
            wanted = [name for name, stream in streams.items() if stream.janitor.enabled]
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
            self._tell(stream, _outcome(ours))
        finally:
            ours.close()
            _end(process)
            self._swept[stream] = time.monotonic()

    async def _over(self, process: BaseProcess, stream: str) -> None:
        """Wait until the sweep is over, or its stream is given up."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process.sentinel, ended.set)
        try:
            while not ended.is_set() and stream in self._owned():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LOOK)
        finally:
            loop.remove_reader(process.sentinel)

    def _tell(self, stream: str, outcome: "Swept | str") -> None:
        if isinstance(outcome, Swept):
            log.info("the janitor has swept", stream=stream, **outcome._asdict())
        else:
            log.warning("the janitor could not sweep, and tries again later", stream=stream, reason=outcome)


def _outcome(pipe: Connection) -> Swept | str:
    """What the process has told before its end."""
    try:
        if pipe.poll():
            told = pipe.recv()
            return Swept(**told) if isinstance(told, dict) else str(told)
    except EOFError:
        pass
    return "it was ended before it was through"


def _end(process: BaseProcess) -> None:
    """End the process, if it still runs; one that does not end at once is left to its end."""
    if process.pid is None:
        return
    process.terminate()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()


def _work(settings: Settings, stream: str, pipe: Connection) -> None:
    """One sweep, in a process of its own."""
    os.nice(NICE)
    # What is wrong is told in the outcome.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    try:
        pipe.send(asyncio.run(sweep(settings, stream))._asdict())
    except (ReplayRefused, KafkaError, TimeoutError, OSError) as error:
        pipe.send(str(error) or type(error).__name__)
