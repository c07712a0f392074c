"""A region is set back to its committed checkpoint, and its query goes on from there, as a new lineage."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.cli.commands import known_record
from sluicegate.cli.rewind import carry_out
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
STEPS = ("generation", "opening", "location", "finish")


class Stopped(Exception):
    """The command died here."""


def rewinding(job: SparkJob) -> tuple[str, ...]:
    where = ("--stream", "flights", "--region", job.region, "--checkpoint-location", str(job.checkpoint))
    return ("rewind", *where, "--silence", "10ms", "--reason", "its files were lost")


async def contradict(place: Place, job: SparkJob, checkpoint: int) -> None:
    """Complete a checkpoint once more, for another source range."""
    async with place.job(lineage=job.lineage(), region=job.region) as driver:
        body = CheckpointCompleted(events=(), predecessor=checkpoint - 1, source_digest="another range")
        await driver.say(EventType.CHECKPOINT_COMPLETED, body, checkpoint=checkpoint)


@asynccontextmanager
async def stuck(place: Place, job: SparkJob) -> AsyncIterator[None]:
    """Batches 0 and 1 are committed; 2 and 3 are finished for Spark, and held by a fault."""
    async with running(place.settings()):
        job.feed([1, 2], [3])
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 3])
    # The coordinator is away: these wait in the log.
    job.feed([4], [5])
    await job.run()
    await contradict(place, job, 3)
    async with running(place.settings()), place.job() as ear:
        await until(lambda: stalls(ear), lambda reasons: any("rewind the region" in each for each in reasons))
        yield


async def test_what_was_not_committed_is_read_again(place: Place, spark: SparkThread) -> None:
    job = SparkJob(spark, place)
    async with stuck(place, job):
        said = await sluicegate(place, *rewinding(job))
        assert "region r1 is set back to checkpoint 1; 2 batches beyond it are in" in said
        assert job.names("offsets") == job.names("commits") == ["0", "1"]
        backup = job.checkpoint / "sluicegate" / "rewound-1"
        moved = job.names("sluicegate/rewound-1/offsets"), job.names("sluicegate/rewound-1/commits")
        assert moved == (["2", "3"], ["2", "3"])
        assert json.loads((backup / "reason.json").read_text())["reason"] == "its files were lost"
        assert read_ids(place.table) == [1, 2, 3]
        assert "already; start the query" in await sluicegate(place, *rewinding(job))

        job.feed([6])
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 3, 4, 5, 6])
        shown = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]["regions"]["r1"]
        assert (shown["lineage"], shown["reason"]) == (job.lineage(1), None)


@pytest.mark.parametrize("step", STEPS)
async def test_a_command_that_died_is_repeated(place: Place, spark: SparkThread, step: str) -> None:
    job = SparkJob(spark, place)
    settings = place.settings()

    def die(done: str) -> None:
        if done == step:
            raise Stopped

    async with stuck(place, job):
        record = await known_record(settings, "flights")
        with pytest.raises(Stopped):
            await asyncio.to_thread(
                carry_out, settings, record, "r1", str(job.checkpoint), ("a test", 20.0), die
            )
        job.feed([6])
        if step != "finish":
            with pytest.raises(StreamingQueryException, match="is being set back"):
                await job.run()
        await sluicegate(place, *rewinding(job))
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 3, 4, 5, 6])
        marker = json.loads((job.checkpoint / "sluicegate" / "lineage.json").read_text())
        assert (marker["generation"], marker["rewinding"]) == (1, False)
        assert job.names("sluicegate/rewound-1/offsets")[:2] == ["2", "3"]


async def test_a_query_that_lives_or_has_nothing_committed_is_left_alone(
    place: Place, spark: SparkThread
) -> None:
    job = SparkJob(spark, place, options={"regions": "r1,r2", "assignment": "1"})
    async with running(place.settings()):
        job.feed([1])
        await job.run()
        marker = (job.checkpoint / "sluicegate" / "lineage.json").read_bytes()
        alive = await invoke(place, *rewinding(job)[:-4])
        assert alive.exit_code == 2
        assert re.search(r"was alive \d+ s ago .* stop it, wait 15 s, and repeat", alive.stderr)
        nothing = await invoke(place, *rewinding(job))
        assert nothing.exit_code == 2
        assert "sluicegate accept --stream flights --region r1" in nothing.stderr
        assert (job.checkpoint / "sluicegate" / "lineage.json").read_bytes() == marker


async def test_the_location_of_another_region_is_not_to_be_deleted(place: Place, spark: SparkThread) -> None:
    job = SparkJob(spark, place, options={"regions": "r1,r2", "assignment": "1"})
    async with running(place.settings()):
        job.feed([1])
        await job.run()
        where = ("--checkpoint-location", str(job.checkpoint), "--silence", "10ms")
        wrong = await invoke(place, "rewind", "--stream", "flights", "--region", "r2", *where)
        assert wrong.exit_code == 2
        assert "is the checkpoint location of a query of region r1" in wrong.stderr
        assert "Delete the checkpoint location" not in wrong.stderr


async def test_another_location_is_told_apart(place: Place, spark: SparkThread, tmp_path: Path) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1])
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1])
        job.checkpoint.rename(tmp_path / "away")
        other = await invoke(place, *rewinding(job))
        assert (other.exit_code, "is no checkpoint location" in other.stderr) == (2, True), other.stderr


async def test_a_command_that_no_coordinator_answers_is_repeated(place: Place, spark: SparkThread) -> None:
    job = SparkJob(spark, place)
    async with running(place.settings()):
        job.feed([1], [2])
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2])
    job.feed([3])
    await job.run()
    nobody = await invoke(place, *rewinding(job), "--timeout", "1s")
    assert nobody.exit_code == 2
    assert "see that one runs (/readyz), and repeat the command" in nobody.stderr
    async with running(place.settings()):
        assert "is set back to checkpoint 1; 1 batches" in await sluicegate(place, *rewinding(job))
        await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 3])
