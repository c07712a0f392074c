"""Spark with Iceberg's own runtime: it reads our commits, and writes, deletes and cleans up between them."""

import datetime
import math
import os
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import BadFiles, Conflict, Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.iceberg_java.java import sql_catalog
from tests.lakes.iceberg import rich
from tests.lakes.recipes import of_small_files, statements
from tests.spark_judge.judge import SparkJudge

CATALOG: Final = "spark.sql.catalog.lake"
TABLE: Final = "lake.db.numbers"
DAY: Final = 86_400
RICH: Final = Schema(*(field for field in rich.RICH.fields if field.name != "clock"))
"""Spark has no type for a time of day."""
COLUMNS: Final = [field.name for field in RICH.fields]
FLAT: Final = [name for name in COLUMNS if name not in ("place", "tags", "counts")]
NUMBERS: Final = range(24)
ROWS: Final = rich.rows(NUMBERS).to_pylist()
CHOSEN: Final = (1, 9, 23)


class SparkLake(IcebergLake):
    """A table that Spark finds in its catalog `lake`."""

    catalog_name = "lake"


def joined(judge: SparkJudge, lake: IcebergLake) -> None:
    """Begin a session that has the catalog of a table."""
    properties = {**sql_catalog(lake.database, f"file://{lake.root.parents[1]}"), "cache-enabled": "false"}
    settings = {f"{CATALOG}.{name}": value for name, value in properties.items()}
    judge.begin({CATALOG: "org.apache.iceberg.spark.SparkCatalog", **settings})


def publish(stream: Stream, decision: int, *events: FilesWritten) -> None:
    """Commit as a coordinator does."""
    stream.committer.check(events)
    outcome = stream.publish(decision, stream.head(decision), list(events))
    assert isinstance(outcome, Published)
    stream.recorded = outcome.snapshot


def rows_of(judge: SparkJudge, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    statement = f"SELECT {columns} FROM {TABLE} WHERE {where} ORDER BY ALL"  # noqa: S608
    return [tuple(row) for row in judge.sql(statement)]


def ids(judge: SparkJudge) -> list[int]:
    return [number for (number,) in rows_of(judge, "id")]


@pytest.mark.parametrize("version", [2, 3])
def test_spark_appends_deletes_compacts_and_expires_between_our_commits(
    spark_judge: SparkJudge, tmp_path: Path, version: int
) -> None:
    lake = SparkLake(tmp_path, version)
    joined(spark_judge, lake)
    stream = Stream(lake)
    stream.commit(1, [1, 2, 3])
    spark_judge.sql(f"INSERT INTO {TABLE} VALUES (100), (101)")  # noqa: S608
    stream.commit(2, [4])
    spark_judge.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark_judge.sql(f"DELETE FROM {TABLE} WHERE id IN (2, 100)")  # noqa: S608
    stream.commit(3, [5])
    assert ids(spark_judge) == [1, 3, 4, 5, 101]
    before = row_ids(spark_judge) if version == 3 else {}
    head, event = stream.head(4), lake.event([6])
    spark_judge.sql(f"CALL lake.system.rewrite_data_files(table => 'db.numbers', options => {EAGER})")
    assert isinstance(stream.publish(4, head, [event]), Conflict)
    publish(stream, 4, event)
    spark_judge.sql("CALL lake.system.rewrite_manifests('db.numbers')")
    stream.commit(5, [7])
    spark_judge.sql(f"CALL lake.system.expire_snapshots(table => 'db.numbers', {ALL})")
    assert len(lake.metadata.snapshots) == 1
    stream.commit(6, [8])
    assert ids(spark_judge) == [1, 3, 4, 5, 6, 7, 8, 101] == lake.ids()
    assert rows_of(spark_judge, "sum(id), count(*), min(id), max(id)") == [(135, 8, 1, 101)]
    assert Stream(lake).committer.inspect().newest_made == 6
    if version == 3:
        after = row_ids(spark_judge)
        assert {key: after[key] for key in before} == before, "a compaction keeps row ids"
        assert len(set(after.values())) == len(after) == 8


EAGER: Final = "map('min-input-files', '2', 'delete-file-threshold', '1')"
ALL: Final = "older_than => current_timestamp(), retain_last => 1"


def row_ids(judge: SparkJudge) -> dict[int, int]:
    found = rows_of(judge, "id, _row_id")
    assert all(number is not None for _, number in found)
    return dict(found)


def literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"double('{value}')"
        case Decimal():
            return f"CAST('{value}' AS DECIMAL(38, 10))"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value}'"
        case _:
            return f"'{value}'"


