"""Batches of Spark for tables with keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sluicegate.lakes.sequence import STEP, Keys
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.spark.foreach import _by_bucket
from tests.contracts.lakes.harness import Stream
from tests.hooks.conftest import Job
from tests.hooks.foreach import run
from tests.hooks.options import OPTIONS
from tests.lakes.paimon.keyed import KeyedLake

pytestmark = pytest.mark.spark
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string()), ("at", pa.int64())])
ROWS = "id % 7 AS id", "concat('v', id) AS value", "id AS at"
"""Columns of the rows of a query: later rows of a file have higher values."""


def keyed(folder: Path, **options: str) -> KeyedLake:
    return KeyedLake(folder, {"bucket": "3", **options}, COLUMNS, kinds=None)


def test_the_rows_of_a_bucket_are_in_one_task_in_the_order_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = keyed(tmp_path)
    options = SinkOptions.parse(OPTIONS | {"table": lake.location}, located=False)
    # A type that the table widens, which would have another hash.
    rows = spark.range(0, 3000, 1, 4).selectExpr("cast(id % 40 AS int) AS id", "id AS at")

    def listed(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        for batch in batches:
            tasks = pa.array([TaskContext.get().partitionId()] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([tasks, *batch.columns], names=["task", "id", "at"])

    moved, parts = _by_bucket(options, rows, Keys(3, is_ordered=False))
    found = moved.mapInArrow(listed, "task long, id int, at long").collect()
    assert moved.columns == ["id", "at"]
    assert parts == 2 >= len({row.task for row in found}) > 1
    assert sorted(row.at for row in found) == list(range(3000))
    ids = pa.array([row.id for row in found], pa.int64())
    buckets = lake.adapter.buckets_of(lake.ref)(pa.record_batch({"id": ids})).to_pylist()
    owners = {*zip(buckets, (row.task for row in found), strict=True)}
    assert len(owners) == len({*buckets}) == 3
    for task in range(parts):
        of_task = [row.at for row in found if row.task == task]
        assert of_task == sorted(of_task)


@pytest.fixture
def committed(job: Job) -> Any:
    """Return a function that commits the batches from one on, and returns the rows of a table."""
    decisions = iter(range(1, 100))

    def commit(lake: KeyedLake, *batches: int) -> dict[Any, Any]:
        job.log.wait_completed(batches[-1])
        stream = Stream(lake)
        for batch in batches:
            stream.add(next(decisions), *job.log.named_files()[batch])
        return lake.state()

    return commit


@pytest.mark.kafka
def test_batches_that_are_written_before_a_commit_follow_each_other(job: Job, committed: Any) -> None:
    lake = keyed(job.folder / "keyed")
    job.options |= {"table": lake.location}
    del job.options["event.time.column"]
    rows = job.rows().selectExpr(*ROWS)
    for name, start in (("a", 0), ("b", 100)):
        job.feed(name, 20, start)
    run(job, rows=rows)
    job.feed("c", 3, 200)
    run(job, rows=rows)
    job.log.wait_completed(2)
    files = [file for batch in range(3) for body in job.log.named_files()[batch] for file in body.files]
    assert sum(file.rows for file in files) == 7 + 7 + 3
    state = committed(lake, 0, 1, 2)
    newest = {at % 7: f"v{at}" for at in (*range(20), *range(100, 120), *range(200, 203))}
    assert state == dict(sorted(newest.items()))
    highest = lake.adapter.highest_number(lake.ref)
    assert 3 * STEP <= highest < 4 * STEP


@pytest.mark.kafka
def test_spark_alone_writes_a_table_whose_rows_a_column_orders(job: Job, committed: Any) -> None:
    unordered, lake = keyed(job.folder / "keyed"), keyed(job.folder / "ordered", **{"sequence.field": "at"})
    del job.options["event.time.column"]
    rows = job.rows().selectExpr(*ROWS)
    job.feed("a", 20)
    job.options |= {"table": unordered.location}
    with pytest.raises(StreamingQueryException, match=r"has a primary key and no sequence\.field"):
        job.run(rows)
    assert not [*unordered.root.rglob("*.parquet")]
    job.options |= {"table": lake.location}
    job.run(rows.repartition(3))
    assert committed(lake, 0) == {at % 7: f"v{at}" for at in sorted(range(13, 20), key=lambda at: at % 7)}


@pytest.mark.kafka
@pytest.mark.matrix
@pytest.mark.parametrize("way", ["foreach", "source"])
def test_a_column_of_the_rows_alone_deletes(job: Job, committed: Any, way: str) -> None:
    ordered = {"sequence.field": "at"} if way == "source" else {}
    lake = keyed(job.folder / "keyed", **ordered)
    job.options |= {"table": lake.location, "row.kind.column": "op"}
    del job.options["event.time.column"]
    rows = job.rows().selectExpr(*ROWS, "CASE WHEN id % 7 = 3 AND id > 9 THEN '-D' ELSE '+U' END AS op")
    job.feed("a", 20)
    if way == "source":
        job.run(rows)
    else:
        run(job, rows=rows)
    newest = {at % 7: f"v{at}" for at in range(20)}
    del newest[3]
    assert committed(lake, 0) == newest
