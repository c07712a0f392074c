"""The writer half: files, their metrics, event times, and what it refuses."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, StructType, TimestampType

from sluicegate.lakes import parquet
from sluicegate.lakes.iceberg.layout import Layout
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import LakeUnavailable, Published, SchemaMismatch, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.reading import duck_rows

TIMED = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))


def record(lake: IcebergLake, metadata: bytes) -> dict[str, Any]:
    view = TableView(lake.metadata)
    return Layout(view.schema, view.spec, view.version).decode(metadata)


@pytest.mark.slow
def test_names_carry_the_digest_of_the_attempt(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, schema=rich.RICH, spec=rich.spec("name"))
    writer = lake.adapter.open_writer(lake.adapter.parse_table(lake.location), None, "d" * 32)
    writer.write(rich.rows(range(9)))
    infos = list(writer.finish())
    assert len(infos) == 4
    for info in infos:
        assert info.path.rpartition("/")[2].split("-")[:2] == ["data", "d" * 32]
        assert (lake.root / info.path).stat().st_size == info.size
    assert sorted(map(str, (info.partition["p0_name"] for info in infos))) == [
        "None",
        *(f"näme {number}" for number in range(3)),
    ]


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
    stream = Stream(lake)
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)


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


@pytest.mark.slow
def test_bounds_that_cover_a_part_of_the_rows_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet leaves out the bounds of a row group with a long text or binary."""
    monkeypatch.setattr(parquet, "BUFFER_ROWS", 1)
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "long", StringType()),
        NestedField(3, "blob", BinaryType()),
        NestedField(4, "plain", StringType()),
        NestedField(5, "inside", StructType(NestedField(6, "text", StringType()))),
    )
    lake = IcebergLake(tmp_path, schema=schema)

    def batch(number: int, text: str | None, plain: str | None) -> pa.RecordBatch:
        raw = text.encode() if text is not None else None
        row = {"id": number, "long": text, "blob": raw, "plain": plain, "inside": {"text": text}}
        return pa.RecordBatch.from_pylist([row], schema=schema_to_pyarrow(schema, include_field_ids=False))

    event = lake.write(batch(1, "m" + "z" * 5000, "m"), batch(2, "c", None), batch(3, None, "d"))
    (info,) = event.files
    found = bounds(lake, info.metadata)
    assert found.keys() == {1, 4}
    assert found[4] == (b"d", b"m")
    counts = {pair["key"]: pair["value"] for pair in record(lake, info.metadata)["null_value_counts"]}
    assert counts == {1: 0, 2: 1, 3: 1, 4: 1, 6: 1}
    stream = Stream(lake)
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert duck_rows(lake, "id", "long > 'k'") == [(1,)]
    assert lake.table.scan("long > 'k'").to_arrow().column("id").to_pylist() == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "above"),
    [
        ("a" * 15 + "\ud7ff" + "b", "a" * 15 + "\ue000"),
        ("a" * 14 + "\ud7ff\U0010ffffb", "a" * 14 + "\ue000"),
        ("a" * 16 + "b", "a" * 15 + "b"),
        ("\U0010ffff" * 17, None),
        ("\U0010ffff" * 16, "\U0010ffff" * 16),
        ("\u6f22" * 60, "\u6f22" * 15 + "\u6f23"),
    ],
)
def test_a_shortened_upper_bound_is_a_text_above_the_value(
    tmp_path: Path, text: str, above: str | None
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    lake = IcebergLake(tmp_path, schema=schema)
    event = lake.write(pa.record_batch({"id": pa.array([1]), "text": pa.array([text])}))
    expected = above.encode() if above is not None else None
    assert bounds(lake, event.files[0].metadata)[2] == (text[:16].encode(), expected)
    Stream(lake).committer.check([event])


def test_event_times_are_those_of_each_file(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, schema=TIMED)
    times = [datetime.datetime(2026, 7, 1, hour) for hour in (5, 3, 9)]
    batch = pa.record_batch({"id": pa.array([1, 2, 3]), "at": pa.array(times, pa.timestamp("us"))})
    (info,) = lake.write(batch, event_time="at").files
    start = int(datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC).timestamp() * 1000)
    assert (info.min_event_time, info.max_event_time) == (start + 3 * 3_600_000, start + 9 * 3_600_000)
    with pytest.raises(TableRefused, match="no column when"):
        lake.write(batch, event_time="when")
    with pytest.raises(SchemaMismatch, match="no column at"):
        lake.write(pa.record_batch({"id": pa.array([1])}), event_time="at")


def test_large_attempts_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BUFFER_ROWS", 10)
    lake = IcebergLake(tmp_path, properties={"write.target-file-size-bytes": "1"})
    event = lake.write(*(pa.record_batch({"id": pa.array(range(at, at + 10))}) for at in (0, 10, 20)))
    assert [file.rows for file in event.files] == [10, 10, 10]
    stream = Stream(lake)
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
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
    stream.publish(1, stream.head(1), [event])
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
    stream = Stream(lake)
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert lake.ids() == [1]
