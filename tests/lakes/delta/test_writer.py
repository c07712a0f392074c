"""The writer half: rows of every type come back as they were, and bounds are never narrower than values."""

import datetime
import decimal
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.events.models import FileInfo
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.schema import Column, is_partition_text, partition_folder, partition_text
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import ID, Fields, HandMade, column, metadata, protocol

UTC = datetime.UTC


def stats_of(file: FileInfo) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads(file.metadata)["add"]["stats"])
    return found


VALUES: dict[str, tuple[pa.DataType, list[Any], Any, Any]] = {
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None], -(2**63), 2**63 - 1),
    "integer": (pa.int32(), [-(2**31), 5], -(2**31), 5),
    "short": (pa.int16(), [-300, 300], -300, 300),
    "byte": (pa.int8(), [-128, 127], -128, 127),
    "double": (pa.float64(), [-1.5, 1e300, None], -1.5, 1e300),
    "float": (pa.float32(), [0.5, 2.0], 0.5, 2.0),
    "boolean": (pa.bool_(), [True, False], False, True),
    "binary": (pa.binary(), [b"\x00\xff", b""], None, None),
    "string": (pa.string(), ["ä", "", "z"], "", "ä"),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
            datetime.datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        ],
        "1969-12-31T23:59:59.999Z",
        "2026-01-01T00:00:00.001Z",
    ),
    "decimal": (
        pa.decimal128(10, 2),
        [decimal.Decimal("-1.25"), decimal.Decimal("99999999.99")],
        -1.25,
        99999999.99,
    ),
    "wide decimal": (pa.decimal128(38, 10), [decimal.Decimal("1.0000000001")], None, None),
    "list": (pa.list_(pa.int64()), [[1, 2], None, []], None, None),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], None, None),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_a_type_come_back_with_their_bounds(tmp_path: Path, name: str) -> None:
    kind, values, lowest, highest = VALUES[name]
    lake = DeltaLake(tmp_path, pa.schema([("id", pa.int64()), ("v", kind)]))
    batch = pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, kind)})
    event = lake.write(batch)
    Stream(lake).add(1, event)
    (file,) = event.files
    stats = stats_of(file)
    assert (stats["minValues"].get("v"), stats["maxValues"].get("v")) == (lowest, highest)
    assert pq.ParquetFile(lake.root / file.path).read()["v"].to_pylist() == values
    assert pa.table(lake.table.scan())["v"].to_pylist() == values


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_float_that_json_does_not_have_narrows_no_bound(tmp_path: Path, value: float) -> None:
    lake = DeltaLake(tmp_path, pa.schema([("v", pa.float64())]))
    event = lake.write(pa.record_batch({"v": [1.0, value, 2.0]}))
    Stream(lake).add(1, event)
    stats = stats_of(event.files[0])
    expected = {"minValues": {"v": 1.0}, "maxValues": {"v": 2.0}}
    if math.isnan(value):
        expected = {"minValues": {}, "maxValues": {}}
    else:
        expected["maxValues" if value > 0 else "minValues"] = {}
    assert {key: stats[key] for key in expected} == expected


def test_long_texts_have_short_bounds_around_them(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, pa.schema([("v", pa.string())]))
    for values in (["a" * 100, "b" * 100], ["x" * 32 + "\U0010ffff" * 3], ["m" * 32]):
        event = lake.write(pa.record_batch({"v": values}))
        stats = stats_of(event.files[0])
        lowest, highest = stats["minValues"]["v"], stats["maxValues"].get("v", "\U0010ffff" * 40)
        assert all(lowest.encode() <= value.encode() <= highest.encode() for value in values)
        assert len(lowest) <= 32


NUMBERS = [column(name) for name in ("a", "b", "c")]
CLUSTERED = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["c"]]}', "removed": False}


