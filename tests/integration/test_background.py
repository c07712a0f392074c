"""Errors that nobody foresaw, in work that nobody waits for: told, and tried again or loud."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.kafka.producer import SessionProducer
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import finished, until

pytestmark = pytest.mark.kafka


class Broken(Exception):
    """What no code expects."""


async def test_a_partition_that_cannot_start_says_why_and_is_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, mended = PartitionRunner.start, asyncio.Event()

    async def failing(self: PartitionRunner) -> None:
        if not mended.is_set():
            raise Broken("no such thing")
        await start(self)

    monkeypatch.setattr(PartitionRunner, "start", failing)
    with capture_logs() as logged:
        async with running(place.settings(), ready=False) as service, place.job() as job:
            await until(service.unready, lambda reasons: any("no such thing" in each for each in reasons))
            mended.set()
            await until(service.unready, lambda reasons: not reasons)
            assert (await job.register()).accepted
    found = [line for line in logged if line["event"].startswith("partition not started")]
    assert found
    assert all(line["exc_info"] for line in found)


@pytest.mark.seam
async def test_an_outcome_that_cannot_be_handled_ends_the_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise Broken("no such outcome")

    monkeypatch.setattr(StreamMachine, "finished", failing)
    with pytest.raises(Broken, match="no such outcome"):
        await finished(Service(place.settings()).run(asyncio.Event()))


async def test_a_refusal_that_could_not_be_sent_is_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failures = SessionProducer.send_and_wait, 0

    async def failing(self: SessionProducer, topic: str, *message: Any, **how: Any) -> Any:
        nonlocal failures
        if topic == place.topics.commits and failures < 2:
            failures += 1
            raise Broken("no such producer")
        return await send(self, topic, *message, **how)

    monkeypatch.setattr(SessionProducer, "send_and_wait", failing)
    async with running(place.settings()), place.job(stream="unconfigured") as job:
        answer = await job.register()
    assert not answer.accepted
    assert failures == 2
