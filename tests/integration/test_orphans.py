"""Orphans: what is deletable by log and table, who may not lose a file by it, and the janitor."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sluicegate.coordinator.replay.orphans import Deletable, Search
from sluicegate.coordinator.replay.tables import connect
from sluicegate.events.models import FilesWritten
from sluicegate.events.notifications import Committed
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import CommitRequest
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.orders import invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

LIST = ("orphans", "list", "--stream", "flights", "--json")
DELETE = ("orphans", "delete", "--stream", "flights", "--json")
AT_ONCE = ("--grace", "1ms")


async def printed(place: Place, *arguments: str) -> dict[str, Any]:
    """Return what a command printed that succeeded."""
    result = await invoke_here(place, *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def path_of(files: FilesWritten) -> str:
    return files.files[0].path


async def announced(job: Job) -> None:
    """Wait until the newest checkpoint is announced as committed: then the log has the outcome."""

    def newest(body: object) -> bool:
        return isinstance(body, Committed) and body.cut.get(job.region) == job.previous

    await until(job.notifications, lambda seen: any(newest(each.body) for each in seen))


async def commit_with_loser(job: Job, *ids: int) -> str:
    """Commit a batch of which another attempt was written too; returns that one's path."""
    loser = job.write_files([100 + ids[-1]])
    await job.written(loser)
    await job.complete(await job.written(job.write_files(ids)))
    await announced(job)
    return path_of(loser)


@asynccontextmanager
async def searching(place: Place) -> AsyncIterator[Search]:
    """Connect a search for all orphans that are older than a millisecond."""
    async with connect(place.settings(), "flights") as found:
        yield Search("flights", found.log, found.start, found.tables(None), 1)


async def test_losers_and_discarded_work_are_listed_and_deleted(place: Place) -> None:
    table = Path(place.table)
    async with place.job() as job:
        job.incarnation = first = f"first-{uuid4().hex}"
        async with running(place.settings()):
            await job.register()
            loser = await commit_with_loser(job, 1)
            discarded, unnamed = job.write_files([201]), job.write_files([202])
            await job.written(discarded)
            assert (await job.begin(f"next-{uuid4().hex}")).accepted
            await job.commit([2], [1, 2])
            pending = job.write_files([203])
            await job.written(pending)
            # A batch of the live incarnation, of which no event names a file yet.
            running_batch = job.write_files([204])
            await announced(job)
        found = await printed(place, *LIST)
        assert (found["files"], found["younger"]) == ([], 2)
        found = await printed(place, *LIST, *AT_ONCE)
        reasons = {each["path"]: each["reason"] for each in found["files"]}
        assert reasons == {
            loser: "decision 1 committed checkpoint 0 of region r1 without it",
            path_of(discarded): f"incarnation {first} of region r1 has ended",
        }
        done = await printed(place, *DELETE, *AT_ONCE)
        assert {each["status"] for each in done["files"]} == {"deleted"}
        # No event names it, and its incarnation has ended.
        assert [each["path"] for each in done["unnamed"] if each["deletable"]] == [path_of(unnamed)]
        there = [loser, path_of(discarded), path_of(unnamed), path_of(pending), path_of(running_batch)]
        assert [(table / path).exists() for path in there] == [False, False, False, True, True]
        assert read_ids(place.table) == [1, 2]
        found = await printed(place, *LIST, *AT_ONCE)
        assert (found["files"], found["gone"]) == ([], 2)
        assert [(each["path"], each["since"]) for each in found["unnamed"]] == [
            (path_of(running_batch), None)
        ]


async def test_what_happens_between_the_look_and_the_deletion_counts(place: Place) -> None:
    """Named again, cleaned away by somebody, committed by somebody; only the last one is deleted here."""
    table = Path(place.table)
    async with place.job() as job, running(place.settings()):
        await job.register()
        first = [job.write_files([number]) for number in (101, 102, 103, 104)]
        for files in first:
            await job.written(files)
        named, cleaned, taken, orphan = first
        await job.complete(await job.written(job.write_files([1])))
        await announced(job)
        now = time.time_ns() // 1_000_000 + 1
        async with searching(place) as search:
            found = await until(lambda: search.find(now), lambda seen: len(seen.files) == 4)
            await job.written(named)
            os.unlink(table / path_of(cleaned))
            other = ADAPTER.open_committer(ADAPTER.parse_table(place.table), "another-product")
            other.publish(CommitRequest(1, "x", other.inspect().head, None, [taken]))
            statuses = {file.path: status async for file, status in search.delete(found.files, now)}
        assert statuses == {
            path_of(named): FileStatus.REFERENCED,
            path_of(cleaned): FileStatus.GONE,
            path_of(taken): FileStatus.REFERENCED,
            path_of(orphan): FileStatus.DELETED,
        }
        assert (table / path_of(named)).exists()
        assert read_ids(place.table) == [1, 103]


async def test_a_winner_whose_upload_comes_while_the_janitor_looks_is_no_orphan(place: Place) -> None:
    async with place.job() as job, running(place.settings()):
        await job.register()
        loser = await commit_with_loser(job, 1)
        late, other = job.write_files([2]), job.write_files([102])
        await job.written(other)
        now = time.time_ns() // 1_000_000 + 1

        def paths(files: list[Deletable]) -> list[str]:
            return [file.path for file in files]

        async with searching(place) as search:
            found = await until(lambda: search.find(now), lambda seen: bool(seen.files))
            assert paths(found.files) == [loser]
            # Its completion names an attempt that was just looked at, and the other attempt loses by it.
            await job.complete(await job.written(late))
            await job.committed([1, 2])
            assert {file.path: status async for file, status in search.delete(found.files, now)} == {
                loser: FileStatus.DELETED
            }
        assert (Path(place.table) / path_of(other)).exists()
        assert read_ids(place.table) == [1, 2]
