"""Orders of an operator, obeyed by the service, and their outcomes as the command line tells them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import Parent, RegionHeartbeat
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, Publication, Refused
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.letters import stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
REGIONS = ("r1", "r2")


@asynccontextmanager
async def two_regions(place: Place) -> AsyncIterator[tuple[Job, Job]]:
    """A service, and a job of two regions with a first commit."""
    first = place.job(regions=REGIONS)
    second = place.job(regions=REGIONS, region="r2", lineage="q2.0")
    async with running(place.settings()), first, second:
        await asyncio.gather(first.open(), second.open())
        await asyncio.gather(first.run_batch([1]), second.run_batch([2]))
        await first.committed([1, 2])
        yield first, second


async def test_a_paused_stream_commits_what_has_piled_up_when_it_is_resumed(place: Place) -> None:
    async with two_regions(place) as (first, second):
        await sluicegate(place, "pause", "--stream", "flights")
        assert "sluicegate resume --stream flights" in (await until(lambda: stalls(first)))[-1]
        await asyncio.gather(first.run_batch([3]), second.run_batch([4]))
        result = await invoke(place, "savepoint", "--stream", "flights")
        assert (result.exit_code, "an operator paused the stream" in result.output) == (2, True)
        assert read_ids(place.table) == [1, 2]
        said = await sluicegate(place, "status")
        assert ("PAUSED: an operator paused the stream" in said, "STALLED" in said) == (True, False), said
        await sluicegate(place, "resume", "--stream", "flights")
        await first.committed([1, 2, 3, 4])


async def test_commits_do_not_wait_for_a_removed_region(place: Place) -> None:
    async with two_regions(place) as (first, _):
        await first.run_batch([3])
        await sluicegate(place, "remove", "--stream", "flights", "--region", "r2")
        await first.committed([1, 2, 3])


async def test_a_savepoint_is_one_full_commit_of_all_that_is_completed(place: Place) -> None:
    async with two_regions(place) as (first, second):
        await first.run_batch([3])
        await second.run_batch([4])
        order = ("savepoint", "--stream", "flights", "--name", "before-upgrade")
        shown = json.loads(await sluicegate(place, *order, "--json"))
        assert (shown["outcome"], shown["name"], shown["drained"]) == ("taken", "before-upgrade", False)
        assert {name: at["checkpoint"] for name, at in shown["cut"].items()} == {"r1": 1, "r2": 1}
        assert read_ids(place.table) == [1, 2, 3, 4]
        assert "commit 2, snapshot 2" in await sluicegate(place, *order)


async def test_a_drain_commits_what_waits_for_another_region_and_ends_the_stream(place: Place) -> None:
    async with two_regions(place) as (first, _):
        await first.run_batch([3])
        said = await invoke(place, "drain", "--stream", "flights", "--name", "end")
        assert (said.exit_code, "drained with the savepoint end" in said.stdout) == (0, True), said.output
        for region in REGIONS:
            assert f"WARNING: region {region} gave a sign of life" in said.stderr
        assert read_ids(place.table) == [1, 2, 3]
        shown = json.loads(await sluicegate(place, "status", "--json"))
        assert {region["state"] for region in shown["streams"][0]["regions"].values()} == {"closed"}
        assert shown["coordinators"] == 1
        assert "no coordinator" not in await sluicegate(place, "status")
        # Its query runs on, as the warning said; it is stopped, and the order repeated.
        assert "stop it, and repeat: sluicegate drain --stream flights" in said.stderr
        await first.run_batch([4])
        await sluicegate(place, "drain", "--stream", "flights")
        assert read_ids(place.table) == [1, 2, 3, 4]
        shown = json.loads(await sluicegate(place, "status", "--json"))
        assert {region["state"] for region in shown["streams"][0]["regions"].values()} == {"closed"}


async def test_a_savepoint_over_files_that_do_not_come_waits_and_says_so(place: Place) -> None:
    async with two_regions(place) as (first, second):
        await first.run_batch([3])
        await second.complete("an-event-that-never-comes")
        order = ("savepoint", "--stream", "flights", "--timeout", "500ms")
        result = await invoke(place, *order)
        assert (result.exit_code, "It waits for: " in result.stderr) == (1, True), result.output
        assert read_ids(place.table) == [1, 2]


async def test_a_decision_that_the_table_never_takes_is_voided(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        rows = sum(file.rows for event in request.files for file in event.files)
        return Refused("three rows are one too many") if rows == 3 else publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", refusing)
    async with two_regions(place) as (first, second):
        await asyncio.gather(first.run_batch([3]), second.run_batch([4, 5]))
        assert "sluicegate void" in (await until(lambda: stalls(first)))[-1]
        order = ("void", "--stream", "flights", "--decision", "2", "--region", "r2", "--checkpoint", "1")
        shown = json.loads(await sluicegate(place, *order, "--json"))
        assert (shown["outcome"], shown["decision"], shown["region"]) == ("voided", 2, "r2")
        assert read_ids(place.table) == [1, 2]
        again = place.job(regions=REGIONS, region="r2", lineage="q2.1", batch=1)
        async with again:
            assert (await again.open(Parent(region="r2", lineage="q2.0", checkpoint=0))).accepted
            await again.run_batch([6])
            await first.committed([1, 2, 3, 6])
            result = await invoke(place, *order)
            assert (result.exit_code, "has its outcome already" in result.output) == (2, True)
            await asyncio.gather(first.run_batch([7, 8]), again.run_batch([9]))
            await until(lambda: stalls(first), lambda seen: any("decision 4" in reason for reason in seen))
            order = ("void", "--stream", "flights", "--decision", "4", "--region", "r1", "--checkpoint", "2")
            said = await sluicegate(place, *order)
            assert "Go on with: sluicegate rewind --stream flights --region r1" in said
            async with place.job(regions=REGIONS, lineage="q1.1", batch=2) as anew:
                assert (await anew.open(Parent(region="r1", lineage="q1.0", checkpoint=1))).accepted
                await anew.run_batch([7])
                await first.committed([1, 2, 3, 6, 7, 9])


async def test_a_rewind_waits_for_as_long_as_the_query_may_be_silent(place: Place) -> None:
    where = ("--region", "r1", "--checkpoint-location", str(place.root / "nowhere"))
    async with place.job() as job, running(place.settings()):
        await job.open()
        await job.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(interval=60_000))
        await job.run_batch([1])
        await job.committed([1])
        refused = await until(
            lambda: invoke(place, "rewind", "--stream", "flights", *where),
            lambda said: "wait 180 s, and repeat" in said.stderr,
        )
        assert (refused.exit_code, "was alive" in refused.stderr) == (2, True)
        given = await invoke(place, "rewind", "--stream", "flights", *where, "--silence", "10ms")
        assert "was alive" not in given.stderr
