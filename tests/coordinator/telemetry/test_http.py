"""The HTTP endpoints say what the service says, with the status that a supervisor acts on."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.settings.model import CannotServe, HttpSettings
from sluicegate.coordinator.web.http import HealthServer


@dataclass
class Service:
    """What the endpoints ask, answered by the test."""

    dead: str | None = None
    missing: list[str] = field(default_factory=list)
    shown: dict[str, Any] = field(default_factory=dict)

    def alive(self) -> str | None:
        return self.dead

    def unready(self) -> list[str]:
        return self.missing

    def status(self) -> dict[str, Any]:
        return self.shown


@dataclass
class Served:
    """A running server and its parts."""

    service: Service
    metrics: Metrics
    url: str

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    service, metrics = Service(), Metrics()
    async with HealthServer(service, metrics, HttpSettings(port=0)) as server:
        yield Served(service, metrics, f"http://127.0.0.1:{server.port}")


async def test_alive_until_the_service_says_otherwise(served: Served) -> None:
    assert await served.get("/livez") == (200, {"alive": True})
    served.service.dead = "the consumer loop stands still for 31 s"
    assert await served.get("/livez") == (
        503,
        {"alive": False, "reason": "the consumer loop stands still for 31 s"},
    )
    assert (await served.get("/readyz"))[0] == 200


async def test_ready_only_without_any_reason(served: Served) -> None:
    served.service.missing = ["the assignment is not read yet", "Redis is away"]
    assert await served.get("/readyz") == (
        503,
        {"ready": False, "reasons": ["the assignment is not read yet", "Redis is away"]},
    )
    assert (await served.get("/livez"))[0] == 200
    served.service.missing = []
    assert await served.get("/readyz") == (200, {"ready": True, "reasons": []})


async def test_status_is_handed_through(served: Served) -> None:
    served.service.shown = {"streams": {"flights": {"committed": 7, "watermark": None}}}
    assert await served.get("/status") == (200, served.service.shown)


async def test_metrics_are_served_as_prometheus_reads_them(served: Served) -> None:
    served.metrics.lag.set(42, "3")
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/metrics") as answer:
        text = await answer.text()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'sluicegate_consumer_lag_records{partition="3"} 42.0' in text.splitlines()


async def test_taken_port_is_a_clear_error(served: Served) -> None:
    port = int(served.url.rpartition(":")[2])
    server = HealthServer(Service(), Metrics(), HttpSettings(port=port))
    with pytest.raises(CannotServe, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*http\.port"):
        await server.__aenter__()
    with pytest.raises(RuntimeError):
        _ = server.port


async def test_nothing_answers_after_the_end() -> None:
    async with HealthServer(Service(), Metrics(), HttpSettings(port=0)) as server:
        url = f"http://127.0.0.1:{server.port}/livez"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)
