"""The writer half: what it takes, what it refuses, how it describes files."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.write.writer.data_writer import DataWriter

from sluicegate.lakes.arrow import conform
from sluicegate.lakes.file_options import NO_OPTIONS
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.data_files import bounds_of
from sluicegate.lakes.paimon.writer import PaimonWriter
from sluicegate.lakes.port import FileWriter, LakeUnavailable, Published, SchemaMismatch, TableRefused
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


def test_a_mismatch_is_told_by_write(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    writer = ADAPTER.open_writer(ADAPTER.parse_table(lake.location), None)
    with pytest.raises(SchemaMismatch, match="extra"):
        writer.write(pa.record_batch({"id": pa.array([1]), "extra": pa.array([2])}))
    writer.write(pa.record_batch({"id": pa.array([1])}))
    assert [info.rows for info in writer.finish()] == [1]


def test_rows_without_the_column_of_event_times_are_refused(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, schema=EVENTS)
    writer = ADAPTER.open_writer(ADAPTER.parse_table(lake.location), "at")
    with pytest.raises(SchemaMismatch, match="no column at"):
        writer.write(pa.record_batch({"id": pa.array([1])}))


EVENTS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def events(day: str | None, *minutes: int | None) -> pa.RecordBatch:
    start = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
    at = [None if minute is None else start + datetime.timedelta(minutes=minute) for minute in minutes]
    return pa.record_batch({"id": range(len(at)), "day": [day] * len(at), "at": at}, schema=EVENTS)


@pytest.mark.parametrize("stats", ["full", "none", "truncate(16)"])
def test_event_times_are_each_files_own_whatever_the_statistics_are(tmp_path: Path, stats: str) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"], {"metadata.stats-mode": stats})
    event = lake.write(events("a", 3, 1, None), events("b", 7), event_time="at")
    ranges = {info.partition["day"]: (info.min_event_time, info.max_event_time) for info in event.files}
    assert ranges == {"a": (0, 120_000), "b": (360_000, 360_000)}


def test_files_without_event_times_say_so(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    (info,) = lake.write(events("a", None, None), event_time="at").files
    assert (info.min_event_time, info.max_event_time) == (None, None)


@pytest.mark.parametrize("column", ["absent", "day"])
def test_an_unusable_event_time_column_is_refused(tmp_path: Path, column: str) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    with pytest.raises(TableRefused, match=column):
        ADAPTER.open_writer(ADAPTER.parse_table(lake.location), column)


def test_infos_describe_what_is_on_disk(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    event = lake.write(events("2026-01-01", 1, 2), events("x/y=z", 3), events("", 4))
    assert event.location == Path(lake.location).as_uri()
    assert {info.partition["day"] for info in event.files} == {
        "2026-01-01",
        "x/y=z",
        "__DEFAULT_PARTITION__",
    }
    for info in event.files:
        path = lake.root / info.path
        assert path.stat().st_size == info.size
        with pq.ParquetFile(path) as file:
            assert file.metadata.num_rows == info.rows


@pytest.mark.parametrize("spooled", [False, True])
def test_a_partition_value_that_is_no_name_of_a_folder_is_shortened(tmp_path: Path, spooled: bool) -> None:
    """Waiting would not help, as it does where storage is away."""
    lake, spool = PaimonLake(tmp_path, TABLE, ["name"]), tmp_path / "spool"
    spool.mkdir()
    table = ADAPTER.parse_table(lake.location)

    def opened() -> FileWriter:
        if not spooled:
            return ADAPTER.open_writer(table, None)
        return open_spooled(
            ADAPTER, table, None, "d", NO_OPTIONS, lambda storage: SpooledStorage(storage, str(spool))
        )

    writer = opened()
    advice = "a value of name that is too long: .* Shorten the values of the partition columns"
    writer.write(row(name=["x" * 260]))
    with pytest.raises(SchemaMismatch, match=advice):
        writer.finish()
    writer.abort()
    writer = opened()
    writer.write(row(name=["x" * 200]))
    assert [info.partition for info in writer.finish()] == [{"name": "x" * 200}]


def test_a_null_partition_value_is_null_in_the_event(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    event = lake.write(events(None, 1))
    (info,) = event.files
    assert (info.partition, os.path.dirname(info.path)) == (
        {"day": None},
        "day=__DEFAULT_PARTITION__/bucket-0",
    )
    lake.committer().check([event])
    stream = Stream(lake)
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert lake.read().column("day").to_pylist() == [None]


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


def test_many_small_batches_become_one_row_group(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    batches = [
        pa.record_batch({"id": pa.array(range(start, start + 100), pa.int64())})
        for start in range(0, 10_000, 100)
    ]
    (info,) = lake.write(*batches).files
    with pq.ParquetFile(lake.root / info.path) as file:
        assert (file.metadata.num_row_groups, file.metadata.num_rows) == (1, 10_000)
    assert lake.read() is None or lake.read().num_rows == 0


@pytest.mark.slow
def test_the_target_file_size_rolls_files(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, options={"target-file-size": "64kb"})
    event = lake.event(range(30_000))
    assert len(event.files) >= 3
    stream = Stream(lake)
    assert isinstance(stream.publish(1, None, [event]), Published)
    assert lake.ids() == list(range(30_000))


def data_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def test_files_are_synced_before_they_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that fails means no description, and an abort that leaves nothing behind."""
    lake = PaimonLake(tmp_path, EVENTS, ["day"])
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    event = lake.write(events("a", 1), events("b", 2))
    for info in event.files:
        path = lake.root / info.path
        assert {str(path), str(path.parent), str(path.parent.parent), str(lake.root)} <= set(synced)

    def broken(_: int) -> None:
        raise OSError(5, "injected")

    monkeypatch.setattr(os, "fsync", broken)
    writer: PaimonWriter = ADAPTER.open_writer(ADAPTER.parse_table(lake.location), None)
    writer.write(events("c", 3))
    with pytest.raises(LakeUnavailable, match="durable"):
        writer.finish()
    writer.abort()
    assert len(data_files(lake.root)) == 2


def test_rows_without_a_value_of_a_column_with_a_default_are_refused(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, pa.schema([("id", pa.int64()), ("v", pa.int32())]))
    schema = json.loads((lake.root / "schema/schema-0").read_text())
    schema["id"] = 1
    schema["fields"][1]["defaultValue"] = "7"
    (lake.root / "schema/schema-1").write_text(json.dumps(schema))
    numbers = {"id": pa.array([1, 2])}
    with pytest.raises(SchemaMismatch, match="the column v are not in the rows"):
        lake.write(pa.record_batch(numbers))
    with pytest.raises(SchemaMismatch, match="the column v are null in 1 rows"):
        lake.write(pa.record_batch({**numbers, "v": pa.array([None, 7], pa.int32())}))
    event = lake.write(pa.record_batch({**numbers, "v": pa.array([6, 7], pa.int32())}))
    Stream(lake).committer.check([event])
