"""The low-water mark of a stream moves when its record is acknowledged, and never before."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from sluicegate.coordinator.core.effects import WriteRecord
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.runner import StreamRunner
from tests.integration.waiting import until


class Kafka:
    """Keeps records without an acknowledgement until it is told."""

    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self.acknowledged = asyncio.Event()
        self.error: Exception | None = None

    async def record(self, record: StateRecord) -> None:
        self.records.append(record)
        await self.acknowledged.wait()
        if self.error is not None:
            raise self.error


def stream(kafka: Kafka) -> Any:
    """Return the parts of a stream that a record concerns: it needs everything from offset 3 on."""
    dropped: list[int] = []
    files = SimpleNamespace(drop_before=dropped.append)
    return SimpleNamespace(
        _kafka=kafka, _recorded_user="u", recorded_low_water=3, _files=files, dropped=dropped
    )


def effect() -> WriteRecord:
    return WriteRecord(StateRecord(stream="s", applied=8, low_water=9, state=LogState()))


async def test_the_low_water_mark_waits_for_the_acknowledgement() -> None:
    """The group's offset follows the mark: one that is ahead of the record would lose events in a crash."""
    kafka = Kafka()
    runner = stream(kafka)
    task = asyncio.create_task(StreamRunner._follow_up(cast(StreamRunner, runner), effect()))
    await until(lambda: kafka.records)
    assert (runner.recorded_low_water, runner.dropped) == (3, [])
    kafka.acknowledged.set()
    await task
    assert (runner.recorded_low_water, runner.dropped) == (9, [9])


async def test_a_record_that_is_not_acknowledged_moves_nothing() -> None:
    kafka = Kafka()
    kafka.error = KafkaTimeoutError()
    kafka.acknowledged.set()
    runner = stream(kafka)
    with pytest.raises(KafkaTimeoutError):
        await StreamRunner._follow_up(cast(StreamRunner, runner), effect())
    assert (runner.recorded_low_water, runner.dropped) == (3, [])
