"""Batch jobs in plain Python, with a real coordinator: one id is one commit, and nothing waits for a job."""

import asyncio

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

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
from tests.integration.sparkjob import SparkThread
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


@pytest.mark.seam
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
            # Nor for one that has ended.
            await driver.await_commit(await put(driver, 7))
            assert not await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
            await driver.await_commit(await put(driver, 4))
            with pytest.raises(RegionReplaced, match="leave this one stopped; else start a new driver"):
                await asyncio.to_thread(lambda: dead.finish([dead.write("w0", rows(100))]))
            dead.stop()
        assert await asyncio.to_thread(lambda: run(options, "tuesday", 5, 6))
        assert not await asyncio.to_thread(lambda: run(options, "monday", 2, 3))
        with pytest.raises(SourceOffsetsUnknown, match="Give this driver another region"):
            await asyncio.to_thread(lambda: Job(options_of(place, **REGIONS), "monday").start())
    assert read_ids(place.table) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.seam
@pytest.mark.spark
async def test_a_batch_write_of_spark_is_a_job(place: Place, spark: SparkThread) -> None:
    options = options_of(place, region="jobs", **REGIONS)

    def save(job_id: str, *ids: int, mode: str = "append") -> None:
        rows = [(each, "JFK", None) for each in ids]
        frame = spark.session.createDataFrame(rows, "id long, origin string, at timestamp_ntz").repartition(2)
        given = {**options, "job.id": job_id} if job_id else options
        frame.write.format("sluicegate").options(**given).mode(mode).save()

    async with (
        running(place.settings()),
        AsyncRegionDriver(options_of(place, **REGIONS), idle_after=0.0),
    ):
        await spark.call(lambda: save("monday", 1, 2, 3))
        assert read_ids(place.table) == [1, 2, 3]
        await spark.call(lambda: save("monday", 1, 2, 3))
        await spark.call(lambda: save("tuesday", 4))
        assert not await asyncio.to_thread(lambda: run(options, "tuesday", 4))
        with pytest.raises(PySparkException, match="repeat a write that has failed with the same one"):
            await spark.call(lambda: save("", 5))
        with pytest.raises(PySparkException, match=r'use mode\("append"\)'):
            await spark.call(lambda: save("wednesday", 5, mode="overwrite"))
        failed = spark.session.range(2).selectExpr("assert_true(id < 1) is null as origin", "id")
        with pytest.raises(PySparkException):
            await spark.call(lambda: write_failing(failed, {**options, "job.id": "thursday"}))
        await spark.call(lambda: save("thursday", 6))
    assert read_ids(place.table) == [1, 2, 3, 4, 6]


def write_failing(frame: DataFrame, options: dict[str, str]) -> None:
    """Write rows of which the last one fails."""
    fitting = frame.selectExpr("id", "cast(origin as string) as origin", "cast(null as timestamp_ntz) as at")
    fitting.write.format("sluicegate").options(**options).mode("append").save()
