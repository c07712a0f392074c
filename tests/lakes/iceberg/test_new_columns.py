"""New columns of Iceberg tables: one more schema, what stays as it is, and what readers demand."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StructType, TimestamptzType

from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import Published, SchemaMismatch, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ICEBERG, RestLake, iceberg_of
from tests.iceberg_java.java import IcebergJava, sql_catalog, where
from tests.lakes.iceberg.reading import duck_rows

ID = pa.field("id", pa.int64())
NOTE = pa.schema([ID, pa.field("note", pa.string())])
WITH_TIME = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "place", StructType(NestedField(4, "x", LongType()))),
)
BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.matrix), 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def gain(lake: IcebergLake, schema: pa.Schema = NOTE, **options: str) -> None:
    evolve(lake.adapter, lake.adapter.parse_table(lake.location, options), schema)


def rows(lake: IcebergLake) -> list[tuple[Any, ...]]:
    """Return the rows that pyiceberg and DuckDB agree on."""
    names = [field.name for field in lake.table.schema().fields]
    quoted = ", ".join(f'"{name}"' for name in names)
    found = [tuple(row[name] for name in names) for row in lake.rows()]
    assert sorted(duck_rows(lake, quoted), key=repr) == sorted(found, key=repr)
    return found


@pytest.mark.slow
def test_all_but_the_columns_stays_as_it_is(tmp_path: Path, version: int) -> None:
    lake = IcebergLake(tmp_path, version, WITH_TIME, BY_DAY, {"own": "ü"})
    Stream(lake).commit(1, [1])
    lake.edit(lambda fields: fields.update({"of-a-later-release": [1, {"a": None}]}))
    before, at = lake.fields(), lake.metadata.location
    seats = pa.field("seats", pa.list_(pa.struct([("row", pa.int32())])))
    wide = pa.schema(
        [ID, ("at", pa.timestamp("us", tz="UTC")), ("place", pa.struct([("x", "int64")])), seats]
    )
    gain(lake, wide)
    after = lake.fields()
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"schemas", "current-schema-id", "last-column-id", "last-updated-ms", "metadata-log"}
    assert after.keys() == before.keys()
    assert after["schemas"][:-1] == before["schemas"]
    made = after["schemas"][-1]
    assert made["schema-id"] == after["current-schema-id"] == 1
    assert made["fields"][:3] == before["schemas"][0]["fields"]
    assert after["last-column-id"] == before["last-column-id"] + 3
    assert {key: made["fields"][3][key] for key in ("id", "name", "required")} == {
        "id": 5,
        "name": "seats",
        "required": False,
    }
    assert not any("default" in key for key in made["fields"][3])
    assert after["last-updated-ms"] >= before["last-updated-ms"]
    assert after["metadata-log"][-1]["metadata-file"] == at


@pytest.mark.slow
def test_the_time_of_a_table_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = IcebergLake(tmp_path)
    before = lake.fields()["last-updated-ms"]
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000)
    gain(lake)
    assert lake.fields()["last-updated-ms"] == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ICEBERG)
def test_a_dropped_columns_id_is_not_used_again(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    stream = Stream(lake)
    gain(lake)
    event = lake.write(pa.record_batch([[1], ["a"]], schema=NOTE))
    assert isinstance(stream.publish(1, None, stream.committer.check([event])), Published)
    lake.edit(lambda fields: fields.update({"current-schema-id": 0}))
    gain(lake)
    assert rows(lake) == [(1, None)]
    assert [each["schema-id"] for each in lake.fields()["schemas"]] == [0, 1, 2]
    assert lake.fields()["schemas"][2]["fields"][1]["id"] == 3


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), -3),
        (pa.uint8(), 200),
        (pa.uint32(), 2**32 - 1),
        (pa.float16(), np.float16(0.5)),
        (pa.bool_(), True),
        (pa.decimal128(38, 10), decimal.Decimal("1.5000000000")),
        (pa.large_string(), "text"),
        (pa.large_binary(), b"bytes"),
        (pa.binary(3), b"abc"),
        (pa.dictionary(pa.int32(), pa.string()), "one of few"),
        (pa.date32(), AT.date()),
        (pa.time64("us"), AT.time()),
        (pa.timestamp("ms"), AT.replace(tzinfo=None)),
        (pa.timestamp("us", tz="Europe/Berlin"), AT),
        (pa.large_list(pa.large_string()), ["a", None]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a"]}),
    ],
    ids=str,
)
def test_types_that_a_column_can_have(tmp_path: Path, version: int, kind: pa.DataType, value: object) -> None:
    lake = IcebergLake(tmp_path, version)
    schema = pa.schema([ID, pa.field("new", kind)])
    stream, older = Stream(lake), lake.event([1])
    gain(lake, schema)
    newer = lake.write(pa.record_batch([pa.array([2]), pa.array([value], kind)], schema=schema))
    assert isinstance(stream.publish(1, None, stream.committer.check([older, newer])), Published)
    assert lake.rows() == [{"id": 1, "new": None}, {"id": 2, "new": value}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.decimal256(50, 2),
        pa.date64(),
        pa.time32("s"),
        pa.timestamp("ns"),
        pa.timestamp("ns", tz="UTC"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.list_(pa.float32(), 3),
        pa.uuid(),
        pa.list_(pa.struct([])),
        pa.struct([("a b", pa.int64())]),
    ],
    ids=str,
)
def test_other_types_are_refused_and_leave_the_table_as_it_is(
    tmp_path: Path, version: int, kind: pa.DataType
) -> None:
    lake = IcebergLake(tmp_path, version)
    before = lake.metadata.location
    schema = pa.schema([ID, pa.field("new", kind)])
    with pytest.raises(SchemaMismatch, match=r"[cC]onvert (it|the column) to another type"):
        gain(lake, schema)
    assert lake.metadata.location == before
    gain(lake, schema.set(1, pa.field("new", pa.string())))
    Stream(lake).commit(1, [1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_row_id", "_file", "", "at_day", "place.x", "a b"])
def test_names_with_which_readers_cannot_open_the_table_are_refused(tmp_path: Path, name: str) -> None:
    """A partition field of the name of a column keeps Iceberg's Java library from reading the table."""
    lake = IcebergLake(tmp_path, 2, WITH_TIME, BY_DAY)
    fields = [ID, ("at", pa.timestamp("us", tz="UTC")), ("place", pa.struct([("x", pa.int64())]))]
    if name == "a b":
        gain(lake, pa.schema([*fields, ("a_x20b", pa.int64())]))
        fields.append(("a_x20b", pa.int64()))
    schemas = lake.schemas()
    with pytest.raises(SchemaMismatch, match=r"give (it|the new column) another name"):
        gain(lake, pa.schema([*fields, (name, pa.int64())]))
    assert lake.schemas() == schemas
    gain(lake, pa.schema([*fields, ("another", pa.int64())]))


