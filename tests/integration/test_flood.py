"""One client floods its stream, or the topic with garbage. The stream beside it on the partition commits."""

import asyncio
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from sluicegate.coordinator.stream.rate_limit import BURST
from sluicegate.events.problems import Code
from tests.integration.conftest import Place, neighbour
from tests.integration.job import Job, create_table, read_ids
from tests.integration.test_reload import Coordinator, coordinator, job_of
from tests.integration.waiting import BACKSTOP, until

pytestmark = pytest.mark.kafka

QUIET: Final = neighbour("flights", same=True)
LIMIT: Final = 20
FLOOD: Final = 3 * LIMIT * BURST
RAISED: Final = "max_events_per_second = 100000"


async def conditions(service: Coordinator, stream: str) -> list[str]:
    """Return the codes of a stream's conditions, as `/status` has them."""
    shown = (await service.status())["streams"].get(stream, {})
    return [each["code"] for each in shown.get("conditions", [])]


async def flood(job: Job, events: int = FLOOD) -> None:
    """Publish events as fast as the broker takes them."""
    await asyncio.gather(*(job.heartbeat() for _ in range(events)))


def streams(limit: str) -> dict[str, str]:
    return {"flights": limit, QUIET: ""}


async def test_a_stream_over_its_limit_loses_nothing_and_holds_nobody(place: Place, tmp_path: Path) -> None:
    create_table(tmp_path, QUIET)
    limited = streams(f"max_events_per_second = {LIMIT}")
    async with coordinator(place, limited) as service, place.job() as noisy, job_of(place, QUIET) as quiet:
        await noisy.register()
        await quiet.register()
        await noisy.commit([1], [1])
        await flood(noisy)
        await noisy.run_batch([2])
        await service.told("stream is read at its limit")
        await until(lambda: conditions(service, "flights"), lambda seen: Code.EVENTS_LIMITED in seen)
        await quiet.commit([7], [7])
        assert await conditions(service, QUIET) == []
        assert read_ids(noisy.location) == [1]
        assert await readiness(service) == 200
        # The printed way out: raise the limit, and send SIGHUP.
        service.reload(streams(RAISED))
        await noisy.committed([1, 2])
        await until(lambda: conditions(service, "flights"), lambda seen: seen == [])
        await noisy.run_batch([3])
        await quiet.run_batch([8])
        await noisy.committed([1, 2, 3])
        await quiet.committed([7, 8])


async def readiness(service: Coordinator) -> int:
    """Return the status of `/readyz`; an error above 399 raises."""
    port = (await service.told("listening"))["port"]

    def ask() -> int:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=BACKSTOP) as answer:
            return int(answer.status)

    return await asyncio.to_thread(ask)
