"""A stream is cut into other regions by its next assignment: real queries, the table exact, nothing twice."""

import json
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
STREAM = ("--stream", "flights")


async def _status(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
    return found


def _offsets(shown: dict[str, Any]) -> dict[str, Any]:
    """The source offsets where the regions' next queries begin."""
    return {name: json.loads(region["source_offsets"]) for name, region in shown["regions"].items()}


async def test_two_regions_become_three(place: Place, spark: SparkThread) -> None:
    """One goes on in its location, one in an empty location, one is new."""
    two = {"regions": "r1,r2", "assignment": "1", "bounded": "true"}
    old = [SparkJob(spark, place, region=name, options=two) for name in ("r1", "r2")]
    async with running(place.settings()):
        old[0].feed([1], [2])
        old[1].feed([11], [12], [13])
        for job in old:
            await job.run()
        shown = await until(lambda: _status(place), lambda shown: shown["next_assignment_after"] is not None)
        assert read_ids(place.table) == [1, 2, 11, 12, 13]
        assert _offsets(shown) == {"r1": {"0": {"logOffset": 1}}, "r2": {"0": {"logOffset": 2}}}

        after = str(shown["next_assignment_after"])
        three = {**two, "regions": "r1,r2,r3", "assignment": "2", "assignment.after": after}
        new = [old[0], *(SparkJob(spark, place, name, f"new-{name}", three) for name in ("r2", "r3"))]
        new[0].options = three
        # The folders of the new sources have nothing that the old queries have read.
        for number, job in enumerate(new):
            job.feed([100 + number], [110 + number])
        await new[0].run()
        await new[1].run()
        shown = await until(lambda: _status(place), lambda shown: shown["assignment"]["number"] == 2)
        assert (shown["assignment"]["after"], shown["assignment"]["provisional"]) == (int(after), True)
        assert read_ids(place.table) == [1, 2, 11, 12, 13], "the first cut of an assignment is a full one"

        await new[2].run()
        everything = [1, 2, 11, 12, 13, 100, 101, 102, 110, 111, 112]
        await until(lambda: read_ids(place.table), lambda ids: ids == everything)
        shown = await until(lambda: _status(place), lambda shown: not shown["assignment"]["provisional"])
        assert set(shown["regions"]) == {"r1", "r2", "r3"}
        # The location that was not kept is of an assignment that is gone.
        old[1].feed([14])
        with pytest.raises(StreamingQueryException, match="assignment-older"):
            await old[1].run()
        await sluicegate(place, "stream", "savepoint", *STREAM)
        assert read_ids(place.table) == everything
