"""New columns of Iceberg tables: one more schema, what stays as it is, and what readers demand."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StructType, TimestamptzType

from sluicegate.lakes.iceberg.catalog import Catalog
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Change, Metadata
from sluicegate.lakes.iceberg.new_columns import add_columns
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch
from tests.contracts.lakes.harness import Fault, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG, ICEBERG, RestLake
from tests.lakes.iceberg.reading import duck_rows

pytestmark = pytest.mark.slow

ID = pa.field("id", pa.int64())
NOTE = pa.schema([ID, pa.field("note", pa.string())])
WITH_TIME = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "place", StructType(NestedField(4, "x", LongType()))),
)
BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))


def gain(lake: IcebergLake, schema: pa.Schema = NOTE, **options: str) -> None:
    evolve(lake.adapter, lake.adapter.parse_table(lake.location, options), schema)


def rows(lake: IcebergLake) -> list[tuple[Any, ...]]:
    """Return the rows that pyiceberg and DuckDB agree on."""
    names = [field.name for field in lake.table.schema().fields]
    quoted = ", ".join(f'"{name}"' for name in names)
    found = [tuple(row[name] for name in names) for row in lake.rows()]
    assert sorted(duck_rows(lake, quoted), key=repr) == sorted(found, key=repr)
    return found


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


@pytest.mark.parametrize("lake", ICEBERG, indirect=True)
def test_a_dropped_columns_id_is_not_used_again(lake: IcebergLake) -> None:
    gain(lake)
    event = lake.write(pa.record_batch([[1], ["a"]], schema=NOTE))
    Stream(lake).add(1, event)
    lake.edit(lambda fields: fields.update({"current-schema-id": 0}))
    gain(lake)
    assert rows(lake) == [(1, None)]
    assert [each["schema-id"] for each in lake.fields()["schemas"]] == [0, 1, 2]
    assert lake.fields()["schemas"][2]["fields"][1]["id"] == 3


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


@pytest.mark.parametrize("lake", ["iceberg", "iceberg-v3", "iceberg-rest"], indirect=True)
def test_a_mapping_of_names_gets_the_columns(lake: IcebergLake) -> None:
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


# --- beside commits of others, and with outcomes that are not known --------------------------------------


@pytest.mark.parametrize("lake", ALL_ICEBERG, indirect=True)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LANDED])
def test_an_unknown_outcome_is_read_back(lake: IcebergLake, fault: Fault) -> None:
    catalog = lake.faulty(Files(), fault)
    base = catalog.load()

    def change() -> bool:
        return add_columns(catalog, base, TableView(base), [NOTE.field("note")])

    if fault is Fault.LANDED:
        assert change() is True
    else:
        with pytest.raises(LakeUnavailable, match="injected"):
            change()
        assert lake.schemas() == 1
        gain(lake)
    assert lake.schemas() == 2
    # What was seen is not the newest schema any more.
    assert change() is False
    assert lake.schemas() == 2
    catalog.close()


class Late:
    """A catalog in which something happens right before its first change."""

    def __init__(self, inner: Catalog, act: Callable[[], None]) -> None:
        self._inner = inner
        self._acts = [act]
        self.identifier, self.reads_files = inner.identifier, inner.reads_files
        self.load, self.create, self.close = inner.load, inner.create, inner.close
        self.access = inner.access

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        if self._acts:
            self._acts.pop()()
        return self._inner.commit(base, change, files)


@pytest.mark.parametrize("lake", ALL_ICEBERG, indirect=True)
@pytest.mark.parametrize("theirs", ["append", "column", "same"])
def test_a_change_of_others_at_the_same_time_is_kept(lake: IcebergLake, theirs: str) -> None:
    acts: dict[str, Callable[[], None]] = {
        "append": lambda: lake.foreign([1]),
        "column": lambda: lake.alter("theirs", pa.int64()),
        "same": lambda: lake.alter("note", pa.string()),
    }
    catalog = Late(lake.catalog(Files()), acts[theirs])
    base = catalog.load()
    made = add_columns(catalog, base, TableView(base), [NOTE.field("note")])
    # A REST catalog takes a schema beside an append of others.
    assert made is (theirs == "append" and isinstance(lake, RestLake))
    gain(lake, NOTE.append(pa.field("theirs", pa.int64())) if theirs == "column" else NOTE)
    names = [field.name for field in lake.table.schema().fields]
    assert names == (["id", "theirs", "note"] if theirs == "column" else ["id", "note"])
    assert lake.schemas() == len(names)
    assert len(lake.rows()) == (1 if theirs == "append" else 0)
    catalog.close()
