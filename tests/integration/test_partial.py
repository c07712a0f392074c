"""Regions that fall back, as the service runs them: commits, notifications, metrics, view and status."""

import asyncio
import json
from typing import Final

import pytest

from sluicegate.coordinator.observe.metrics import PREFIX
from sluicegate.coordinator.service.service import Service
from sluicegate.events.models import CutAbandoned, Position
from sluicegate.events.notifications import Committed, NotificationType
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


async def test_healthy_regions_go_on_without_a_silent_one(place: Place) -> None:
    regions = ("r1", "r2")
    options = {"partial": "allow", "alignment_timeout": "300ms", "max_consecutive_fallbacks": 50}
    settings = place.settings(options=options)
    healthy = place.job(regions=regions)
    silent = place.job(regions=regions, region="r2", incarnation="q2")
    async with running(settings), healthy, silent:
        assert (await asyncio.gather(healthy.register(), silent.register()))[1].accepted
        await asyncio.gather(healthy.run_batch([1]), silent.run_batch([10]))
        await healthy.committed([1, 10])
        await healthy.run_batch([2])
        await healthy.committed([1, 2, 10])
        await silent.run_batch([3])
        await healthy.run_batch([4])
        await healthy.committed([1, 2, 3, 4, 10])
        cuts = await until(lambda: _cuts(healthy), lambda found: found[-1:] == [_FULL])
    first, second = cuts[:2]
    # The first cut of an assignment is full; a region without work falls back from the second one on.
    assert first == _FULL
    assert second[0] is NotificationType.PARTIALLY_COMMITTED
    assert second[1].keys() == {"r2"}


_FULL: Final[tuple[NotificationType, dict[str, Position | None]]] = (NotificationType.COMMITTED, {})


async def _cuts(job: Job) -> list[tuple[NotificationType, dict[str, Position | None]]]:
    """Return the commits that were announced, with their fallbacks."""
    return [
        (each.type, dict(each.body.fallbacks))
        for each in await job.notifications()
        if isinstance(each.body, Committed)
    ]


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
    slow = place.job(regions=regions, region="r2", incarnation="q2")
    store = RedisStateStore(redis_url, prefix=place.prefix)
    async with running(place.settings(options=options, redis=redis)) as service, healthy, slow:
        await asyncio.gather(healthy.register(), slow.register())
        await asyncio.gather(healthy.run_batch([1]), slow.run_batch([2]))
        await healthy.committed([1, 2])
        await healthy.run_batch([3])
        await healthy.committed([1, 2, 3])

        view = await until(lambda: store.read("flights"), lambda view: bool(view and view.forced_by))
        assert view is not None
        assert (view.forced_by, view.single_region) == (("r2",), None)
        assert view.regions["r2"].consecutive_fallbacks == 1
        assert view.cut["r2"] == slow.previous
        shown = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
        assert shown["forced_by"] == ["r2"]
        assert shown["regions"]["r2"]["consecutive_fallbacks"] == 1

        await asyncio.gather(healthy.run_batch([4]), slow.run_batch([5]))
        await healthy.committed([1, 2, 3, 4, 5])
        await healthy.run_batch([6])
        await healthy.committed([1, 2, 3, 4, 5, 6])
        await healthy.run_batch([7])
        await healthy.committed([1, 2, 3, 4, 5, 6, 7])
        wanted = {"full": 1, "forced": 1, "abandoned": 1, "partial": 3}
        await until(lambda: {name: counted(service, name) for name in wanted}, lambda found: found == wanted)
        history = await sluicegate(place, "history", "--stream", "flights")
        assert "abandoned: all regions had to move; behind: r2" in history
    await store.close()


async def test_a_cut_that_would_leave_too_many_regions_behind_is_abandoned(place: Place) -> None:
    options = {"partial": "allow", "alignment_timeout": "300ms", "max_failure_ratio": 0.4}
    regions = ("r1", "r2")
    healthy = place.job(regions=regions)
    slow = place.job(regions=regions, region="r2", incarnation="q2")
    async with running(place.settings(options=options)), healthy, slow:
        await asyncio.gather(healthy.register(), slow.register())
        await asyncio.gather(healthy.run_batch([1]), slow.run_batch([2]))
        await healthy.committed([1, 2])
        await healthy.run_batch([3])
        found = await until(
            lambda: _abandoned(healthy), lambda bodies: any(each.kind == "ratio" for each in bodies)
        )
        assert found[0].regions == ("r2",)
        history = await sluicegate(place, "history", "--stream", "flights")
        assert "abandoned: too many regions would have fallen back; behind: r2" in history
        assert read_ids(place.table) == [1, 2]
        await slow.run_batch([4])
        await healthy.committed([1, 2, 3, 4])


async def _abandoned(job: Job) -> list[CutAbandoned]:
    return [each.body for each in await job.notifications() if isinstance(each.body, CutAbandoned)]


async def test_a_commit_waits_for_its_interval_or_for_enough_files(place: Place) -> None:
    """The interval is longer than any test: only the number of files makes the second commit due."""
    options = {"commit_interval": "1h", "commit_max_files": 3}
    async with running(place.settings(options=options)) as service, place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        await job.run_batch([3])
        # Both are sealed and read, and still wait.
        await until(
            lambda: service.status()["streams"]["flights"]["waiting"],
            lambda waiting: [each["files"] for each in waiting.values()] == [2],
        )
        assert read_ids(place.table) == [1]
        await job.run_batch([4])
        await job.committed([1, 2, 3, 4])
        commits = await until(lambda: _cuts(job), lambda found: len(found) == 2)
        assert commits == [_FULL] * 2
