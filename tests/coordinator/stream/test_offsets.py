"""The offsets of a partition that are given up: nothing that a recovery needs is before them."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.effects import Ask, Failed, Publish, WriteRecord
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import OutcomeUnknown
from tests.coordinator.stream.readers import OTHER, SOURCE, STREAM, Log, mixed


class Committed:
    """Keeps the offsets that were committed."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def commit(self, offsets: dict[Any, tuple[int, str]]) -> None:
        self.offsets.append(offsets[SOURCE][0])


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(monkeypatch)
    log.append(*mixed("fhhf.hhhfh"))
    await log.partition.start()
    log.advance(1_000)
    return log


async def test_the_group_offset_is_the_lowest_that_is_needed_and_never_falls(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = Committed()
    monkeypatch.setattr(log.shared, "commit", committed.commit)
    streams = log.partition.streams
    streams[STREAM].recorded_low_water, streams[OTHER].recorded_low_water = 7, 4
    await log.partition.release_offsets()
    streams[OTHER].recorded_low_water = 9
    await log.partition.release_offsets()
    streams[STREAM].recorded_low_water = 5
    await log.partition.release_offsets()
    assert committed.offsets == [4, 7]


async def test_the_first_letter_that_waits_holds_the_offset(log: Log) -> None:
    for runner in log.partition.streams.values():
        runner.recorded_low_water = log.end
    for offset in (8, 3, 6):
        record = log.records[offset] if offset in log.records else log.records[0]
        log.partition.letters.put(record, Problem(code=Code.UNDECODABLE, number=offset), None)
    assert log.partition.first_needed() == min(8, 3, 6)


async def test_the_low_water_mark_moves_after_the_record_is_acknowledged(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another coordinator recovers from the former record, while the new one is not in Kafka (I8)."""
    runner = log.partition.streams[STREAM]
    runner.recorded_low_water = 2
    effect = WriteRecord(StateRecord(stream=STREAM, applied=9, low_water=8, state=LogState()))
    seen = list[int]()

    async def refuse(record: StateRecord) -> None:
        seen.append(runner.recorded_low_water)
        raise KafkaError("away")

    monkeypatch.setattr(runner, "_kafka", SimpleNamespace(record=refuse))
    assert isinstance(await runner._attempt(effect), Failed)
    assert (seen, runner.recorded_low_water) == ([2], 2)
    monkeypatch.setattr(runner, "_kafka", SimpleNamespace(record=AsyncMock()))
    await runner._attempt(effect)
    assert runner.recorded_low_water == 8


@pytest.mark.slow
async def test_a_publication_that_raises_has_an_unknown_outcome(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = log.partition.streams[STREAM]
    monkeypatch.setattr(runner, "_perform", AsyncMock(side_effect=RuntimeError("a defect")))
    publish, ask = object.__new__(Publish), object.__new__(Ask)
    assert isinstance(await runner._attempt(publish), OutcomeUnknown)
    assert isinstance(await runner._attempt(ask), Failed)


@pytest.mark.parametrize(("grace", "counts"), [(0.0, False), (60.0, True)])
async def test_results_count_while_the_partition_is_assigned(
    log: Log, monkeypatch: pytest.MonkeyPatch, grace: float, *, counts: bool
) -> None:
    """Without a grace the partition is lost: the next owner may have decided something else."""
    runner = log.partition.streams[STREAM]
    found = list[object]()
    monkeypatch.setattr(runner.machine, "finished", lambda effect, result: found.append(result))
    monkeypatch.setattr(runner, "_became_visible", lambda effect, result: None)
    answered = asyncio.get_running_loop().create_future()

    async def answer(effect: object) -> object:
        return await answered

    monkeypatch.setattr(runner, "_effect", answer)
    effect = WriteRecord(StateRecord(stream=STREAM, applied=9, low_water=8, state=LogState()))
    runner._keep(asyncio.create_task(runner._run(effect)))
    await asyncio.sleep(0)
    answered.set_result(Failed("late"))
    await runner.stop(grace)
    assert bool(found) is counts
