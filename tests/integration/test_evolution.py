"""Columns that are added while a real service commits: by a Spark query, and during a publication."""

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, when

from tests.faults.tables import FORMATS
from tests.integration.conftest import LAKES, Place, place_of
from tests.integration.coordinator import running
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

_OPTIONS = {"assignment": "1", "regions": "r1,r2"}
_EVOLVES = _OPTIONS | {"evolve": "add-columns"}
_FILES = 4


@pytest.fixture(params=LAKES)
async def place(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and a partitioned table of a format."""
    return await place_of(str(request.param), kafka_bootstrap, unique, tmp_path)


def noted(job: SparkJob) -> DataFrame:
    """Return a query's rows with one more column; a batch is several tasks, each in a process of its own."""
    reader = job.spark.session.readStream.schema(f"{job.columns}, note string")
    return reader.option("maxFilesPerTrigger", _FILES).json(str(job.source))


async def committed(place: Place, column: str, expected: dict[int, str | None]) -> None:
    """Wait until the table has exactly these rows: values of a column by id."""

    def read() -> list[tuple[int, str | None]]:
        return sorted((row["id"], row.get(column)) for row in FORMATS[place.lake].rows(Path(place.table)))

    await until(lambda: asyncio.to_thread(read), lambda found: found == sorted(expected.items()))


async def refusal(job: SparkJob, rows: DataFrame) -> str:
    """Run a query that fails; return its error."""
    with pytest.raises(StreamingQueryException) as failed:
        await job.run(rows)
    return str(failed.value)


def schemas(place: Place) -> int:
    return FORMATS[place.lake].schemas(Path(place.table))


def data_files(place: Place) -> int:
    found = Path(place.table).rglob("*.parquet")
    return sum("_delta_log" not in path.parts for path in found)


@pytest.mark.seam
@pytest.mark.spark
async def test_rows_with_a_new_column_change_the_table_once_and_only_with_leave(
    place: Place, spark: SparkThread
) -> None:
    settings = place.settings(options={"partial": "allow", "alignment_timeout": "1h"})
    job, other = (SparkJob(spark, place, region, options=dict(_OPTIONS)) for region in ("r1", "r2"))
    async with running(settings):
        job.feed([0])
        other.feed([1])
        await asyncio.gather(job.run(), other.run())
        notes: dict[int, str | None] = {0: None, 1: None}
        await committed(place, "note", notes)

        new = range(2, 2 + _FILES)
        job.feed(*([number] for number in new), note="n")
        rows = await spark.call(lambda: noted(job))
        assert "the table has no column note" in await refusal(job, rows)
        assert (schemas(place), data_files(place)) == (1, 2)

        job.options |= _EVOLVES
        await job.run(rows)
        notes |= dict.fromkeys(new, "n")
        await committed(place, "note", notes)
        assert schemas(place) == 2

        # The other query does not have the column.
        other.feed([10])
        await other.run()
        notes |= {10: None}
        await committed(place, "note", notes)

        job.feed([11], note="m")
        constant = rows.withColumn("kind", lit("k"))
        assert "the new column kind is not nullable" in await refusal(job, constant)
        assert schemas(place) == 2
        await job.run(rows.withColumn("kind", when(col("id").isNotNull(), lit("k"))))
        await committed(place, "kind", dict.fromkeys(notes, None) | {11: "k"})
        await committed(place, "note", notes | {11: "m"})
        assert schemas(place) == 3
