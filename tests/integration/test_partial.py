"""Regions that fall back, as the service runs them: what is visible, and what is told of it."""

import asyncio

import pytest

from sluicegate.events import CutCommitted, EventType
from tests.integration.conftest import Place
from tests.integration.coordinator import running
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
