"""New columns of Delta tables: the next version, what stays as it is, and what features demand."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import (
    SchemaMismatch,
    TableRefused,
)
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import Fields, column, info, mapped, metadata, protocol, put
from tests.lakes.delta.test_commits import commit, of_kind, written

ID = pa.field("id", pa.int64())
NOTE = pa.schema([ID, pa.field("note", pa.string())])
NTZ = protocol(["timestampNtz"], ["timestampNtz"])


def gain(root: Path | str, schema: pa.Schema = NOTE) -> None:
    evolve(ADAPTER, ADAPTER.parse_table(str(root)), schema)


def made(root: Path, *actions: Fields) -> Path:
    """Make a table by hand."""
    put(root, 0, info(inCommitTimestamp=1), *actions)
    return root


def versions(root: Path) -> int:
    return len(list((root / "_delta_log").glob("*.json")))


def fields_of(action: Fields) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(action["schemaString"])["fields"]
    return fields


def test_all_but_the_columns_stays_as_it_is(tmp_path: Path) -> None:
    said = metadata(
        [column("id"), column("day", "string")], ["day"], {"delta.appendOnly": "true", "own": "ü"}
    )
    schema = {**json.loads(said["metaData"]["schemaString"]), "of-a-later-release": [1, {"a": None}]}
    before = said["metaData"] | {
        "name": "Flüge",
        "description": "all",
        "format": {"provider": "parquet", "options": {"a": "b"}},
        "schemaString": json.dumps(schema),
        "new": {"x": 1},
    }
    root = made(tmp_path, protocol(), {"metaData": before})
    wide = pa.schema(
        [ID, pa.field("day", pa.string()), pa.field("seats", pa.list_(pa.struct([("row", "int32")])))]
    )
    gain(root, wide)
    (after,) = of_kind(root, 1, "metaData")
    assert {name for name in after if after[name] != before.get(name)} == {"schemaString"}
    assert after.keys() == before.keys()
    assert json.loads(after["schemaString"]).items() >= {"of-a-later-release": [1, {"a": None}]}.items()
    assert fields_of(after)[:2] == fields_of(before)
    assert fields_of(after)[2]["type"]["elementType"]["fields"][0]["type"] == "integer"
    (said_of_it,) = of_kind(root, 1, "commitInfo")
    assert (said_of_it["operation"], said_of_it["readVersion"]) == ("ADD COLUMNS", 0)


@pytest.mark.slow
def test_the_rest_is_kept_where_only_a_checkpoint_has_it(tmp_path: Path) -> None:
    said = metadata(properties={"delta.appendOnly": "true"})
    format_ = {"provider": "parquet", "options": {"a": "b"}}
    root = made(
        tmp_path, protocol(), {"metaData": said["metaData"] | {"description": "all", "format": format_}}
    )
    (before,) = of_kind(root, 0, "metaData")
    lake = DeltaLake.__new__(DeltaLake)
    lake.root, lake.location = root, str(root)
    for decision in (1, 2, 3):
        commit(root, decision, written(root, pa.record_batch({"id": pa.array([decision], pa.int64())})))
    lake.expire(1)
    gain(root)
    (after,) = of_kind(root, 4, "metaData")
    assert {name for name in before if after.get(name) != before[name]} == {"schemaString"}
    assert lake.rows() == [{"id": number, "note": None} for number in (1, 2, 3)]


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), -3),
        (pa.uint8(), 200),
        (pa.uint32(), 2**32 - 1),
        (pa.float16(), np.float16(0.5)),
        (pa.bool_(), True),
        (pa.decimal128(38, 10), decimal.Decimal("1.5000000000")),
        (pa.decimal256(5, 2), decimal.Decimal("1.50")),
        (pa.large_string(), "text"),
        (pa.large_binary(), b"bytes"),
        (pa.binary(3), b"abc"),
        (pa.dictionary(pa.int32(), pa.string()), "one of few"),
        (pa.date32(), AT.date()),
        (pa.timestamp("ms"), AT.replace(tzinfo=None)),
        (pa.timestamp("us", tz="Europe/Berlin"), AT),
        (pa.large_list(pa.large_string()), ["a", None]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a"]}),
    ],
    ids=str,
)
def test_types_that_a_column_can_have(tmp_path: Path, kind: pa.DataType, value: object) -> None:
    root = made(tmp_path, NTZ, metadata())
    schema = pa.schema([ID, pa.field("new", kind)])
    older = written(root, pa.record_batch({"id": pa.array([1], pa.int64())}))
    gain(root, schema)
    newer = written(root, pa.record_batch([pa.array([2]), pa.array([value], kind)], schema=schema))
    commit(root, 1, older, newer)
    lake = DeltaLake.__new__(DeltaLake)
    lake.location = str(root)
    assert lake.rows() == [{"id": 1, "new": None}, {"id": 2, "new": value}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.date64(),
        pa.time64("us"),
        pa.timestamp("ns"),
        pa.timestamp("ns", tz="UTC"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.list_(pa.float32(), 3),
        pa.struct([]),
        pa.struct([("x", pa.int64()), ("X", pa.int64())]),
    ],
    ids=str,
)
def test_other_types_are_refused_and_leave_the_table_as_it_is(tmp_path: Path, kind: pa.DataType) -> None:
    lake = DeltaLake(tmp_path)
    schema = pa.schema([ID, pa.field("new", kind)])
    with pytest.raises(SchemaMismatch, match=r"the new column new .*; convert it to another type"):
        gain(lake.location, schema)
    assert lake.schemas() == 1
    gain(lake.location, schema.set(1, pa.field("new", pa.string())))
    Stream(lake).commit(1, [1])


def test_times_without_a_zone_need_the_feature(tmp_path: Path) -> None:
    root = made(tmp_path, protocol(), metadata())
    schema = pa.schema([ID, pa.field("at", pa.list_(pa.timestamp("us")))])
    says = "lacks the feature timestampNtz; give the times a zone, or add the feature to the table with Spark"
    with pytest.raises(SchemaMismatch, match=says):
        gain(root, schema)
    assert versions(root) == 1
    gain(root, pa.schema([ID, pa.field("other", pa.list_(pa.timestamp("us", tz="UTC")))]))
    put(root, 2, info(), NTZ)
    gain(root, pa.schema([ID, pa.field("other", pa.list_(pa.timestamp("us", tz="UTC"))), schema.field("at")]))
    assert versions(root) == 4


ROW_IDS = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}


@pytest.mark.parametrize(
    ("field", "properties"),
    [
        (pa.field("a b", pa.int64()), {}),
        (pa.field("", pa.int64()), {}),
        (pa.field("s", pa.list_(pa.struct([("a;b", pa.int64())]))), {}),
        (pa.field("_Change_Type", pa.string()), {"delta.enableChangeDataFeed": "true"}),
        (pa.field("_row-id", pa.int64()), ROW_IDS),
    ],
    ids=str,
)
def test_names_that_readers_do_not_take_are_refused(
    tmp_path: Path, field: pa.Field, properties: dict[str, str]
) -> None:
    features = protocol(["changeDataFeed", "rowTracking", "domainMetadata"])
    root = made(tmp_path, features, metadata(properties=properties))
    with pytest.raises(SchemaMismatch, match=f"the new column {field.name}.*another name"):
        gain(root, pa.schema([ID, field]))
    assert versions(root) == 1
    gain(root, pa.schema([ID, pa.field("another", pa.int64())]))


MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"}
MAPPED = protocol(["columnMapping"], ["columnMapping"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_new_columns_of_a_mapped_table_get_ids_and_physical_names(tmp_path: Path, mode: str) -> None:
    """The ids 2 to 7 were given to columns that were dropped."""
    root = made(
        tmp_path, MAPPED, metadata([mapped("id", 1)], (), MAPPING | {"delta.columnMapping.mode": mode})
    )
    older = written(root, pa.record_batch({"id": pa.array([1], pa.int64())}))
    place = pa.struct([("x", pa.int64()), ("a b", pa.map_(pa.string(), pa.struct([("z", pa.int64())])))])
    schema = pa.schema([ID, pa.field("my note", pa.string()), pa.field("place", place)])
    gain(root, schema)
    (after,) = of_kind(root, 1, "metaData")
    assert after["configuration"]["delta.columnMapping.maxColumnId"] == "12"
    _, note, where = fields_of(after)
    x, a_b = where["type"]["fields"]
    (z,) = a_b["type"]["valueType"]["fields"]
    given = [field["metadata"] for field in (note, where, x, a_b, z)]
    assert sorted(said["delta.columnMapping.id"] for said in given) == [8, 9, 10, 11, 12]
    names = {said["delta.columnMapping.physicalName"] for said in given}
    assert len(names) == 5
    assert all(name.startswith("col-") for name in names)
    value = {"x": 2, "a b": [("k", {"z": 3})]}
    newer = written(root, pa.record_batch([[2], ["n"], pa.array([value], place)], schema=schema))
    commit(root, 1, older, newer)
    gain(root, schema.append(pa.field("more", pa.int64())))
    (again,) = of_kind(root, 3, "metaData")
    assert again["configuration"]["delta.columnMapping.maxColumnId"] == "13"
    commit(root, 2, newer.model_copy(update={"files": ()}), written(root, pa.record_batch({"id": [3]})))


def test_a_mapped_table_without_its_highest_id_is_refused(tmp_path: Path) -> None:
    mode = {"delta.columnMapping.mode": "name"}
    root = made(tmp_path, MAPPED, metadata([mapped("id", 1)], (), mode))
    with pytest.raises(
        TableRefused, match=r"maxColumnId = '' is no number.*with Spark, and set evolve to never"
    ):
        gain(root)
    assert versions(root) == 1
    wide = metadata([mapped("id", 1), mapped("note", 2, "string")], (), MAPPING)
    put(root, 1, info(), wide)
    written(root, pa.record_batch([[1], ["a"]], schema=NOTE))


def test_the_time_in_the_commit_rises_under_a_clock_that_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = metadata(properties={"delta.enableInCommitTimestamps": "true"})
    root = made(tmp_path, protocol(["inCommitTimestamp"]), times)
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000_000_000)
    gain(root)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000)
    gain(root, NOTE.append(pa.field("more", pa.int64())))
    found = [of_kind(root, version, "commitInfo")[0]["inCommitTimestamp"] for version in range(3)]
    assert found == [1, 5_000_000, 5_000_001]
    first = (root / "_delta_log" / f"{1:020d}.json").read_text().splitlines()[0]
    assert first.startswith('{"commitInfo"')


def test_row_ids_go_on_after_the_change(tmp_path: Path) -> None:
    root = made(tmp_path, protocol(["rowTracking", "domainMetadata"]), metadata(properties=ROW_IDS))
    commit(root, 1, written(root, pa.record_batch({"id": pa.array([1, 2], pa.int64())})))
    gain(root)
    commit(root, 2, written(root, pa.record_batch([[3], ["n"]], schema=NOTE)))
    assert [of_kind(root, version, "add")[0]["baseRowId"] for version in (1, 3)] == [0, 2]
    assert of_kind(root, 2, "domainMetadata") == []


def test_a_dropped_columns_values_do_not_come_back(tmp_path: Path) -> None:
    """Without column mapping, only an overwrite of the whole table drops a column."""
    lake = DeltaLake(tmp_path)
    pending = lake.event([1])
    gain(lake.location)
    typed = lake.write(pa.record_batch([[2], ["a"]], schema=NOTE))
    (said,) = lake.actions(0, "metaData")
    put(lake.root, 2, info(), {"metaData": said})
    gain(lake.location, pa.schema([ID, pa.field("note", pa.int64())]))
    commit(lake.root, 1, pending)
    with pytest.raises(Exception, match="the column note is long now instead of string"):
        lake.committer().check([typed])
