"""Orders of an operator, obeyed by the service, and their effects as the command line shows them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sluicegate.events.models import StreamCommand
from sluicegate.events.notifications import Stalled
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Checked, CommitRequest, Publication, Refused
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_events, read_ids
from tests.integration.orders import invoke, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
REGIONS = ("r1", "r2")
STREAM = ("--stream", "flights")


@asynccontextmanager
async def two_regions(place: Place) -> AsyncIterator[tuple[Job, Job]]:
    """Run a service, and a job of two regions with a first commit."""
    first = place.job(regions=REGIONS)
    second = place.job(regions=REGIONS, region="r2", incarnation="p1")
    async with running(place.settings()), first, second:
        await asyncio.gather(first.register(), second.register())
        await asyncio.gather(first.run_batch([1]), second.run_batch([2]))
        await first.committed([1, 2])
        yield first, second


async def stalls(job: Job) -> list[Problem]:
    """Return the stalls that were announced."""
    bodies = [each.body for each in await job.notifications()]
    return [body.problem for body in bodies if isinstance(body, Stalled) and not body.ended]


async def orders(place: Place) -> list[StreamCommand]:
    """Return the orders in the log."""
    found = await read_events(place.bootstrap, place.topics.events)
    return [each.body for each in found if isinstance(each.body, StreamCommand)]


@pytest.mark.seam
async def test_a_savepoint_is_one_full_commit_of_all_that_is_completed(place: Place) -> None:
    async with two_regions(place) as (first, second):
        await first.run_batch([3])
        order = ("stream", "savepoint", *STREAM, "--name", "before-upgrade", "--json")
        command = asyncio.create_task(sluicegate(place, *order))
        # Of a region with nothing completed, the savepoint includes the next checkpoint.
        await until(lambda: orders(place), by=command)
        await second.run_batch([4])
        shown = json.loads(await command)
        assert (shown["effective"], shown["order"]["name"]) == (True, "before-upgrade")
        assert {name: at["checkpoint"] for name, at in shown["cut"].items()} == {"r1": 1, "r2": 1}
        assert read_ids(place.table) == [1, 2, 3, 4]


@pytest.mark.seam
async def test_a_decision_that_the_table_never_takes_is_reverted(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        rows = sum(event.rows for event in request.files if isinstance(event, Checked))
        return Refused("three rows are one too many") if rows == 3 else publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", refusing)
    async with two_regions(place) as (first, second):
        await asyncio.gather(first.run_batch([3]), second.run_batch([4, 5]))
        await until(
            lambda: stalls(first), lambda seen: any(each.code is Code.COMMIT_REFUSED for each in seen)
        )
        order = ("commit", "revert", *STREAM, "--decision", "2", "--region", "r2")
        reset = "With Spark, stop the query, run sluicegate region reset --stream flights --region r2"
        assert reset in await sluicegate(place, *order)
        assert read_ids(place.table) == [1, 2]
        assert (await second.begin("p2")).accepted
        await second.run_batch([6])
        await first.committed([1, 2, 3, 6])
        result = await invoke(place, *order)
        assert (result.exit_code, "only a decision without an outcome" in result.output) == (2, True)
