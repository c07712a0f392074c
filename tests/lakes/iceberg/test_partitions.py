"""Files of every partition transform: the library and DuckDB read what was committed, filters included."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
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

from sluicegate.lakes.port import Published, SchemaMismatch
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.reading import duck_rows, entries, lines
from tests.lakes.values import stored

NUMBERS = range(24)


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.matrix), 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.mark.slow
@pytest.mark.parametrize("name", rich.PARTITIONS)
def test_rows_are_read_back_whatever_the_partitions(tmp_path: Path, name: str, version: int) -> None:
    lake = IcebergLake(tmp_path, version, rich.RICH, rich.spec(name))
    stream = Stream(lake)
    event = lake.write(rich.rows(NUMBERS))
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
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


_DIFFERENT = frozenset(
    {
        *("file_path", "file_size_in_bytes", "column_sizes", "split_offsets", "sort_order_id"),
        # The library counts none. tests/lakes/test_floats.py judges ours.
        "nan_value_counts",
    }
)


def _comparable(entry: dict[str, Any]) -> dict[str, Any]:
    file = {
        key: sorted(map(repr, value)) if isinstance(value, list) else value
        for key, value in entry["data_file"].items()
        if key not in _DIFFERENT
    }
    return {"status": entry["status"], "sequence": entry["sequence_number"], **file}


@pytest.mark.slow
@pytest.mark.parametrize("name", rich.PARTITIONS)
def test_entries_equal_those_of_the_library(tmp_path: Path, name: str) -> None:
    """Except for paths, sizes of the files, and what the library leaves out."""
    ours = IcebergLake(tmp_path / "ours", schema=rich.RICH, spec=rich.spec(name))
    theirs = IcebergLake(tmp_path / "theirs", schema=rich.RICH, spec=rich.spec(name))
    stream = Stream(ours)
    event = ours.write(rich.rows(NUMBERS))
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    table = theirs.table
    batch = pa.Table.from_batches([rich.rows(NUMBERS)])
    files = list(_dataframe_to_data_files(table.metadata, batch, table.io))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    mine, other = ([_comparable(each) for each in entries(lake).values()] for lake in (ours, theirs))
    assert sorted(mine, key=repr) == sorted(other, key=repr)
    skip = {"manifest_path", "manifest_length", "added_snapshot_id"}
    (my_line,), (their_line,) = lines(ours), lines(theirs)
    assert {key: value for key, value in my_line.items() if key not in skip} == {
        key: value for key, value in their_line.items() if key not in skip
    }
    my_summary, their_summary = (lake.fields()["snapshots"][-1]["summary"] for lake in (ours, theirs))
    differ = {key for key in their_summary if my_summary.get(key) != their_summary[key]}
    assert differ <= {"added-files-size", "total-files-size"}


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
    stream = Stream(lake)
    for decision, each in enumerate([event, *zeros], 1):
        assert isinstance(stream.publish(decision, stream.head(decision), [each]), Published)
        stream.recorded = stream.committer.inspect().head
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
    stream = Stream(lake)
    for decision in range(1, 5):
        event = lake.write(rows)
        assert isinstance(stream.publish(decision, stream.head(decision), [event]), Published)
        stream.recorded = stream.committer.inspect().head
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


def test_a_value_with_too_many_digits_is_refused_at_the_writer(tmp_path: Path) -> None:
    lake = partitioned(tmp_path, DecimalType(9, 2), TruncateTransform(10))
    stream = Stream(lake)
    good = lake.write(numbered([Decimal("-9999999.90"), Decimal("9999999.99")], pa.decimal128(9, 2)))
    stream.committer.check([good])
    with pytest.raises(SchemaMismatch, match="p of the rows has more than 9 digits"):
        lake.write(numbered([Decimal("-9999999.99")], pa.decimal128(9, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "arrow", "least"),
    [(IntegerType(), pa.int32(), -(1 << 31)), (LongType(), pa.int64(), -(1 << 63))],
    ids=str,
)
def test_a_number_that_cannot_be_truncated_is_refused_at_the_writer(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, least: int
) -> None:
    lake = partitioned(tmp_path, kind, TruncateTransform(10))
    Stream(lake).committer.check([lake.write(numbered([least + 8, None, 7], arrow))])
    with pytest.raises(SchemaMismatch, match="too low to be truncated"):
        lake.write(numbered([least], arrow))


@pytest.mark.parametrize("transform", [DayTransform(), HourTransform(), IdentityTransform()], ids=str)
@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (DateType(), pa.date32()),
        (TimestampType(), pa.timestamp("us")),
        (TimestamptzType(), pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_a_time_that_python_lacks_is_refused_by_the_names_of_field_and_column(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, transform: Transform[Any, Any]
) -> None:
    if not transform.can_transform(kind):
        return
    lake = partitioned(tmp_path, kind, transform)
    for day in (-719_528, 2_932_897):
        value = stored([day if arrow == pa.date32() else day * 86_400_000_000], arrow)
        rows = pa.record_batch({"id": pa.array([1], pa.int64()), "x": value})
        with pytest.raises(SchemaMismatch, match=r"the partition field p \(column x\) that is out of range"):
            lake.write(rows)
    assert [*tmp_path.rglob("*.parquet")] == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["\u6f22" * 30, "x" * 4095, "." * 300])
def test_a_long_value_has_a_short_folder(tmp_path: Path, text: str) -> None:
    lake = partitioned(tmp_path, StringType(), IdentityTransform())
    event = lake.write(numbered([text, f"{text}y"], pa.string()))
    assert sorted(str(file.partition["p"]) for file in event.files) == [text, f"{text}y"]
    assert len({file.path.rpartition("/")[0] for file in event.files}) == 2
    stream = Stream(lake)
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert duck_rows(lake, "count(*)", "x = ?", text) == [(1,)]
