"""Regions that fall back, as the service runs them: what is visible, and what is told of it."""

import asyncio
import json
from typing import Any

import pytest

from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.telemetry.metrics import PREFIX
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutCommitted, Parent, Position
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def test_healthy_regions_go_on_without_a_silent_one(place: Place) -> None:
    regions = ("r1", "r2")
    options = {"partial": "allow", "alignment_timeout": "300ms", "max_consecutive_fallbacks": 50}
    settings = place.settings(options=options)
    healthy = place.job(regions=regions)
    silent = place.job(regions=regions, region="r2", lineage="q2.0")
    async with running(settings), healthy, silent:
        assert (await asyncio.gather(healthy.open(), silent.open()))[1].accepted
        await healthy.run_batch([1])
        await healthy.committed([1])
        await healthy.run_batch([2])
        await healthy.committed([1, 2])
        await silent.run_batch([3])
        await healthy.run_batch([4])
        await healthy.committed([1, 2, 3, 4])
        cuts = [
            (event.envelope.type, event.body.fallbacks)
            for event in await until(healthy.notifications)
            if isinstance(event.body, CutCommitted)
        ]
    assert cuts[:2] == [(EventType.CUT_PARTIALLY_COMMITTED, {"r2": None})] * 2
    assert cuts[-1] == (EventType.CUT_COMMITTED, {})


def counted(service: Service, outcome: str) -> int:
    line = f'{PREFIX}cuts_total{{outcome="{outcome}",stream="flights"}} '
    lines = service._metrics.render().decode().splitlines()
    return next((int(float(each.removeprefix(line))) for each in lines if each.startswith(line)), 0)


@pytest.mark.redis
async def test_every_outcome_is_counted_and_shown(place: Place, redis_url: str) -> None:
    """With one fallback at most: partial, forced, partial, abandoned, partial."""
    regions = ("r1", "r2")
    options = {"partial": "allow", "alignment_timeout": "800ms", "max_consecutive_fallbacks": 1}
    redis = {"url": redis_url, "key_prefix": place.prefix}
    healthy = place.job(regions=regions)
    slow = place.job(regions=regions, region="r2", lineage="q2.0")
    store = RedisStateStore(redis_url, prefix=place.prefix)
    async with running(place.settings(options=options, redis=redis)) as service, healthy, slow:
        await asyncio.gather(healthy.open(), slow.open())
        await asyncio.gather(healthy.run_batch([1]), slow.run_batch([2]))
        await healthy.committed([1, 2])
        await healthy.run_batch([3])
        await healthy.committed([1, 2, 3])

        view = await until(lambda: store.read("flights"), lambda view: bool(view and view.fallbacks))
        assert view is not None
        assert view.fallbacks == {"r2": Position(lineage="q2.0", checkpoint=0)}
        assert (view.forced_by, view.joined, view.assigned) == (("r2",), None, regions)
        assert view.regions["r2"].consecutive_fallbacks == 1
        shown = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
        assert (shown["forced_by"], shown["regions"]["r2"]["state"]) == (["r2"], "behind")
        lines = await sluicegate(place, "status")
        assert "NOTE: the next commit has to be full: r2 stayed behind" in lines
        assert "; stayed behind in the last commit, as often as it may" in lines

        await asyncio.gather(healthy.run_batch([4]), slow.run_batch([5]))
        await healthy.committed([1, 2, 3, 4, 5])
        await healthy.run_batch([6])
        await healthy.committed([1, 2, 3, 4, 5, 6])
        await healthy.run_batch([7])
        await healthy.committed([1, 2, 3, 4, 5, 6, 7])
        wanted = {"full": 1, "forced": 1, "abandoned": 1, "partial": 3}
        await until(lambda: {name: counted(service, name) for name in wanted}, lambda found: found == wanted)
    await store.close()


async def test_a_stream_that_is_one_region_and_not_owned_says_so(place: Place) -> None:
    options = {"partial": "allow", "alignment_timeout": "200ms"}
    async with running(place.settings(options=options)), place.job() as job:
        await job.open(sink="all-to-all", owned=False)
        await job.run_batch([1])
        await job.committed([1])
        async with place.job(lineage="q1.1", batch=1) as restored:
            await restored.open(Parent(region="r1", lineage="q1.0", checkpoint=0), owned=False)
            found = await until(
                lambda: _shown(place), lambda shown: shown["regions"]["r1"]["lineage"] == "q1.1"
            )
    assert not found["regions"]["r1"]["owned"]
    assert any("without owning what its parents wrote" in note for note in found["notes"])


async def _shown(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
    return found
