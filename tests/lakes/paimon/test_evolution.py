"""New columns of Paimon tables: the next schema file, and what stays as it is."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.new_columns import add_columns, read_columns
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.port import (
    LakeUnavailable,
    Published,
    SchemaMismatch,
)
from tests.contracts.lakes.harness import Fault, Stream
from tests.contracts.lakes.paimon_lake import FaultyStorage, PaimonLake
from tests.lakes.paimon.test_thawing import paused

NOTE = pa.schema([("id", pa.int64()), ("note", pa.string())])
WIDE = pa.schema([("id", pa.int64()), ("day", pa.string()), ("place", pa.struct([("x", pa.int64())]))])
OTHER: dict[str, str] = {"snapshot.time-retained": "3h", "bucket": "3", "bucket-key": "id"}


def gain(lake: PaimonLake, schema: pa.Schema = NOTE) -> None:
    evolve(ADAPTER, ADAPTER.parse_table(lake.location), schema)


def schema_file(lake: PaimonLake, number: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((lake.root / f"schema/schema-{number}").read_bytes())
    return loaded


def ids_in(part: Any) -> list[int]:
    """Return every field id in a part of a schema."""
    if isinstance(part, dict):
        own = [int(part["id"])] if {"id", "name", "type"} <= part.keys() else []
        return own + [number for each in part.values() for number in ids_in(each)]
    return [number for each in part for number in ids_in(each)] if isinstance(part, list) else []


def test_all_but_the_columns_stays_as_it_is(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, WIDE, ["day"], OTHER)
    path = lake.root / "schema/schema-0"
    before = schema_file(lake, 0) | {"comment": "Flüge", "of-a-later-release": [1, {"a": None}]}
    path.write_text(json.dumps(before))
    gain(lake, WIDE.append(pa.field("seats", pa.list_(pa.struct([("row", pa.int32())])))))
    after = schema_file(lake, 1)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"id", "fields", "highestFieldId", "timeMillis"}
    assert after.keys() == before.keys()
    assert after["fields"][:3] == before["fields"]
    ids = ids_in(after["fields"])
    assert len(set(ids)) == len(ids)
    assert after["highestFieldId"] == max(ids) == before["highestFieldId"] + 2
    assert after["timeMillis"] >= before["timeMillis"]


@pytest.mark.slow
def test_rows_go_to_the_same_partitions_and_buckets(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, WIDE, ["day"], OTHER)
    stream = Stream(lake)
    values = [list(range(9)), ["a", "b", "c"] * 3, [{"x": 1}] * 9]
    older = lake.write(pa.record_batch(values, schema=WIDE))
    gain(lake, WIDE.append(pa.field("note", pa.string())))
    newer = lake.write(
        pa.record_batch([*values, ["n"] * 9], schema=WIDE.append(pa.field("note", pa.string())))
    )

    def places(event: Any) -> list[str]:
        return sorted(os.path.dirname(file.path) for file in event.files)

    assert places(older) == places(newer)
    stream.add(1, older, newer)
    lake.foreign_write(pa.Table.from_arrays([pa.array(each) for each in values], schema=WIDE))
    found = lake.rows()
    assert [(row["id"], row["day"]) for row in found[::3]] == list(zip(*values[:2], strict=True))
    assert sorted(str(row["note"]) for row in found) == ["None"] * 18 + ["n"] * 9


def test_a_dropped_columns_id_is_not_used_again(lake: PaimonLake) -> None:
    stream = Stream(lake)
    gain(lake)
    assert isinstance(
        stream.publish(1, None, [lake.write(pa.record_batch([[1], ["a"]], schema=NOTE))]), Published
    )
    lake.catalog.alter_table("db.numbers", [SchemaChange.drop_column("note")])
    gain(lake)
    assert lake.rows() == [{"id": 1, "note": None}]


def test_columns_go_before_the_partition_if_the_table_says_so(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    lake = PaimonLake(tmp_path, schema, ["day"], {"add-column-before-partition": "true"})
    gain(lake, schema.append(pa.field("note", pa.string())))
    assert [field["name"] for field in schema_file(lake, 1)["fields"]] == ["id", "note", "day"]
    wide = schema.append(pa.field("note", pa.string()))
    event = lake.write(pa.record_batch([[1], ["a"], ["n"]], schema=wide))
    Stream(lake).add(1, event)
    assert lake.rows() == [{"id": 1, "note": "n", "day": "a"}]


@pytest.mark.parametrize("name", ["_ROW_ID", "_KEY_id", "rowkind"])
def test_names_of_paimons_own_are_refused(lake: PaimonLake, name: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"give the new column {name} another name"):
        gain(lake, pa.schema([("id", pa.int64()), (name, pa.int64())]))
    assert lake.schemas() == 1
    gain(lake, pa.schema([("id", pa.int64()), ("another", pa.int64())]))


def test_a_table_that_was_made_again_is_read_again(lake: PaimonLake) -> None:
    seen = read_columns(Table(lake.storage))
    lake.replace()
    assert add_columns(lake.storage, [NOTE.field("note")], seen) is False
    assert lake.schemas() == 1


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LANDED])
def test_an_unknown_outcome_is_asked_about(lake: PaimonLake, fault: Fault) -> None:
    storage = FaultyStorage(lake.location, fault)
    with pytest.raises(LakeUnavailable, match=r"schema-1, perhaps"):
        add_columns(storage, [NOTE.field("note")], read_columns(Table(storage)))
    assert lake.schemas() == (2 if fault is Fault.LANDED else 1)
    gain(lake)
    assert lake.schemas() == 2


def test_a_commit_that_is_under_way_is_finished_with_the_schema_that_it_began_with(lake: PaimonLake) -> None:
    stream = paused(lake, before=lambda: gain(lake))
    stream.commit(1, [1])
    assert lake.schemas() == 2
    assert json.loads((lake.root / "snapshot/snapshot-1").read_bytes())["schemaId"] == 0
    stream.add(2, lake.write(pa.record_batch([[2], ["b"]], schema=NOTE)), lake.event([3]))
    assert json.loads((lake.root / "snapshot/snapshot-2").read_bytes())["schemaId"] == 1
    assert [row["note"] for row in lake.rows()] == [None, "b", None]