@pytest.mark.parametrize(
    ("properties", "more", "expected"),
    [
        ({"delta.dataSkippingNumIndexedCols": "1"}, (), {"a"}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, (), {"a", "b", "c"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, (), set()),
        ({"delta.dataSkippingStatsColumns": "c, `b`"}, (), {"b", "c"}),
        ({"delta.dataSkippingNumIndexedCols": "1"}, ({"domainMetadata": CLUSTERED},), {"a", "c"}),
    ],
    ids=["one", "all", "none", "named", "clustered"],
)
def test_columns_with_statistics_follow_the_table(
    tmp_path: Path, properties: dict[str, str], more: tuple[Fields, ...], expected: set[str]
) -> None:
    features = protocol(["clustering", "domainMetadata"]) if more else protocol()
    lake = HandMade(tmp_path, features, metadata(NUMBERS, properties=properties), *more)
    (file,) = lake.write(pa.record_batch({name: pa.array([1], pa.int64()) for name in "abc"})).files
    assert set(stats_of(file)["minValues"]) == expected


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4_raw", "uncompressed", None])
def test_files_have_the_codec_of_the_table(tmp_path: Path, codec: str | None) -> None:
    properties = {} if codec is None else {"delta.parquet.compression.codec": codec}
    lake = HandMade(tmp_path, protocol(), metadata(ID, properties=properties))
    (file,) = lake.event([1]).files
    found = pq.ParquetFile(lake.root / file.path).metadata.row_group(0).column(0).compression
    assert found == {None: "ZSTD", "lz4_raw": "LZ4"}.get(codec, str(codec).upper())


def test_partitions_get_a_file_each_in_the_order_of_their_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32()), ("q", pa.string())])
    lake = DeltaLake(tmp_path, schema, ["p", "q"])
    rows = {
        "id": pa.array(range(6), pa.int64()),
        "p": pa.array([1, 2, 1, None, 1, 1], pa.int32()),
        "q": ["a", "a", "b", "a", "a", None],
    }
    event = lake.write(pa.record_batch(rows))
    found = {
        (file.partition["p"], file.partition["q"]): pq.ParquetFile(lake.root / file.path)
        .read()["id"]
        .to_pylist()
        for file in event.files
    }
    assert found == {("1", "a"): [0, 4], ("2", "a"): [1], ("1", "b"): [2], (None, "a"): [3], ("1", None): [5]}
    Stream(lake).add(1, event)
    assert sorted(pa.table(lake.table.scan())["p"].to_pylist(), key=str) == [1, 1, 1, 1, 2, None]


PARTITIONS: tuple[tuple[str, Any, str], ...] = (
    ("long", -5, "-5"),
    ("boolean", True, "true"),
    ("date", datetime.date(2026, 7, 1), "2026-07-01"),
    ("timestamp", datetime.datetime(2026, 7, 1, 1, 2, 3, 4, UTC), "2026-07-01T01:02:03.000004Z"),
    ("timestamp_ntz", datetime.datetime(2026, 7, 1, 1, 2, 3), "2026-07-01 01:02:03.000000"),
    ("decimal(5,2)", decimal.Decimal("-1.50"), "-1.50"),
    ("decimal(5,0)", decimal.Decimal("7"), "7"),
    ("string", "a/b", "a/b"),
)


@pytest.mark.parametrize(("kind", "value", "text"), PARTITIONS)
def test_the_text_of_a_partition_value_is_recognized(kind: str, value: object, text: str) -> None:
    there = Column("p", "p", None, kind, nullable=True, metadata={})
    assert partition_text(kind, value) == text
    assert is_partition_text(there, text)
    assert is_partition_text(there, None)
    assert not is_partition_text(there, "")
    assert kind == "string" or not is_partition_text(there, text + "x")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.string())]))
    for rows in ({"other": [1]}, {"id": ["x"]}, {"id": pa.array([None], pa.int64())}, {"p": ["a"]}):
        with pytest.raises(SchemaMismatch):
            lake.write(pa.record_batch(rows))
    table = ADAPTER.parse_table(lake.location)
    with pytest.raises(TableRefused, match="no column t"):
        ADAPTER.open_writer(table, "t")
    with pytest.raises(TableRefused, match="the column p"):
        ADAPTER.open_writer(table, "p")
    with pytest.raises(SchemaMismatch, match="no column id"):
        ADAPTER.open_writer(table, "id").write(pa.record_batch({"p": ["a"]}))


def test_a_partition_of_many_long_values_has_a_short_folder() -> None:
    columns = [
        Column(f"c{number}", f"c{number}", None, "string", nullable=True, metadata={}) for number in range(40)
    ]
    whole = partition_folder(columns[:3], dict.fromkeys(("c0", "c1", "c2"), "x" * 250))
    assert whole == "/".join(f"c{number}={'x' * 250}" for number in range(3))
    values = dict.fromkeys((column.physical for column in columns), "x" * 250) | {"c7": "short", "c8": None}
    folder = partition_folder(columns, values)
    assert len(folder) < 1_500
    assert folder.split("/")[7:9] == ["c7=short", "c8=__HIVE_DEFAULT_PARTITION__"]
