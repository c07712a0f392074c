"""Batch jobs in plain Python, with a real coordinator: one id is one commit, and nothing waits for a job."""

import asyncio

import pytest

from sluicegate.writer_hooks import (
    AsyncRegionDriver,
    Job,
    OpenCheckpoint,
    RegionReplaced,
    SourceOffsetsUnknown,
    WriterResult,
    prepare_jobs,
)
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.test_python_driver import options_of, put, rows

pytestmark = pytest.mark.kafka

REGIONS = {"regions": "r1,jobs", "assignment": "1"}


def run(options: dict[str, str], job_id: str, *ids: int) -> bool:
    """Run one job with two writers; return True if it was written."""
    with Job(options, job_id) as job:
        if not job.start():
            return False
        # As in other processes.
        checkpoint = OpenCheckpoint.from_json(job.checkpoint.to_json())
        one, two = checkpoint.write("w0", rows(*ids[:1])), checkpoint.write("w1", rows(*ids[1:]))
        job.finish([WriterResult.from_json(each.to_json()) for each in (one, two)])
        return True


async def test_an_id_is_one_commit_and_a_job_that_died_leaves_nothing(place: Place) -> None:
    options = options_of(place, region="jobs", **REGIONS)
    async with running(place.settings()):
        await asyncio.to_thread(lambda: prepare_jobs(options))
        async with AsyncRegionDriver(options_of(place, **REGIONS), idle_after=0.0) as driver:
            dead = Job(options, "monday")
            assert await asyncio.to_thread(dead.start)
            await asyncio.to_thread(lambda: dead.write("w0", rows(100)))
            # A commit of the other region does not wait for the job.
            await driver.await_commit(await put(driver, 1))
            assert await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
            assert not await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
            await driver.await_commit(await put(driver, 4))
            with pytest.raises(RegionReplaced, match="leave this one stopped; else start a new driver"):
                await asyncio.to_thread(lambda: dead.finish([dead.write("w0", rows(100))]))
            dead.stop()
        assert await asyncio.to_thread(lambda: run(options, "tuesday", 5, 6))
        assert not await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
        with pytest.raises(SourceOffsetsUnknown, match="Give this driver another region"):
            await asyncio.to_thread(lambda: Job(options_of(place, **REGIONS), "monday").start())
    assert read_ids(place.table) == [1, 2, 3, 4, 5, 6]
