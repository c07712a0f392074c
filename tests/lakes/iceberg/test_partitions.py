"""Files of every partition transform: the library and DuckDB read what was committed, filters included."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sluicegate.lakes.port import SchemaMismatch
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_objects import s3_folder
from tests.iceberg_java.java import IcebergJava
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.reading import duck_rows, lines
from tests.lakes.values import stored

NUMBERS = range(24)


@pytest.mark.slow
@pytest.mark.parametrize("name", rich.PARTITIONS)
def test_rows_are_read_back_whatever_the_partitions(tmp_path: Path, name: str, version: int) -> None:
    lake = IcebergLake(tmp_path, version, rich.RICH, rich.spec(name))
    event = lake.write(rich.rows(NUMBERS))
    Stream(lake).add(1, event)
    expected = pa.Table.from_batches([rich.rows(NUMBERS)])
    found = lake.read().sort_by("id")
    for column in rich.ARROW.names:
        assert found.column(column).to_pylist() == expected.column(column).to_pylist(), column
    assert duck_rows(lake, "count(*), sum(id)") == [(len(NUMBERS), sum(NUMBERS))]
    assert duck_rows(lake, "id", "name = 'näme 1' AND id < 9") == [(1,), (4,), (7,)]
    assert duck_rows(lake, "id", "price < 0") == [(0,), (1,), (2,)]
    assert duck_rows(lake, "id", "name IS NULL") == [(6,), (13,), (20,)]
    on_day = lake.table.scan("day == '1970-01-01'").to_arrow().to_pylist()
    assert sorted(row["id"] for row in on_day) == [
        row["id"] for row in expected.to_pylist() if str(row["day"]) == "1970-01-01"
    ]


@pytest.mark.s3
@pytest.mark.parametrize("name", ["name", "times", "bytes"])
def test_names_of_partitions_are_keys_of_objects(
    request: pytest.FixtureRequest, tmp_path: Path, iceberg_java: IcebergJava, name: str, version: int
) -> None:
    """Their values have spaces, letters beyond ASCII, colons and bytes, which the names of files encode."""
    objects = s3_folder(request)
    lake = IcebergLake(tmp_path, version, rich.RICH, rich.spec(name), objects=objects)
    Stream(lake).add(1, lake.write(rich.rows(NUMBERS)))
    found = iceberg_java.read(lake.metadata.location, ["id"], store=objects.server.environment())
    assert sorted(int(row[0] or -1) for row in found) == list(NUMBERS)
    assert [number for (number,) in duck_rows(lake, "id")] == list(NUMBERS)
    assert any("%" in path.name for path in (lake.root / "data").rglob("*")) or name == "bytes"


def partitioned(folder: Path, kind: PrimitiveType, transform: Transform[Any, Any]) -> IcebergLake:
    """A table that is partitioned by its second column, `x`."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", kind))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"))
    return IcebergLake(folder, schema=schema, spec=spec)


def numbered(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), "x": pa.array(values, kind)})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [(FloatType(), pa.float32()), (DoubleType(), pa.float64())], ids=str)
def test_the_two_zeros_are_two_partitions_and_nan_is_one(
    tmp_path: Path, kind: tuple[PrimitiveType, pa.DataType]
) -> None:
    lake = partitioned(tmp_path, kind[0], IdentityTransform())
    nan = float("nan")
    event = lake.write(numbered([0.0, -0.0, nan, 0.0], kind[1]), numbered([-0.0, nan], kind[1]))
    found = sorted((str(file.partition["p"]), file.rows) for file in event.files)
    assert found == [("-0.0", 2), ("0.0", 2), ("nan", 2)]
    # Each zero is met first once.
    zeros = [lake.write(numbered([zero], kind[1])) for zero in (0.0, -0.0, 0.0)]
    for decision, each in enumerate([event, *zeros], 1):
        Stream(lake).add(decision, each)
    assert duck_rows(lake, "count(*)", "x = 0") == [(7,)]


