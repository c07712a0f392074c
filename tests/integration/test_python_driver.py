"""Drivers, writers and jobs in plain Python, with a real coordinator: exact over restarts and mishaps."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sluicegate.events.models import RegionHeartbeat
from sluicegate.failpoints import points
from sluicegate.writer_hooks import (
    CommittedCheckpoint,
    EventTooLarge,
    HookError,
    Job,
    OpenCheckpoint,
    PublishFailed,
    RegionOutcome,
    RegionReplaced,
    SourceOffsetsUnknown,
    WriterResult,
    prepare_jobs,
)
from sluicegate.writer_hooks.publisher import publish_completion
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.coroutines import AsyncRegionDriver, AsyncWriter
from tests.integration.job import SCHEMA, read_events, read_ids
from tests.integration.sparkjob import SparkThread
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


def options_of(place: Place, **more: str) -> dict[str, str]:
    return {
        "stream": "flights",
        "region": "r1",
        "table": place.table,
        "format": place.lake,
        "kafka.bootstrap.servers": place.bootstrap,
        "topic.prefix": place.prefix,
        **more,
    }


def rows(*ids: int) -> pa.Table:
    columns = {"id": ids, "origin": ["JFK"] * len(ids), "at": [None] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


async def put(driver: AsyncRegionDriver, *ids: int, offsets: Any = None) -> OpenCheckpoint:
    """Complete one checkpoint with these rows. Its source offsets are the highest id."""
    checkpoint = await driver.begin()
    async with AsyncWriter(checkpoint, "w0") as writer:
        await writer.write(rows(*ids))
        result = await writer.finish()
    await driver.complete(checkpoint, [result], source_offsets=offsets or {"ids": max(ids)})
    return checkpoint


@pytest.mark.seam
async def test_a_driver_continues_at_the_source_offsets_of_the_committed_checkpoint(place: Place) -> None:
    seen: list[CommittedCheckpoint] = []
    async with running(place.settings()):
        async with AsyncRegionDriver(options_of(place), on_commit=seen.append) as driver:
            assert driver.committed is None
            checkpoint = OpenCheckpoint.from_json((await driver.begin()).to_json())
            first = checkpoint.write("w0", rows(1, 2))
            lost = checkpoint.write("w1", rows(3))
            second = checkpoint.write("w1", rows(3))
            assert lost.attempt.id != second.attempt.id
            results = [WriterResult.from_json(each.to_json()) for each in (first, second)]
            await driver.complete(checkpoint, results, source_offsets={"ids": 3})
            committed = await driver.await_commit(checkpoint)
            assert (committed.number, committed.source_offsets) == (0, {"ids": 3})
            assert seen == [committed]
            last = await put(driver, 4)
            await driver.await_commit(last)
        again = AsyncRegionDriver(options_of(place))
        after = await again.start()
        assert after is not None
        assert (after.number, after.source_offsets) == (1, {"ids": 4})
        await again.await_commit(await put(again, 5))
        await again.stop()
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


@pytest.mark.seam
async def test_what_a_dead_driver_completed_is_committed_or_read_again_never_both(place: Place) -> None:
    async with running(place.settings()):
        dead = AsyncRegionDriver(options_of(place))
        await dead.start()
        await dead.await_commit(await put(dead, 1))
        await put(dead, 2)
        await put(dead, 3)
        following = AsyncRegionDriver(options_of(place))
        after = await following.start()
        assert after is not None
        at = after.source_offsets["ids"]
        for number in range(at + 1, 6):
            newest = await put(following, number)
        await following.await_commit(newest)
        with pytest.raises(RegionReplaced, match="leave this one stopped; else start a new driver"):
            # Its completions do not count; it learns that from the answer to the newer driver.
            await until(lambda: put(dead, 100), lambda _: False)
        await following.stop()
        await dead.stop()
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


async def test_a_completion_without_an_acknowledgement_is_repeated_unchanged(place: Place) -> None:
    async with running(place.settings()):
        driver = AsyncRegionDriver(options_of(place))
        with pytest.raises(HookError, match="call `start`, or make another one"):
            await driver.begin()
        await driver.start()
        checkpoint, following = await driver.begin(), await driver.begin()
        result, other = checkpoint.write("w0", rows(1)), checkpoint.write("w0", rows(1))
        points.arm("hook.completion.after=fail@1")
        try:
            with pytest.raises(points.InjectedFailure):
                await driver.complete(checkpoint, [result], source_offsets=1)
        finally:
            points.arm("")
        with pytest.raises(HookError, match="Repeat the call of complete, with the same arguments"):
            await driver.give_up(checkpoint)
        with pytest.raises(HookError, match="Repeat the call with the arguments of the first one"):
            await driver.complete(checkpoint, [other], source_offsets=1)
        await driver.complete(checkpoint, [result], source_offsets=1)
        await driver.await_commit(checkpoint)
        with pytest.raises(HookError, match="complete them or give them up before `close`"):
            await driver.close()
        await driver.give_up(following)
        assert await driver.close() == following.number
        with pytest.raises(HookError, match="make another RegionDriver to start again"):
            async with AsyncRegionDriver(options_of(place)) as another:
                await another.start()
    assert read_ids(place.table) == [1]


async def test_another_kind_of_driver_is_taken_over_only_on_demand(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.begin_with_a_commit()
        with pytest.raises(SourceOffsetsUnknown, match="start this one with take_over=True"):
            await AsyncRegionDriver(options_of(place)).start()
        await job.commit([2], [1, 2])
        await job.close()
        async with AsyncRegionDriver(options_of(place), take_over=True) as driver:
            assert driver.committed is not None
            assert driver.committed.number == 1
            await driver.await_commit(await put(driver, 3))
    assert read_ids(place.table) == [1, 2, 3]


async def put_first(driver: AsyncRegionDriver, checkpoint: OpenCheckpoint) -> None:
    await driver.complete(checkpoint, [checkpoint.write("w0", rows(1, 2))], source_offsets=2)
    await driver.await_commit(checkpoint)


async def test_what_a_cancelled_completion_has_completed_cannot_be_given_up(
    place: Place, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    async with running(place.settings()), AsyncRegionDriver(options_of(place)) as driver:
        first, second = await driver.begin(), await driver.begin()
        points.arm(f"hook.completion.before=hang:{release}@1")
        try:
            completing = asyncio.create_task(put_first(driver, first))
            await until(driver._driver._completing.locked, what="a completion under way")
            completing.cancel()
            giving_up = asyncio.create_task(driver.give_up(first))
            release.touch()
            with pytest.raises(HookError, match="so its range of the source counts"):
                await giving_up
        finally:
            points.arm("")
        with pytest.raises(HookError, match="so its range of the source counts"):
            await driver.give_up(first)
        await driver.give_up(second)
        await driver.await_commit(first)
    assert read_ids(place.table) == [1, 2]


async def test_a_completion_that_may_be_in_the_log_is_not_given_up_because_a_repetition_is_too_large(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*arguments: Any) -> None:
        publish_completion(*arguments)
        raise PublishFailed("the acknowledgement is lost")

    def refuse(*_: Any) -> None:
        raise EventTooLarge("the limit of the topic was lowered")

    async with running(place.settings()), AsyncRegionDriver(options_of(place)) as driver:
        checkpoint = await driver.begin()
        results = [checkpoint.write("w0", rows(1))]
        for how, error in ((lose, PublishFailed), (refuse, EventTooLarge)):
            with monkeypatch.context() as broken:
                broken.setattr("sluicegate.writer_hooks.driver.publish_completion", how)
                with pytest.raises(error):
                    await driver.complete(checkpoint, results, source_offsets=1)
        with pytest.raises(HookError, match="may be in the log already, so it cannot be given up"):
            await driver.give_up(checkpoint)
        await driver.complete(checkpoint, results, source_offsets=1)
        await driver.await_commit(checkpoint)
    assert read_ids(place.table) == [1]


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
async def test_no_commit_waits_for_a_declined_checkpoint(place: Place) -> None:
    partial = {"partial": "allow", "alignment_timeout": "1h"}
    others = options_of(place, region="jobs", **REGIONS)
    heard: list[RegionOutcome] = []
    async with (
        running(place.settings(options=partial)) as service,
        AsyncRegionDriver(options_of(place, **REGIONS)) as driver,
        AsyncRegionDriver(others, on_outcome=heard.append) as slow,
    ):
        first = await put(slow, 1)
        await put(driver, 2)
        # The first commit of an assignment has all regions.
        await slow.await_commit(first)
        hung = await slow.begin()
        await slow.decline(hung, "the source does not answer")
        await driver.await_commit(await put(driver, 3))
        # The driver of the region that fell back hears of it.
        await until(lambda: [each for each in heard if each.fell_back])
        conditions = service.status()["streams"]["flights"]["conditions"]
        assert any("the source does not answer" in each["message"] for each in conditions)
        async with AsyncWriter(hung, "w0") as writer:
            await writer.write(rows(4))
            result = await writer.finish()
        await slow.complete(hung, [result], source_offsets={"ids": 4})
        await driver.decline(await driver.begin())
        await slow.await_commit(hung)
        await until(lambda: heard[-1].fell_back, lambda fell_back: not fell_back)
        assert slow.committed is not None
        assert (heard[-1].consecutive, heard[-1].committed) == (0, slow.committed.position)
    assert read_ids(place.table) == [1, 2, 3, 4]


async def heartbeats(place: Place) -> list[RegionHeartbeat]:
    """Return the heartbeats in the log, oldest first."""
    found = await read_events(place.bootstrap, place.topics.events)
    return [each.body for each in found if isinstance(each.body, RegionHeartbeat)]


async def test_a_checkpoint_after_a_pause_is_in_the_log_before_its_first_row(place: Place) -> None:
    async with running(place.settings()):
        async with AsyncRegionDriver(options_of(place)) as busy:
            for number in range(2):
                await busy.await_commit(await put(busy, number))
            assert all(each.begins is None for each in await heartbeats(place)), "a busy region pays nothing"
        async with AsyncRegionDriver(options_of(place), idle_after=0.0) as driver:
            before = len(await heartbeats(place))

            async def is_idle() -> bool:
                return any(each.idle for each in (await heartbeats(place))[before:])

            await until(is_idle)
            checkpoint = await driver.begin()
            found = (await heartbeats(place))[before:]
            assert [each.begins for each in found if each.begins is not None] == [checkpoint.number]
            await driver.complete(checkpoint, [checkpoint.write("w0", rows(2))], source_offsets={"ids": 2})
            await driver.await_commit(checkpoint)
    assert read_ids(place.table) == [0, 1, 2]


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


@pytest.mark.spark
async def test_a_batch_write_of_spark_is_a_job(place: Place, spark: SparkThread) -> None:
    options = options_of(place, region="jobs", **REGIONS)

    def save(job_id: str, *ids: int, mode: str = "append") -> None:
        rows = [(each, "JFK", None) for each in ids]
        frame = spark.session.createDataFrame(rows, "id long, origin string, at timestamp_ntz").repartition(2)
        given = {**options, "job.id": job_id} if job_id else options
        frame.write.format("sluicegate").options(**given).mode(mode).save()

    async with running(place.settings()), AsyncRegionDriver(options_of(place, **REGIONS), idle_after=0.0):
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
