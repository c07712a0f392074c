"""Lineage of real commits: each decision is one run, and a server that is away delays nothing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from sluicegate.coordinator.listeners.worker import ListenerCode
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import until
from tests.integration.webhooks import shown

pytestmark = pytest.mark.kafka


@dataclass
class Server:
    """A real HTTP server with the interface of OpenLineage."""

    url: str = ""
    status: int = 201
    asked: int = 0
    got: list[dict[str, Any]] = field(default_factory=list)
    """Events that were answered with success."""

    async def handle(self, request: web.Request) -> web.Response:
        event = json.loads(await request.read())
        self.asked += 1
        if self.status == 201:
            self.got.append(event)
        return web.Response(status=self.status)

    def ended(self) -> list[int]:
        """Decisions of the events of an end, in the order of their arrival."""
        facets = [each["run"]["facets"] for each in self.got if each["eventType"] == "COMPLETE"]
        return [each["sluicegate_commit"]["decision"] for each in facets]


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_post("/api/v1/lineage", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def with_lineage(place: Place, server: Server, **more: Any) -> Any:
    listener = {"type": "openlineage", "url": server.url, "timeout": 60, **more}
    return place.settings(options={"listeners": {"hook": listener}})


async def test_a_server_that_is_away_delays_no_commit_and_gets_each_run_once(place: Place) -> None:
    async with serving() as server, place.job() as job:
        server.status = 503
        async with running(with_lineage(place, server)) as service:
            await job.register()
            for number in (1, 2, 3):
                await job.run_batch([number])
                await job.committed(range(1, number + 1))
            await until(
                lambda: shown(service).get("problem"),
                lambda found: found is not None and found["code"] == ListenerCode.RETRYING,
            )
            assert "answered 503" in shown(service)["problem"]["message"]
            assert server.got == []
            server.status = 201
            await until(server.ended, lambda found: found == [1, 2, 3])
        # Another owner continues, and repeats nothing that is recorded.
        async with running(with_lineage(place, server)):
            await job.run_batch([4])
            await until(server.ended, lambda found: found[-1:] == [4])
    assert server.ended() == [1, 2, 3, 4]
    runs = [each["run"]["runId"] for each in server.got]
    assert runs[::2] == runs[1::2], "a start and an end have one run"
    assert len(set(runs)) == 4
    (output,) = server.got[1]["outputs"]
    assert (output["namespace"], output["name"]) == ("file", place.table)
    assert output["facets"]["version"]["datasetVersion"] == "1"
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (1, 1)
    assert statistics["size"] > 0
