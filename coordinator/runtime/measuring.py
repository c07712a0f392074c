"""Gauges, set every second, and the delay of the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from sluicegate.coordinator.stream.links import Links

INTERVAL: Final = 0.1
"""Seconds between two due times."""
_MOST: Final = 600
"""Due times of one turn that are reported, the oldest first; a frozen process would have any number."""


class Measured(Protocol):
    """An assigned partition."""

    started: bool

    async def measure(self, now_ms: int) -> None:
        """Update its gauges; the time is in milliseconds since the Unix epoch."""
        ...


class LoopLag:
    """Timers that are due at fixed times, independent of when the ones before have run.

    A timer that starts again after each run would meet a long turn once, as if that delayed one event.
    Here a turn of a second delays the ten timers that became due in it, as it delays other events.
    """

    def __init__(self, late: Callable[[Sequence[float]], None], interval: float = INTERVAL) -> None:
        """`late` takes the delays in seconds."""
        self._late = late
        self._interval = interval
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start on the running event loop."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._interval
        self._timer = loop.call_at(self._due, self._run, loop)

    def stop(self) -> None:
        """Set no further timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        # A loop runs a timer up to one tick of its clock before it is due.
        delay = max(0.0, loop.time() - self._due)
        met = 1 + int(delay / self._interval)
        self._late([delay - number * self._interval for number in range(min(met, _MOST))])
        self._due += met * self._interval
        self._timer = loop.call_at(self._due, self._run, loop)


@asynccontextmanager
async def loop_lag(late: Callable[[Sequence[float]], None]) -> AsyncIterator[None]:
    """Measure the delay of the running event loop inside `async with`."""
    lag = LoopLag(late)
    lag.start()
    try:
        yield
    finally:
        lag.stop()


async def measure(links: Links, runners: Iterable[Measured], *, kafka_up: bool) -> None:
    """Set the gauges of the process and of its partitions."""
    metrics, process = links.metrics, links.metrics.process
    started = [each for each in runners if each.started]
    for each in started:
        await each.measure(time.time_ns() // 1_000_000)
    metrics.bodies_held(links.budget.held)
    process.memory(links.budget.most)
    process.table_calls(links.threads.stuck(), links.threads.longest())
    process.connected(len(started), links.partitions.events, kafka_up=kafka_up)
