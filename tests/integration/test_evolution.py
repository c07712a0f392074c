"""Columns that are added while a real service commits: by a Spark query, and right before a publication."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, when

from sluicegate.events.causes import CauseCode
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, NotPublished, Publication, Published
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

_OPTIONS = {"assignment": "1", "regions": "r1,r2"}
_EVOLVES = _OPTIONS | {"evolve": "add-columns"}
_FILES = 4


def noted(job: SparkJob) -> DataFrame:
    """Return a query's rows with one more column; a batch is several tasks, each in a process of its own."""
    reader = job.spark.session.readStream.schema("id long, origin string, at timestamp_ntz, note string")
    return reader.option("maxFilesPerTrigger", _FILES).json(str(job.source))


def read(location: str) -> list[dict[str, Any]]:
    path = Path(location)
    catalog = CatalogFactory.create({"warehouse": str(path.parents[1])})
    builder = catalog.get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}").new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


async def committed(place: Place, column: str, values: list[str | None]) -> None:
    def of_rows() -> list[str | None]:
        return [row.get(column) for row in read(place.table)]

    await until(lambda: asyncio.to_thread(of_rows), lambda found: found == values)


async def refusal(job: SparkJob, rows: DataFrame) -> str:
    """Run a query that fails; return its error."""
    with pytest.raises(StreamingQueryException) as failed:
        await job.run(rows)
    return str(failed.value)


def schemas(place: Place) -> int:
    return len(list((Path(place.table) / "schema").glob("schema-*")))


def data_files(place: Place) -> int:
    return len(list((Path(place.table) / "bucket-0").iterdir()))


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
        await committed(place, "note", [None, None])

        job.feed(*([number] for number in range(2, 2 + _FILES)), note="n")
        rows = await spark.call(lambda: noted(job))
        assert "the table has no column note" in await refusal(job, rows)
        assert (schemas(place), data_files(place)) == (1, 2)

        job.options |= _EVOLVES
        await job.run(rows)
        await committed(place, "note", [None, None, *["n"] * _FILES])
        assert schemas(place) == 2

        # The other query does not have the column.
        other.feed([10])
        await other.run()
        await committed(place, "note", [None, None, *["n"] * _FILES, None])

        job.feed([11], note="m")
        constant = rows.withColumn("kind", lit("k"))
        assert "the new column kind is not nullable" in await refusal(job, constant)
        assert schemas(place) == 2
        await job.run(rows.withColumn("kind", when(col("id").isNotNull(), lit("k"))))
        await committed(place, "kind", [None] * (_FILES + 3) + ["k"])
        assert schemas(place) == 3


async def test_files_are_checked_again_after_a_change_right_before_their_publication(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, outcomes = PaimonCommitter.publish, list[Publication]()
    wider = SCHEMA.append(pa.field("note", pa.string()))

    def late(self: PaimonCommitter, request: CommitRequest) -> Publication:
        evolve(ADAPTER, ADAPTER.parse_table(place.table), wider)
        outcomes.append(real(self, request))
        return outcomes[-1]

    async with running(place.settings()), place.job() as job:
        await job.register()
        monkeypatch.setattr(PaimonCommitter, "publish", late)
        await job.run_batch([1], [2])
        await job.committed([1, 2])
        await job.run_batch([3])
        await job.committed([1, 2, 3])
    first, *others = outcomes
    assert isinstance(first, NotPublished)
    assert first.cause is not None
    assert first.cause.code is CauseCode.CHECKS_OUTDATED
    assert others
    assert all(isinstance(each, Published) for each in others)
    assert schemas(place) == 2
    assert [row["note"] for row in read(place.table)] == [None, None, None]
