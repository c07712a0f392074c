"""The writer half: what it takes, what it refuses, how it describes files."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.write.writer.data_writer import DataWriter

from sluicegate.lakes.arrow import conform
from sluicegate.lakes.file_options import NO_OPTIONS
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.data_files import bounds_of
from sluicegate.lakes.paimon.writer import PaimonWriter
from sluicegate.lakes.port import FileWriter, LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.spooled import SpooledStorage, open_spooled
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake

UTC = datetime.UTC
TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("share", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def row(**columns: Any) -> pa.RecordBatch:
    given = {"id": pa.array([1], pa.int64()), **columns}
    return pa.record_batch({name: value for name, value in given.items() if value is not None})


def test_columns_are_put_in_order_and_absent_ones_are_null() -> None:
    fitted = conform(pa.record_batch({"share": [0.5], "id": pa.array([7], pa.int64())}), TABLE)
    assert fitted.schema.equals(TABLE)
    assert fitted.to_pylist() == [
        {"id": 7, "name": None, "at": None, "local": None, "share": 0.5, "tags": None}
    ]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("id", pa.array([5], pa.int16()), 5),
        ("id", pa.array([5], pa.uint32()), 5),
        ("share", pa.array([0.5], pa.float32()), 0.5),
        ("name", pa.array(["x"], pa.large_string()), "x"),
        ("name", pa.array(["x"]).dictionary_encode(), "x"),
        ("name", pa.nulls(1), None),
        ("tags", pa.array([["x"]], pa.large_list(pa.large_string())), ["x"]),
        (
            "at",
            pa.array([datetime.datetime(2026, 1, 2, 3)], pa.timestamp("us", tz="America/New_York")),
            datetime.datetime(2026, 1, 2, 3, tzinfo=UTC),
        ),
        (
            "at",
            pa.array([datetime.datetime(2026, 1, 2, 3)], pa.timestamp("s")),
            datetime.datetime(2026, 1, 2, 3, tzinfo=UTC),
        ),
        (
            "local",
            pa.array([datetime.datetime(2026, 1, 2, 3)], pa.timestamp("us", tz="UTC")),
            datetime.datetime(2026, 1, 2, 3),
        ),
    ],
)
def test_what_loses_nothing_is_accepted(column: str, value: pa.Array, expected: object) -> None:
    fitted = conform(row(**{column: value}), TABLE)
    assert fitted.column(column).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"extra": pa.array([1])}, ["extra"]),
        ({"id": None, "name": pa.array(["x"])}, ["id", "missing"]),
        ({"id": pa.nulls(1, pa.int64())}, ["id", "null"]),
        ({"id": pa.array([1], pa.uint64())}, ["id", "uint64"]),
        ({"id": pa.array(["1"])}, ["id", "string"]),
        ({"share": pa.array([1], pa.int64())}, ["share"]),
        ({"name": pa.array([1])}, ["name"]),
        ({"tags": pa.array(["x"])}, ["tags"]),
        ({"local": pa.array([1], pa.timestamp("us"))}, ["local", "lose data"]),
        ({"local": pa.array([0], pa.timestamp("us", tz="Asia/Tokyo"))}, ["local", "Tokyo"]),
        ({"extra": pa.array([1]), "name": pa.array([1])}, ["extra", "name"]),
    ],
)
def test_what_would_lose_something_is_named(columns: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        conform(row(**columns), TABLE)
    assert all(name in str(refused.value) for name in named)


EVENTS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def events(day: str | None, *minutes: int | None) -> pa.RecordBatch:
    start = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
    at = [None if minute is None else start + datetime.timedelta(minutes=minute) for minute in minutes]
    return pa.record_batch({"id": range(len(at)), "day": [day] * len(at), "at": at}, schema=EVENTS)


@pytest.mark.parametrize("stats", ["full", "none", "truncate(16)"])
def test_event_times_are_each_files_own_whatever_the_statistics_are(tmp_path: Path, stats: str) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"], {"metadata.stats-mode": stats})
    event = lake.write(events("a", 3, 1, None), events("b", 7), events("c", None), event_time="at")
    ranges = {info.partition["day"]: (info.min_event_time, info.max_event_time) for info in event.files}
    assert ranges == {"a": (0, 120_000), "b": (360_000, 360_000), "c": (None, None)}
    for column in ("absent", "day"):
        with pytest.raises(TableRefused, match=column):
            ADAPTER.open_writer(ADAPTER.parse_table(lake.location), column)


@pytest.mark.parametrize("spooled", [False, True])
def test_a_partition_value_that_is_no_name_of_a_folder_is_shortened(tmp_path: Path, spooled: bool) -> None:
    """Waiting would not help, as it does where storage is away."""
    lake, spool = PaimonLake(tmp_path, TABLE, ["name"]), tmp_path / "spool"
    spool.mkdir()
    table = ADAPTER.parse_table(lake.location)

    def opened() -> FileWriter:
        if not spooled:
            return ADAPTER.open_writer(table, None)
        spools = lambda storage: SpooledStorage(storage, str(spool))  # noqa: E731
        return open_spooled(ADAPTER, table, None, "d", NO_OPTIONS, spools)

    writer = opened()
    writer.write(row(name=["x" * 260]))
    with pytest.raises(SchemaMismatch, match=r"a value of name that is too long: .* Shorten the values"):
        writer.finish()
    writer.abort()
    writer = opened()
    writer.write(row(name=["x" * 200]))
    assert [info.partition for info in writer.finish()] == [{"name": "x" * 200}]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 1], pa.int64()),
        pa.array([], pa.int32()),
        pa.nulls(2, pa.string()),
        pa.array(["b", "a", None]),
        pa.array([b"b", b"a"], pa.binary()),
        pa.array([b"b", b"a"], pa.large_binary()),
        pa.array([b"ba", b"ab"], pa.binary(2)),
        pa.array([True, False, None]),
        pa.array([0.5, float("nan"), None], pa.float64()),
        pa.array([float("nan")], pa.float32()),
        pa.array([1, 2], pa.decimal128(9, 2)),
        pa.array([1, 2], pa.date32()),
        pa.array([1, 2], pa.time32("ms")),
        pa.array([2, 1], pa.timestamp("us", tz="UTC")),
        pa.array([2, 1], pa.timestamp("s")),
        pa.array([["x"], None]),
        pa.array([{"x": 1}]),
        pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int32())),
    ],
    ids=lambda values: str(values.type),
)
def test_bounds_in_one_pass_are_those_of_the_library(values: pa.Array) -> None:
    rows = pa.record_batch({"x": values})
    assert repr(bounds_of(rows, "x", 16)) == repr(DataWriter._get_column_stats(rows, "x"))


def test_files_that_cannot_be_made_durable_are_described_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "injected")

    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    monkeypatch.setattr(os, "fsync", broken)
    writer: PaimonWriter = ADAPTER.open_writer(ADAPTER.parse_table(lake.location), None)
    writer.write(events("c", 3))
    with pytest.raises(LakeUnavailable, match="durable"):
        writer.finish()
    writer.abort()
    assert not list(lake.root.rglob("*.parquet"))


def test_rows_without_a_value_of_a_column_with_a_default_are_refused(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, pa.schema([("id", pa.int64()), ("v", pa.int32())]))
    schema = json.loads((lake.root / "schema/schema-0").read_text())
    schema["id"] = 1
    schema["fields"][1]["defaultValue"] = "7"
    (lake.root / "schema/schema-1").write_text(json.dumps(schema))
    numbers = {"id": pa.array([1, 2])}
    with pytest.raises(SchemaMismatch, match="the column v are not in the rows"):
        lake.write(pa.record_batch(numbers))
    with pytest.raises(SchemaMismatch, match=r"the column v are null in 1 row\."):
        lake.write(pa.record_batch({**numbers, "v": pa.array([None, 7], pa.int32())}))
    event = lake.write(pa.record_batch({**numbers, "v": pa.array([6, 7], pa.int32())}))
    Stream(lake).committer.check([event])
