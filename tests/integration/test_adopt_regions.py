"""Regions of an adopted stream without a driver: commits wait for them, and each named way out works."""

import asyncio

import pytest

from sluicegate.events.problems import Code
from sluicegate.writer_hooks import AsyncRegionDriver, prepare_jobs
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import conditions
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.test_adopt import ADOPT, lose_topics
from tests.integration.test_python_driver import options_of, put
from tests.integration.test_python_jobs import REGIONS, run
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
STREAM = ("--stream", "flights")


async def adopted(place: Place) -> str:
    """Commit a driver's checkpoint and a job, lose the topics, adopt; return the text of the command."""
    options = options_of(place, region="jobs", **REGIONS)
    async with running(place.settings()):
        await asyncio.to_thread(lambda: prepare_jobs(options))
        async with AsyncRegionDriver(options_of(place, **REGIONS), idle_after=0.0) as driver:
            await driver.await_commit(await put(driver, 1))
            assert await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
    await lose_topics(place)
    result = await invoke_here(place, *ADOPT)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("way", ["prepare_jobs", "region remove"])
async def test_commits_wait_for_an_idle_region_until_it_is_prepared_or_removed(
    place: Place, way: str
) -> None:
    options = options_of(place, region="jobs", **REGIONS)
    told = await adopted(place)
    assert "Commits wait for each region that has not ended, also if it was idle" in told
    async with (
        running(place.settings()) as service,
        AsyncRegionDriver(options_of(place, **REGIONS), idle_after=0.0) as driver,
    ):
        done = await put(driver, 4)

        def waits() -> str:
            found = [each for each in conditions(service) if each["code"] == Code.WAITS_FOR_REGIONS]
            return found[0]["message"] if found else ""

        advice = await until(waits)
        assert "for a region of batch jobs, call `prepare_jobs` with their options" in advice
        if way == "prepare_jobs":
            await asyncio.to_thread(lambda: prepare_jobs(options))
        else:
            assert "region remove --stream flights --region jobs" in advice
            await sluicegate(place, "region", "remove", *STREAM, "--region", "jobs")
        await driver.await_commit(done)
        assert read_ids(place.table) == [1, 2, 3, 4]
        if way == "prepare_jobs":
            # The ids of the jobs come from the table.
            assert not await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
            assert await asyncio.to_thread(lambda: run(options, "tuesday", 5, 6))
