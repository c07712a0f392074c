"""`sluicegate stream adopt`: what it refuses, each with its way out."""

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, commit_elsewhere, expire
from tests.integration.orders import invoke_here
from tests.integration.test_adopt import lose_topics
from tests.integration.test_replay import forget, publish, three_commits

pytestmark = pytest.mark.kafka
ADOPT = ("stream", "adopt", "--stream", "flights", "--from-table")


async def refused(place: Place, *more: str) -> str:
    result = await invoke_here(place, *ADOPT, *more)
    assert result.exit_code == 2, result.output
    return result.stderr


async def lost(place: Place, job: Job) -> None:
    """Make three commits, and lose all topics."""
    await three_commits(place, job)
    await lose_topics(place)


async def test_a_table_without_commits_has_nothing_to_adopt(place: Place) -> None:
    told = await refused(place)
    assert "no commit of its commit user, and the log has none, so nothing is to be adopted" in told
    assert "Start a coordinator, and the jobs with empty checkpoint locations" in told


async def test_topics_that_are_not_lost_are_left_alone(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        told = await refused(place)
        assert "up to decision 3, so it continues by itself. Start the coordinators" in told


async def test_the_events_topic_alone_is_lost(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        await lose_topics(place, place.topics.events)
        assert (await invoke_here(place, *ADOPT)).exit_code == 0
        assert "itself. Start the coordinators" in await refused(place)
        job.incarnation, job.base = "q2", job.previous
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])


async def test_an_expired_commit_is_put_back(place: Place) -> None:
    async with place.job() as job:
        await lost(place, job)
    newest = Path(place.table) / "snapshot" / "snapshot-3"
    commit_elsewhere(place.table, 9, "", user="another-writer")
    kept = newest.read_bytes()
    expire(place.table, keep=1)
    told = await refused(place)
    assert "its snapshot has expired. Put the snapshot back from a copy of the metadata" in told
    assert "continue as a new stream with its own commit_user, empty checkpoint locations" in told
    newest.write_bytes(kept)
    assert (await invoke_here(place, *ADOPT)).exit_code == 0


async def test_a_table_that_was_rolled_back_continues_from_the_commit_that_it_ends_with(
    place: Place,
) -> None:
    async with place.job() as job:
        await lost(place, job)
        forget(Path(place.table), 3)
        found = json.loads((await invoke_here(place, *ADOPT, "--json")).stdout)
        assert (found["decision"], found["positions"]["r1"]["checkpoint"]) == (2, 1)


async def test_positions_of_a_table_without_them_are_the_operators_statement(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        at = job.previous
        assert at is not None
        await lose_topics(place)
        statement = f"r1={at.incarnation}:{at.checkpoint}:{at.digest}"
        told = await refused(place, "--position", statement)
        assert "states its positions itself. Leave --position out" in told
        publish(place.table, 4, "made by an older release")
        told = await refused(place)
        assert "does not state the positions of the regions: it was made by an older release" in told
        assert "State them with --position, once for each region" in told
        for wrong in ("r1", "r1=a:b:c"):
            assert "does not have the form REGION=INCARNATION" in await refused(place, "--position", wrong)
        adopted = await invoke_here(place, *ADOPT, "--position", statement)
        assert adopted.exit_code == 0, adopted.output
        assert "continues after decision 4" in adopted.stdout
        job.incarnation, job.base, job.previous = "q2", at, at
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])


async def test_a_commit_of_another_stream_or_product_is_not_adopted(place: Place) -> None:
    async with place.job() as job:
        await lost(place, job)
    commit_elsewhere(place.table, 9, "")
    told = await refused(place)
    assert "another product has committed to the table as the commit user sluicegate-flights" in told
    assert "Continue as a new stream with its own commit_user" in told