@pytest.mark.slow
def test_nan_among_partition_values_is_found_before_and_after_a_merge(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()), NestedField(3, "y", FloatType())
    )
    fields = [
        PartitionField(source, 998 + source, IdentityTransform(), name)
        for source, name in ((2, "x"), (3, "y"))
    ]
    least = {"commit.manifest.min-count-to-merge": "3"}
    lake = IcebergLake(tmp_path, schema=schema, spec=PartitionSpec(*fields), properties=least)
    nan = math.nan
    values = [(nan, 1.0), (1.0, nan), (5.0, 5.0), (nan, nan), (None, 7.0)]
    x, y = ([pair[at] for pair in values] for at in (0, 1))
    rows = pa.record_batch({"id": pa.array(range(5), pa.int64()), "x": x, "y": pa.array(y, pa.float32())})
    for decision in range(1, 5):
        event = lake.write(rows)
        Stream(lake).add(decision, event)
        summaries = [each for line in lines(lake) for each in line["partitions"]]
        assert not any(each["contains_nan"] and each["upper_bound"] is not None for each in summaries)
        merged = sum(bool(line["existing_files_count"]) for line in lines(lake))
        assert merged == (4 if decision == 4 else 0)
        if decision in (1, 4):
            found = {where: [number for (number,) in duck_rows(lake, "id", where)] for where in AMONG_NAN}
            assert found == {where: sorted(numbers * decision) for where, numbers in AMONG_NAN.items()}
    for where, numbers in {"x == 5.0": [2], "x > 0.5": [1, 2], "y is nan": [1, 3]}.items():
        assert sorted(lake.table.scan(where).to_arrow()["id"].to_pylist()) == sorted(numbers * 4), where


AMONG_NAN = {
    "x = 'nan'": [0, 3],
    "x > 6": [0, 3],
    "x > 2": [0, 2, 3],
    "x < 6": [1, 2],
    "x IS NULL": [4],
    "y > 6": [1, 3, 4],
    "y = 'nan' AND x = 1": [1],
    "isnan(x) AND isnan(y)": [3],
}


DAY = 86_400_000_000
"""Microseconds."""
TIME_TRANSFORMS: tuple[Transform[Any, Any], ...] = (DayTransform(), HourTransform(), IdentityTransform())
TIMES: list[Any] = [
    (
        kind,
        transform,
        stored([day * length], arrow),
        r"the partition field p \(column x\) that is out of range",
    )
    for kind, arrow, length in (
        (DateType(), pa.date32(), 1),
        (TimestampType(), pa.timestamp("us"), DAY),
        (TimestamptzType(), pa.timestamp("us", "UTC"), DAY),
    )
    for transform in TIME_TRANSFORMS
    if transform.can_transform(kind)
    for day in (-719_528, 2_932_897)
]
"""Times that Python lacks."""
MONEY = pa.decimal128(9, 2)
TENS: Transform[Any, Any] = TruncateTransform(10)


@pytest.mark.parametrize(
    ("kind", "transform", "values", "words"),
    [
        (DecimalType(9, 2), TENS, pa.array([Decimal("-9999999.99")], MONEY), "p of the rows has more than 9"),
        (IntegerType(), TENS, pa.array([-(1 << 31)], pa.int32()), "too low to be truncated"),
        (LongType(), TENS, pa.array([-(1 << 63)], pa.int64()), "too low to be truncated"),
        *TIMES,
    ],
)
def test_a_value_that_has_no_partition_is_refused_by_the_names_of_field_and_column(
    tmp_path: Path, kind: PrimitiveType, transform: Transform[Any, Any], values: pa.Array, words: str
) -> None:
    lake = partitioned(tmp_path, kind, transform)
    with pytest.raises(SchemaMismatch, match=words):
        lake.write(pa.record_batch({"id": pa.array([1], pa.int64()), "x": values}))
    assert [*tmp_path.rglob("*.parquet")] == []


@pytest.mark.parametrize(
    ("kind", "arrow", "values"),
    [
        (DecimalType(9, 2), MONEY, [Decimal("-9999999.90"), Decimal("9999999.99")]),
        (IntegerType(), pa.int32(), [-(1 << 31) + 8, None, 7]),
        (LongType(), pa.int64(), [-(1 << 63) + 8, None, 7]),
    ],
    ids=str,
)
def test_the_lowest_values_that_have_a_partition_are_taken(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, values: list[Any]
) -> None:
    lake = partitioned(tmp_path, kind, TENS)
    Stream(lake).committer.check([lake.write(numbered(values, arrow))])


@pytest.mark.slow
@pytest.mark.parametrize("text", ["\u6f22" * 30, "x" * 4095, "." * 300])
def test_a_long_value_has_a_short_folder(tmp_path: Path, text: str) -> None:
    lake = partitioned(tmp_path, StringType(), IdentityTransform())
    event = lake.write(numbered([text, f"{text}y"], pa.string()))
    assert sorted(str(file.partition["p"]) for file in event.files) == [text, f"{text}y"]
    assert len({file.path.rpartition("/")[0] for file in event.files}) == 2
    Stream(lake).add(1, event)
    assert duck_rows(lake, "count(*)", "x = ?", text) == [(1,)]