MAPPING = [{"field-id": 1, "names": ["id", "number"]}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iceberg", "iceberg-v3", "iceberg-rest"])
def test_a_mapping_of_names_gets_the_columns(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    key = "schema.name-mapping.default"
    lake.edit(lambda fields: fields["properties"].update({key: json.dumps(MAPPING)}))
    gain(lake, NOTE.append(pa.field("tags", pa.list_(pa.string()))))
    found = json.loads(lake.metadata.properties[key])
    ids = {field["name"]: field["id"] for field in lake.fields()["schemas"][-1]["fields"]}
    assert found[0] == MAPPING[0]
    assert [(each["field-id"], each["names"]) for each in found[1:]] == [
        (ids["note"], ["note"]),
        (ids["tags"], ["tags"]),
    ]
    assert [each["names"] for each in found[2]["fields"]] == [["element"]]
    Stream(lake).commit(1, [1])
    assert rows(lake) == [(1, None, None)]


@pytest.mark.slow
def test_a_branch_has_the_schema_of_the_table(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    Stream(lake).commit(1, [1])
    with lake.table.manage_snapshots() as snapshots:
        snapshots.create_branch(lake.table.current_snapshot().snapshot_id, "audit")
    gain(lake, branch="audit")
    audit = lake.adapter.open_committer(lake.adapter.parse_table(lake.location, {"branch": "audit"}), "a")
    stream = Stream(lake, audit)
    event = lake.write(pa.record_batch([[2], ["b"]], schema=NOTE))
    assert isinstance(stream.publish(2, stream.head(2), audit.check([event])), Published)
    Stream(lake).commit(2, [3])
    assert rows(lake) == [(1, None), (3, None)]
    head = lake.table.metadata.refs["audit"].snapshot_id
    there = lake.table.scan(snapshot_id=head).to_arrow().sort_by("id")
    assert there.column("note").to_pylist() == [None, "b"]
    with pytest.raises(TableRefused, match="no branch other"):
        gain(lake, branch="other")


@pytest.mark.parametrize("name", ICEBERG)
def test_the_java_library_reads_null_and_goes_on_from_our_schema(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, iceberg_java: IcebergJava
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    catalog = (
        {"type": "rest", "uri": lake.uri}
        if isinstance(lake, RestLake)
        else sql_catalog(lake.database, f"file://{lake.root.parent}")
    )
    stream = Stream(lake)
    stream.commit(1, [1])
    wide = NOTE.append(pa.field("place", pa.struct([("x", pa.int64())])))
    gain(lake, wide)
    newer = lake.write(pa.record_batch([[2], ["b"], [{"x": 5}]], schema=wide))
    checked = stream.committer.check([newer, lake.event([3])])
    assert isinstance(stream.publish(2, stream.head(2), checked), Published)
    iceberg_java.change("add-column", catalog, str(lake.table_name), name="theirs")
    iceberg_java.change("append", catalog, str(lake.table_name), ids=[100])
    ids = [field["id"] for field in lake.fields()["schemas"][-1]["fields"]]
    assert ids == sorted(set(ids))
    assert len(ids) == 4
    found = iceberg_java.read(lake.metadata.location, ["id", "note"])
    assert sorted(found, key=str) == [["1", None], ["100", None], ["2", "b"], ["3", None]]
    filtered = iceberg_java.read(lake.metadata.location, ["id"], where("not-null", "note"))
    assert filtered == [["2"]]
    assert duck_rows(lake, "id", "note IS NOT NULL") == [(2,)]
    assert [(row[0], row[1]) for row in rows(lake)] == [(1, None), (2, "b"), (3, None), (100, None)]
