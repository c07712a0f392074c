"""The writer half: files, their metrics, event times, and what it refuses."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from sluicegate.lakes import parquet
from sluicegate.lakes.iceberg.layout import Layout
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich


def record(lake: IcebergLake, metadata: bytes) -> dict[str, Any]:
    view = TableView(lake.metadata)
    return Layout(view.schema, view.spec, view.version).decode(metadata)


def test_files_carry_field_ids(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, schema=rich.RICH)
    (info,) = lake.write(rich.rows(range(3))).files
    schema = pq.read_schema(lake.root / info.path)
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
    current = TableView(lake.metadata).schema
    assert ids == {field.name: field.field_id for field in current.fields}
    inner = schema.field("place").type.field("zip")
    assert int(inner.metadata[b"PARQUET:field_id"]) == current.find_field("place.zip").field_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "bounded", "counted"),
    [
        ({}, {1, 2}, {1, 2}),
        ({"write.metadata.metrics.default": "none"}, set(), set()),
        ({"write.metadata.metrics.default": "counts"}, set(), {1, 2}),
        (
            {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.name": "full"},
            {2},
            {2},
        ),
    ],
    ids=["truncated", "none", "counts", "of a column"],
)
def test_metrics_follow_the_properties(
    tmp_path: Path, properties: dict[str, str], bounded: set[int], counted: set[int]
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    lake = IcebergLake(tmp_path, schema=schema, properties=properties)
    rows = pa.record_batch({"id": pa.array([1, 2]), "name": pa.array(["a" * 40, "b" * 40])})
    event = lake.write(rows)
    found = record(lake, event.files[0].metadata)
    assert {pair["key"] for pair in found["lower_bounds"]} == bounded
    assert {pair["key"] for pair in found["value_counts"]} == counted
    lower = {pair["key"]: pair["value"] for pair in found["lower_bounds"]}
    if not properties:
        assert lower[2] == b"a" * 16
    Stream(lake).add(1, event)


@pytest.mark.parametrize(
    "properties",
    [
        {"write.metadata.metrics.default": "truncate(x)"},
        {"write.metadata.metrics.column.id": "some"},
        {"write.parquet.compression-codec": "lzo"},
        {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"},
        {"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "20"},
        {"write.parquet.compression-level": "9" * 30},
        {"write.parquet.page-size-bytes": "9" * 20},
        {"write.target-file-size-bytes": "9" * 5000},
    ],
    ids=["truncate", "metrics", "codec", "no levels", "level", "huge level", "huge page", "huge file"],
)
def test_properties_that_cannot_be_followed_are_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    lake = IcebergLake(tmp_path, properties=properties)
    with pytest.raises(TableRefused, match=r"write\."):
        lake.event([1])


@pytest.mark.parametrize(
    ("names", "words"),
    [(("a b", "a_x20b"), "same name a_x20b"), (("", "x"), "has no name")],
)
def test_columns_without_a_name_of_their_own_are_refused(
    tmp_path: Path, names: tuple[str, str], words: str
) -> None:
    fields = [NestedField(number, name, LongType()) for number, name in enumerate(names, 1)]
    lake = IcebergLake(tmp_path, schema=Schema(*fields))
    with pytest.raises(TableRefused, match=words):
        lake.adapter.open_writer(lake.adapter.parse_table(lake.location), None)


def bounds(lake: IcebergLake, metadata: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Lower and upper bound by column."""
    found = record(lake, metadata)
    lower, upper = (
        {pair["key"]: pair["value"] for pair in found[name]} for name in ("lower_bounds", "upper_bounds")
    )
    return {column: (lower.get(column), upper.get(column)) for column in lower | upper}


def test_large_attempts_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BUFFER_ROWS", 10)
    lake = IcebergLake(tmp_path, properties={"write.target-file-size-bytes": "1"})
    event = lake.write(*(pa.record_batch({"id": pa.array(range(at, at + 10))}) for at in (0, 10, 20)))
    assert [file.rows for file in event.files] == [10, 10, 10]
    Stream(lake).add(1, event)
    assert lake.ids() == list(range(30))


@pytest.mark.slow
def test_names_that_avro_forbids_are_written_as_other_writers_do(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "häß-lich 1", StringType()))
    lake = IcebergLake(tmp_path, schema=schema)
    event = lake.write(pa.record_batch({"id": pa.array([1]), "häß-lich 1": pa.array(["x"])}))
    names = pq.read_schema(lake.root / event.files[0].path).names
    assert "häß-lich 1" not in names
    stream = Stream(lake)
    stream.committer.check([event])
    stream.add(1, event)
    assert lake.read().to_pylist() == [{"id": 1, "häß-lich 1": "x"}]
    nested = StructType(NestedField(3, "a b", StringType()))
    odd = IcebergLake(tmp_path / "odd", schema=Schema(NestedField(1, "s", nested)))
    with pytest.raises(TableRefused, match="a b"):
        odd.adapter.open_writer(odd.adapter.parse_table(odd.location), None)


@pytest.mark.slow
def test_data_elsewhere_is_written_and_committed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where%20x"
    lake = IcebergLake(tmp_path, properties={"write.data.path": f"file://{elsewhere}"})
    lake.location = str(elsewhere)
    lake.adapter._defaults["identifier"] = "db.numbers"
    with pytest.raises(LakeUnavailable, match=r"See whether the storage of .* is mounted"):
        lake.event([1])
    elsewhere.mkdir()
    event = lake.event([1])
    assert (elsewhere / event.files[0].path).exists()
    Stream(lake).add(1, event)
    assert lake.ids() == [1]