def asked(judge: SparkJudge, wheres: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows that each filter finds, all by one statement."""
    parts = [
        f"SELECT {number} AS number, id FROM {TABLE} WHERE {where}"  # noqa: S608
        for number, where in enumerate(wheres)
    ]
    found: list[list[int]] = [[] for _ in wheres]
    for number, row in judge.sql(" UNION ALL ".join(parts)):
        found[number].append(row)
    return {where: sorted(rows) for where, rows in zip(wheres, found, strict=True)}


@pytest.mark.parametrize(("version", "partitions"), [(2, "name"), (3, "buckets"), (3, "day")])
def test_a_filter_of_any_column_finds_its_rows(
    spark_judge: SparkJudge, tmp_path: Path, version: int, partitions: str
) -> None:
    """A wrong bound, summary or partition value would hide some of them."""
    lake = SparkLake(tmp_path, version, RICH, rich.spec(partitions))
    joined(spark_judge, lake)
    stream = Stream(lake)
    for decision, part in enumerate((NUMBERS[:11], NUMBERS[11:]), 1):
        publish(stream, decision, lake.write(rich.rows(part).select(COLUMNS)))
    expected = {}
    for column in FLAT:
        expected[f"`{column}` IS NULL"] = [row["id"] for row in ROWS if row[column] is None]
        for value in {ROWS[number][column] for number in CHOSEN}:
            matching = [row["id"] for row in ROWS if row[column] == value]
            expected[f"`{column}` = {literal(value)}"] = matching
    assert asked(spark_judge, list(expected)) == expected
    total = [(len(ROWS), sum(NUMBERS), str(sum(row["price"] or 0 for row in ROWS)))]
    assert rows_of(spark_judge, "count(*), sum(id), sum(price)") == total
    files = spark_judge.sql(f"SELECT partition, record_count FROM {TABLE}.files")  # noqa: S608
    parts = dict(spark_judge.sql(f"SELECT to_json(partition), record_count FROM {TABLE}.partitions"))  # noqa: S608
    assert len(files) >= len(parts) > 1
    assert sum(parts.values()) == len(ROWS)


def test_nan_is_found_by_a_filter(spark_judge: SparkJudge, tmp_path: Path) -> None:
    lake = SparkLake(
        tmp_path, schema=Schema(*(field for field in RICH.fields if field.name in ("id", "real")))
    )
    joined(spark_judge, lake)
    stream = Stream(lake)
    for decision, values in enumerate(([1.0, math.nan, None], [math.nan] * 3, [-1.0, 2.0, math.inf]), 1):
        numbers = [3 * decision + number for number in range(3)]
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("real", pa.float64())])
        rows = pa.record_batch([pa.array(numbers), pa.array(values, pa.float64())], schema=schema)
        publish(stream, decision, lake.write(rows))
    expected: Mapping[str, list[int]] = {
        "isnan(real)": [4, 6, 7, 8],
        "real = double('NaN')": [4, 6, 7, 8],
        "NOT isnan(real)": [3, 5, 9, 10, 11],
        "real = 1": [3],
        "real < 0": [9],
        "real IS NULL": [5],
    }
    assert asked(spark_judge, list(expected)) == expected


def aged(lake: IcebergLake, days: int) -> None:
    """Let all files and snapshots of a table be older."""
    past = time.time() - days * DAY
    for file in (path for path in lake.root.rglob("*") if path.is_file()):
        os.utime(file, (past, past))

    def change(fields: dict[str, Any]) -> None:
        for each in (*fields["snapshots"], *fields["snapshot-log"]):
            each["timestamp-ms"] -= days * DAY * 1000
        fields["last-updated-ms"] -= days * DAY * 1000
        fields["metadata-log"] = []

    lake.edit(change)


def test_the_recipe_cleans_up_and_spares_pending_files(spark_judge: SparkJudge, tmp_path: Path) -> None:
    lake = SparkLake(tmp_path, 3)
    joined(spark_judge, lake)
    stream = Stream(lake)
    for decision in range(1, 13):
        stream.commit(decision, [decision])
    orphan = lake.event([900])
    aged(lake, 40)
    stream = Stream(lake)
    waiting = lake.event([13])
    (path,) = (lake.root / file.path for file in waiting.files)
    past = time.time() - 29 * DAY
    os.utime(path, (past, past))
    for statement in statements("iceberg"):
        spark_judge.sql(statement.replace("db.flights", "db.numbers"))
    (lost,) = (lake.root / file.path for file in orphan.files)
    assert (path.exists(), lost.exists()) == (True, False)
    assert len(lake.metadata.snapshots) < 12
    live = spark_judge.sql(f"SELECT count(*) FROM {TABLE}.files")  # noqa: S608
    assert live == [[1]], "the files were compacted"
    publish(stream, 13, waiting)
    assert ids(spark_judge) == list(range(1, 14)) == lake.ids()
    assert rows_of(spark_judge, "sum(id)") == [(91,)]


def test_a_pending_file_that_a_cleaner_took_is_noticed(spark_judge: SparkJudge, tmp_path: Path) -> None:
    lake = SparkLake(tmp_path)
    joined(spark_judge, lake)
    stream = Stream(lake)
    stream.commit(1, [1])
    waiting = lake.event([2])
    aged(lake, 40)
    stream = Stream(lake)
    spark_judge.sql(statements("iceberg")[-1].replace("db.flights", "db.numbers"))
    (file,) = waiting.files
    assert lake.maintenance().file_status([file.path]) == {file.path: FileStatus.GONE}
    with pytest.raises(BadFiles, match="is not in"):
        stream.committer.check([waiting])
    assert ids(spark_judge) == [1]


HINTED: Final = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "month", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)


@pytest.mark.parametrize(
    ("number", "field"),
    [
        (0, PartitionField(2, 1000, IdentityTransform(), "month")),
        (1, PartitionField(3, 1000, MonthTransform(), "at_month")),
    ],
    ids=["identity", "hidden"],
)
def test_the_statement_for_a_hint_compacts_that_partition_alone(
    spark_judge: SparkJudge, tmp_path: Path, number: int, field: PartitionField
) -> None:
    lake = SparkLake(tmp_path, 2, HINTED, PartitionSpec(field))
    joined(spark_judge, lake)
    stream = Stream(lake)
    days = [datetime.datetime(2013, month, 5, 12) for month in (1, 2)]
    columns = {"id": [1, 2], "month": ["2013-01", "2013-02"], "at": days}
    (rows,) = pa.table(columns, lake.table.schema().as_arrow()).to_batches()
    for decision in range(1, 7):
        publish(stream, decision, lake.write(rows))
    statement = of_small_files("CALL lake")[number]
    spark_judge.sql(statement.replace("db.flights", "db.numbers"))
    files = f"SELECT count(*) FROM {TABLE}.files GROUP BY partition ORDER BY 1"  # noqa: S608
    assert spark_judge.sql(files) == [[1], [6]]
    publish(stream, 7, lake.write(rows))
    assert rows_of(spark_judge, "count(*)") == [(14,)]
