"""Plain Python drivers whose callers are careless or unlucky: rows are exact, or the call is refused."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.failpoints import points
from sluicegate.writer_hooks import (
    AsyncRegionDriver,
    AsyncWriter,
    CommittedCheckpoint,
    EventTooLarge,
    HookError,
    OpenCheckpoint,
    PublishFailed,
)
from sluicegate.writer_hooks.publisher import publish_completion
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, read_ids
from tests.integration.test_python_driver import options_of, put, rows
from tests.integration.waiting import BACKSTOP, until

pytestmark = pytest.mark.kafka


async def test_a_cancelled_write_gives_the_attempt_up(place: Place) -> None:
    begun, released = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(1).to_batches()
        begun.set()
        released.wait(BACKSTOP)
        yield from rows(2).to_batches()

    async with running(place.settings()), AsyncRegionDriver(options_of(place)) as driver:
        checkpoint = await driver.begin()
        async with AsyncWriter(checkpoint, "w0") as writer:
            writing = asyncio.create_task(writer.write(pa.RecordBatchReader.from_batches(SCHEMA, slow())))
            await asyncio.to_thread(begun.wait, BACKSTOP)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            released.set()
            with pytest.raises(HookError, match="Make another Writer, and write all rows again"):
                await writer.finish()
        await put_first(driver, checkpoint)
    assert read_ids(place.table) == [1, 2]


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


async def test_a_commit_whose_notification_is_lost_is_learned_from_the_coordinator(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.writer_hooks.incarnation.FIRST_QUESTION", 0.0)
    monkeypatch.setattr("sluicegate.writer_hooks.incarnation.QUESTIONS", 0.5)
    seen: list[CommittedCheckpoint] = []
    async with (
        running(place.settings()),
        AsyncRegionDriver(options_of(place), on_commit=seen.append) as driver,
    ):
        driver._driver._feed.stop()
        checkpoint = await put(driver, 1)
        found = await driver.await_commit(checkpoint)
        assert (found.number, found.source_offsets) == (checkpoint.number, {"ids": 1})
        assert seen == [found]


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


async def test_a_forked_process_leaves_the_driver_alone(place: Place) -> None:
    async with running(place.settings()):
        command = (sys.executable, "-m", "tests.integration.forking_driver", json.dumps(options_of(place)))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert (process.returncode, "was started in another process" in said.decode()) == (0, True), said
    assert read_ids(place.table) == [1]
