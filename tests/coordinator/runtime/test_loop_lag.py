"""The delay of the event loop is that of events which arrive at any time, and not of one timer a turn."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from sluicegate.coordinator.service.service import watch_loop
from sluicegate.coordinator.tasks import ended_with


class Loop(asyncio.SelectorEventLoop):
    """A loop with a clock that the test sets."""

    now = 0.0

    def time(self) -> float:
        return self.now


def test_a_long_turn_delays_every_timer_that_became_due_in_it() -> None:
    loop, delays = Loop(), list[Sequence[float]]()

    async def play() -> None:
        lag = asyncio.create_task(watch_loop(delays.append, interval=0.1))
        await asyncio.sleep(0)
        for now in (0.1, 0.2005, 0.35, 1.32, 1.3, 1.4):
            loop.now = now
            for _ in range(3):
                await asyncio.sleep(0)
        lag.cancel()
        loop.now = 9.0
        for _ in range(3):
            await asyncio.sleep(0)

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    rounded = [[round(each, 4) for each in some] for some in delays]
    late = [0.92, 0.82, 0.72, 0.62, 0.52, 0.42, 0.32, 0.22, 0.12, 0.02]
    assert rounded == [[0.0], [0.0005], [0.05], late, [0.0]]


def test_a_frozen_process_reports_a_limited_number_of_delays() -> None:
    loop, delays = Loop(), list[Sequence[float]]()

    async def play() -> None:
        lag = asyncio.create_task(watch_loop(delays.append, interval=0.1))
        await asyncio.sleep(0)
        for now in (100_000.0, 100_000.1):
            loop.now = now
            for _ in range(3):
                await asyncio.sleep(0)
        lag.cancel()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    assert len(delays[0]) == 600
    assert delays[0][0] > 99_000
    assert len(delays[1]) == 1


@pytest.mark.slow
async def test_a_blocked_loop_is_seen() -> None:
    delays, seen = list[float](), asyncio.Event()

    def late(found: Sequence[float]) -> None:
        delays.extend(found)
        if max(found) >= 0.2:
            seen.set()

    async with ended_with(watch_loop(late)):
        until = time.monotonic() + 0.35  # time: the loop is blocked for so long; no limit
        while time.monotonic() < until:  # time: as above
            pass
        await seen.wait()
    assert max(delays) >= 0.2
