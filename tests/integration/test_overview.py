"""`sluicegate status` beside a coordinator shows what that one knows now, and without it what was written."""

import json
from typing import Any

import pytest

from sluicegate.cli.local.process import free_port
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
SOON = 100
"""Milliseconds between heartbeats, by what the job says."""


async def shown(place: Place, port: int) -> dict[str, Any]:
    """As a process beside the coordinator sees the stream."""
    found: dict[str, Any] = json.loads(await sluicegate(place, "status", "--json", HTTP__PORT=str(port)))[
        "streams"
    ][0]
    return found


async def start(job: Job) -> None:
    """A commit, then files without a completion, and a heartbeat that announces the next."""
    await job.register()
    await job.run_batch([1, 2])
    await job.committed([1, 2])
    await job.written(job.write_files([3, 4, 5]))
    await job.heartbeat(interval=SOON)


async def test_status_asks_the_coordinator_that_runs_here(place: Place) -> None:
    port = free_port()
    async with place.job() as job:
        async with running(place.settings(http={"port": port})) as service:
            await start(job)
            live = await until(lambda: shown(place, port), lambda seen: seen["silent"] == ["r1"])
            assert (live["live"], live["ready"], live["committed"]) == (True, True, 1)
            waiting = live["waiting"]["r1"]
            assert (waiting["files"], waiting["rows"]) == (1, 3)
            assert live["regions"]["r1"]["heartbeat_interval"] == SOON
            assert live["updated_at"] - live["regions"]["r1"]["heard"] > 3 * SOON
            # One model: whoever asks over HTTP sees what the command shows.
            served = service.status()["streams"]["flights"]
            command_only = {"configured", "known", "problem", "recorded_at", "live", "unserved"}
            assert live.keys() - served.keys() == command_only
            assert "SILENT" in await sluicegate(place, "status", HTTP__PORT=str(port))
            # Another deployment's coordinator at that address is not believed.
            other = await shown_elsewhere(place, port)
            assert other["live"] is False
        gone = json.loads((await invoke_here(place, "status", "--json")).stdout)["streams"][0]
        assert (gone["live"], gone["committed"]) == (False, 1)
        assert gone["waiting"]["r1"]["rows"] == 3


async def shown_elsewhere(place: Place, port: int) -> dict[str, Any]:
    text = await sluicegate(
        place, "status", "--json", HTTP__PORT=str(port), KAFKA__GROUP_ID=f"{place.prefix}-other"
    )
    found: dict[str, Any] = json.loads(text)["streams"][0]
    return found
