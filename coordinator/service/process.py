"""Process of a service: its memory, its end by a signal, and a last log line with the reason."""

import asyncio
import ctypes
import gc
import signal
import time
from typing import Final, Protocol

import structlog

from sluicegate.coordinator.service.signals import Signals

# Memory: settings of the C library's allocator, and of Python's cyclic garbage collector.

# From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
KEPT: Final = 64 << 20
"""Free bytes that stay at the end of the heap for later allocations."""
LARGEST: Final = 32 << 20
"""Blocks up to this size come from the heap; it is glibc's own limit."""
THRESHOLDS: Final = (200_000, 20, 50)
"""A batch of records has more than 100,000 objects, and most of them are free again after it.

A lower first threshold lets the collector look at them in vain, which takes a seventh of the time.
"""
FEW: Final = 1_000
"""Records of one read, at which no long log is being read."""
SETTLED: Final = 10.0
"""Seconds after which streams that came are expected to stay."""
YOUNG: Final = 20_000
"""New objects that the collector looks at while few records come: 10 ms. For 200,000 it takes 130 ms."""


def keep_freed_memory() -> bool:
    """Let freed buffers be reused; return False without a change if the C library is not glibc.

    A fetch from Kafka uses some buffers of 8 MiB. By default glibc returns them to the system each time, and
    the next fetch faults in new pages. That takes a fifth of the time of reading the log.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_M_MMAP_THRESHOLD, LARGEST))


def calm_collector() -> None:
    """Run the collector less often: by default it takes an eighth of the time of reading the log.

    Reference counts free nearly all objects of reading and committing; cycles are few and small.
    """
    gc.set_threshold(*THRESHOLDS)


class Collector:
    """Cyclic garbage collection at moments in which no event waits for the event loop."""

    def __init__(self) -> None:
        self._settled_at: float | None = None
        """Time from which on the streams of this process count as lasting; None: they do already."""

    def streams_changed(self) -> None:
        """Note that streams came or left. What they leave behind can be collected again."""
        gc.unfreeze()
        self._settled_at = time.monotonic() + SETTLED

    def collect_if_calm(self, records: int) -> None:
        """Look at the new objects, if there are many of them and the last read returned few records.

        Else the collector stops the event loop for a tenth of a second, once in a few thousand commits. It
        also looks at everything from time to time: 160 ms of processor time with 1,000 streams, and twice
        that beside commits. So what lasts is put aside, once the streams of this process have settled.
        """
        if records == 0 and self._settled_at is not None and time.monotonic() >= self._settled_at:
            self._settled_at = None
            if gc.get_threshold() == THRESHOLDS:
                gc.collect()
                gc.freeze()
        elif records <= FEW and gc.get_count()[0] > YOUNG:
            gc.collect(1)


# Process of a service: its end by a signal, and a last log line with the cause of its end.

log = structlog.get_logger(__name__)


class Runs(Protocol):
    """A service."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        ...

    def reload(self) -> None:
        """Request a reload of the settings."""
        ...


async def _serve(service: Runs, signals: Signals) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        log.info("stopping", cause=number.name)
        stop.set()

    signals.listen(loop, end, service.reload)
    try:
        await service.run(stop)
    finally:
        signals.leave(loop)


def run_process(service: Runs, signals: Signals) -> None:
    """Run a service until SIGTERM or SIGINT; SIGHUP reloads its settings. Raises the errors of the service.

    The last line of the log has the cause of the end in every case.
    """
    calm_collector()
    keep_freed_memory()
    cause = "an end without a cause"
    try:
        asyncio.run(_serve(service, signals))
        cause = signals.cause or cause
    except BaseException as error:
        cause = f"{type(error).__name__}: {error}"
        raise
    finally:
        tell = log.info if cause == signals.cause else log.error
        tell("stopped", cause=cause)
