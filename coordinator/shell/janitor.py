"""The janitor: deletes orphaned files of the streams that this process commits, one stream at a time.

It follows the log with connections and a thread of its own, so that it holds up no commit, and by the same
rule as `sluicegate orphans`, which asks log and table again right before each deletion.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.replay.errors import ReplayRefused
from sluicegate.coordinator.replay.sweep import sweep
from sluicegate.coordinator.settings import Settings
from sluicegate.coordinator.shell.threads import CommitThreads

log = structlog.get_logger(__name__)

LOOK: Final = 1.0
"""Seconds between two looks at what is due."""


class Janitor:
    """Sweeps streams whose settings ask for it, each an interval after the last time or the start."""

    def __init__(self, settings: Settings, owned: Callable[[], Collection[str]]) -> None:
        """`owned`: the streams that this process commits now, and that are ready."""
        self._settings = settings
        self._owned = owned
        self._started = time.monotonic()
        self._swept: dict[str, float] = {}

    async def run(self) -> None:
        """Sweep until cancelled; a sweep under way then ends with the file that it is at."""
        wanted = [name for name, stream in self._settings.streams.items() if stream.janitor.enabled]
        while wanted:
            await asyncio.sleep(LOOK)
            due = [name for name in wanted if name in self._owned() and self._is_due(name)]
            if due:
                await self._sweep(min(due, key=lambda name: self._swept.get(name, self._started)))
        await asyncio.Event().wait()

    def _is_due(self, stream: str) -> bool:
        last = self._swept.get(stream, self._started)
        return time.monotonic() - last >= self._settings.streams[stream].janitor.interval

    async def _sweep(self, stream: str) -> None:
        stop = threading.Event()
        threads = CommitThreads(1)
        try:
            work = partial(asyncio.run, sweep(self._settings, stream, stop.is_set))
            sweeping = asyncio.get_running_loop().run_in_executor(threads, work)
            while not sweeping.done():
                await asyncio.wait({sweeping}, timeout=LOOK)
                if stream not in self._owned():
                    stop.set()
            swept = sweeping.result()
        except (ReplayRefused, KafkaError, TimeoutError, OSError) as error:
            log.warning(
                "the janitor could not sweep, and tries again later", stream=stream, reason=str(error)
            )
        except Exception:
            log.exception("the janitor failed, and tries again later", stream=stream)
        else:
            told = {"deleted": swept.deleted, "bytes": swept.bytes, "left": swept.left, "young": swept.young}
            log.info("the janitor has swept", stream=stream, **told)
        finally:
            stop.set()
            threads.shutdown()
            self._swept[stream] = time.monotonic()
