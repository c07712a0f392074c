"""A stream is cut into other regions at a restart: real queries, the table exact, nothing twice."""

import json
from contextlib import suppress
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


async def _status(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
    return found


async def test_two_regions_become_three(place: Place, spark: SparkThread) -> None:
    two = {"regions": "r1,r2", "assignment": "1", "bounded": "true"}
    old = [SparkJob(spark, place, region=name, options=two) for name in ("r1", "r2")]
    async with running(place.settings()):
        old[0].feed([1], [2])
        old[1].feed([11], [12], [13])
        for job in old:
            await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 11, 12, 13])

        three = {
            "regions": "a,b,c",
            "assignment": "2",
            "bounded": "true",
            "parents.from": ",".join(str(job.checkpoint) for job in old),
        }
        new = [
            SparkJob(spark, place, region=name, folder=f"new-{name}", options=three)
            for name in ("a", "b", "c")
        ]
        for number, job in enumerate(new):
            job.feed([100 + number], [110 + number])
        await new[0].run()
        await new[1].run()
        shown = await until(lambda: _status(place), lambda shown: shown["next_assignment"] is not None)
        assert (shown["assignment"], shown["next_assignment"]["number"]) == (1, 2)
        assert read_ids(place.table) == [1, 2, 11, 12, 13]

        await new[2].run()
        everything = [1, 2, 11, 12, 13, 100, 101, 102, 110, 111, 112]
        await until(lambda: read_ids(place.table), lambda ids: ids == everything)
        shown = await until(lambda: _status(place), lambda shown: shown["next_assignment"] is None)
        assert shown["assignment"] == 2
        assert shown["regions"]["r2"]["state"] == "closed"
        # What the old queries say now is of an assignment that is gone.
        old[1].feed([14])
        # Whether its only batch ends before the refusal is read is a matter of time; the table is not.
        with suppress(StreamingQueryException):
            await old[1].run()
        await sluicegate(place, "savepoint", "--stream", "flights")
        assert read_ids(place.table) == everything


async def test_two_regions_become_one(place: Place, spark: SparkThread) -> None:
    two = {"regions": "r1,r2", "assignment": "1", "bounded": "true"}
    old = [SparkJob(spark, place, region=name, options=two) for name in ("r1", "r2")]
    async with running(place.settings()):
        for number, job in enumerate(old):
            job.feed([1 + number], [11 + number])
            await job.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 11, 12])
        shown = await _status(place)
        lineages = {name: region["lineage"] for name, region in shown["regions"].items()}
        parents = ",".join(f"{name}:{lineage}:1" for name, lineage in sorted(lineages.items()))
        options = {"assignment": "2", "bounded": "true", "parents": parents}
        merged = SparkJob(spark, place, region="all", options=options)
        merged.feed([21], [22])
        await merged.run()
        await until(lambda: read_ids(place.table), lambda ids: ids == [1, 2, 11, 12, 21, 22])
        shown = await until(lambda: _status(place), lambda shown: shown["assignment"] == 2)
        assert {name: region["state"] for name, region in shown["regions"].items()}["r1"] == "closed"
