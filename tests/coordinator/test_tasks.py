"""Tasks that lose a cancellation are ended all the same, and with them a service."""

import asyncio

import pytest

from sluicegate.coordinator import tasks
from sluicegate.coordinator.service import startup
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.tasks import end
from sluicegate.kafka.topics import BrokersUnavailable
from tests.integration.waiting import finished, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN", 0.02)


async def deaf(times: int, began: asyncio.Event) -> None:
    """Lose that many cancellations."""
    for _ in range(times + 1):
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            lost = error
    raise lost


async def test_a_cancellation_that_is_lost_is_repeated() -> None:
    began = [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(deaf(times, began[times])) for times in range(3)]
    done = asyncio.create_task(asyncio.sleep(0))
    await asyncio.gather(done, *(each.wait() for each in began))
    await finished(end([*tasks, done]))
    assert [task.cancelled() for task in (*tasks, done)] == [True, True, True, False]


async def test_a_service_that_waits_for_kafka_stops_though_a_cancellation_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def verify(*_: object) -> None:
        """As the client does that is cancelled while it closes."""
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise BrokersUnavailable("Kafka does not answer") from error

    monkeypatch.setattr(startup, "verify_topics", verify)
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "http": {"port": 0},
            "streams": {"s": {"table": "/nowhere"}},
        }
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(Service(settings).run(stop))
    await until(asked.is_set, by=serving)
    stop.set()
    await finished(serving)
