"""Bodies for a thread: in the right order, a part at a time, and only as far as they are wanted."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from sluicegate.coordinator.stream import table
from sluicegate.coordinator.stream.table import Supply
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.kafka.bodies import BodyUnavailable
from tests.integration.waiting import finished

OFFSETS = list(range(0, 60, 2))


class Log:
    """Gives at most three bodies at a time, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.failing = -1

    async def read(self, offsets: Sequence[int]) -> Mapping[int, bytes]:
        self.asked.append(offsets[0])
        await asyncio.sleep(0)
        if offsets[0] == self.failing:
            raise BodyUnavailable(Cause(code=CauseCode.EVENT_ABSENT, number=offsets[0]))
        return {offset: b"%d" % offset for offset in offsets[:3]}


def walk(bodies: Supply[bytes], offsets: Sequence[int]) -> list[bytes]:
    return [bodies[offset] for offset in offsets]


async def test_each_body_is_read_once() -> None:
    log = Log()
    bodies = Supply(list(reversed(OFFSETS)), {}, log.read)
    assert await asyncio.to_thread(walk, bodies, OFFSETS) == [b"%d" % offset for offset in OFFSETS]
    assert log.asked == OFFSETS[::3]


async def test_what_is_at_hand_is_not_read() -> None:
    log = Log()
    bodies = Supply(OFFSETS, dict.fromkeys(OFFSETS[:4], b"held"), log.read)
    assert walk(bodies, OFFSETS[:4]) == [b"held"] * 4
    assert await asyncio.to_thread(walk, bodies, OFFSETS[4:6]) == [b"8", b"10"]
    assert log.asked[0] == 8


async def test_what_was_passed_can_be_asked_for_again() -> None:
    bodies = Supply(OFFSETS, {}, Log().read)
    wanted = [0, 20, 20, 4, 58, 0]
    assert await asyncio.to_thread(walk, bodies, wanted) == [b"%d" % offset for offset in wanted]


async def test_a_body_that_is_not_there_is_told_when_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST", 3)
    log = Log()
    log.failing = 6
    bodies = Supply(OFFSETS, {}, log.read)
    assert await asyncio.to_thread(walk, bodies, [0, 2, 4]) == [b"0", b"2", b"4"]
    with pytest.raises(BodyUnavailable, match="event-absent number=6"):
        await asyncio.to_thread(walk, bodies, [6])


async def test_closing_ends_what_nobody_asked_for() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def read(offsets: Sequence[int]) -> Mapping[int, bytes]:
        if offsets[0] == 0:
            return {0: b"0"}
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    bodies = Supply(OFFSETS, {}, read)
    assert await asyncio.to_thread(walk, bodies, [0]) == [b"0"]
    await started.wait()
    bodies.close()
    await finished(ended.wait())
