"""Drivers and writers in plain Python, with a real coordinator: exact over restarts, races and takeovers."""

from typing import Any

import pyarrow as pa
import pytest

from sluicegate.failpoints import points
from sluicegate.writer_hooks import (
    AsyncRegionDriver,
    AsyncWriter,
    BadOption,
    CommittedCheckpoint,
    HookError,
    NotOurs,
    OpenCheckpoint,
    RegionReplaced,
    SourceOffsetsUnknown,
    WriterResult,
)
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, read_ids
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


@pytest.mark.seam
async def test_bad_input_is_refused_with_the_way_out(place: Place) -> None:
    async with running(place.settings()), AsyncRegionDriver(options_of(place)) as driver:
        checkpoint = await driver.begin()
        with pytest.raises(NotOurs, match=r"give a pyarrow.Table or RecordBatch"):
            checkpoint.write("w0", [{"id": 1}])
        result = checkpoint.write("w0", pa.RecordBatchReader.from_batches(SCHEMA, rows(1).to_batches()))
        with pytest.raises(BadOption, match="Keep the place in the source elsewhere, and give its name"):
            await driver.complete(checkpoint, [result], source_offsets="x" * 70_000)
        with pytest.raises(BadOption, match="source_offsets must be JSON data"):
            await driver.complete(checkpoint, [result], source_offsets={"at": float("nan")})
        async with AsyncWriter(checkpoint, "w1") as writer:
            await writer.finish()
            with pytest.raises(HookError, match="Make another Writer, and write all rows again"):
                await writer.write(rows(2))
        await driver.complete(checkpoint, [result], source_offsets={"name": "elsewhere"})
        assert (await driver.await_commit(checkpoint)).source_offsets == {"name": "elsewhere"}
    for wrong in ("no json", "{}", '{"attempt": {}, "written": {}, "held": []}'):
        with pytest.raises(BadOption, match=r"this is no|this JSON lacks"):
            WriterResult.from_json(wrong)
    assert read_ids(place.table) == [1]


async def test_another_kind_of_driver_is_taken_over_only_on_demand(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        with pytest.raises(SourceOffsetsUnknown, match="start this one with take_over=True"):
            await AsyncRegionDriver(options_of(place)).start()
        await job.run_batch([2])
        await job.committed([1, 2])
        await job.close()
        async with AsyncRegionDriver(options_of(place), take_over=True) as driver:
            assert driver.committed is not None
            assert driver.committed.number == 1
            await driver.await_commit(await put(driver, 3))
    assert read_ids(place.table) == [1, 2, 3]
