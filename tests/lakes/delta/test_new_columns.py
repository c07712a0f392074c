"""New columns of Delta tables: the next version, what stays as it is, races, and what features demand."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.new_columns import add_columns, read_columns
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake, FaultyStorage, ThawingStorage
from tests.contracts.lakes.harness import USER, Fault, Stream
from tests.lakes.delta.making import HandMade, column, mapped, metadata, protocol
from tests.lakes.outcomes import is_refused

ID = pa.field("id", pa.int64())
NOTE = pa.schema([ID, pa.field("note", pa.string())])
NTZ = protocol(["timestampNtz"], ["timestampNtz"])


def gain(lake: DeltaLake, schema: pa.Schema = NOTE) -> None:
    evolve(ADAPTER, ADAPTER.parse_table(lake.location), schema)


def fields_of(action: Mapping[str, Any]) -> list[dict[str, Any]]:
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
    lake = HandMade(tmp_path, protocol(), {"metaData": before})
    wide = pa.schema(
        [ID, pa.field("day", pa.string()), pa.field("seats", pa.list_(pa.struct([("row", "int32")])))]
    )
    gain(lake, wide)
    (after,) = lake.actions(1, "metaData")
    assert {name for name in after if after[name] != before.get(name)} == {"schemaString"}
    assert after.keys() == before.keys()
    assert json.loads(after["schemaString"]).items() >= {"of-a-later-release": [1, {"a": None}]}.items()
    assert fields_of(after)[:2] == fields_of(before)
    assert fields_of(after)[2]["type"]["elementType"]["fields"][0]["type"] == "integer"
    (said_of_it,) = lake.actions(1, "commitInfo")
    assert (said_of_it["operation"], said_of_it["readVersion"]) == ("ADD COLUMNS", 0)


def test_times_without_a_zone_need_the_feature(tmp_path: Path) -> None:
    lake = HandMade(tmp_path, protocol(), metadata())
    schema = pa.schema([ID, pa.field("at", pa.list_(pa.timestamp("us")))])
    says = "lacks the feature timestampNtz; give the times a zone, or add the feature to the table with Spark"
    with pytest.raises(SchemaMismatch, match=says):
        gain(lake, schema)
    assert lake.versions() == [0]
    gain(lake, pa.schema([ID, pa.field("other", pa.list_(pa.timestamp("us", tz="UTC")))]))
    lake.put(NTZ)
    gain(lake, pa.schema([ID, pa.field("other", pa.list_(pa.timestamp("us", tz="UTC"))), schema.field("at")]))
    assert lake.versions() == [0, 1, 2, 3]


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
    lake = HandMade(tmp_path, features, metadata(properties=properties))
    with pytest.raises(SchemaMismatch, match=f"the new column {field.name}.*another name"):
        gain(lake, pa.schema([ID, field]))
    assert lake.versions() == [0]
    gain(lake, pa.schema([ID, pa.field("another", pa.int64())]))


MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"}
MAPPED = protocol(["columnMapping"], ["columnMapping"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_new_columns_of_a_mapped_table_get_ids_and_physical_names(tmp_path: Path, mode: str) -> None:
    """The ids 2 to 7 were given to columns that were dropped."""
    lake = HandMade(
        tmp_path, MAPPED, metadata([mapped("id", 1)], (), MAPPING | {"delta.columnMapping.mode": mode})
    )
    older = lake.write(pa.record_batch({"id": pa.array([1], pa.int64())}))
    place = pa.struct([("x", pa.int64()), ("a b", pa.map_(pa.string(), pa.struct([("z", pa.int64())])))])
    schema = pa.schema([ID, pa.field("my note", pa.string()), pa.field("place", place)])
    gain(lake, schema)
    (after,) = lake.actions(1, "metaData")
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
    newer = lake.write(pa.record_batch([[2], ["n"], pa.array([value], place)], schema=schema))
    Stream(lake).add(1, older, newer)
    gain(lake, schema.append(pa.field("more", pa.int64())))
    (again,) = lake.actions(3, "metaData")
    assert again["configuration"]["delta.columnMapping.maxColumnId"] == "13"
    Stream(lake).add(2, newer.model_copy(update={"files": ()}), lake.write(pa.record_batch({"id": [3]})))


def test_a_mapped_table_without_its_highest_id_is_refused(tmp_path: Path) -> None:
    mode = {"delta.columnMapping.mode": "name"}
    lake = HandMade(tmp_path, MAPPED, metadata([mapped("id", 1)], (), mode))
    with pytest.raises(
        TableRefused, match=r"maxColumnId = '' is no number.*with Spark, and set evolve to never"
    ):
        gain(lake)
    assert lake.versions() == [0]
    wide = metadata([mapped("id", 1), mapped("note", 2, "string")], (), MAPPING)
    lake.put(wide)
    lake.write(pa.record_batch([[1], ["a"]], schema=NOTE))


def test_row_ids_go_on_after_the_change(tmp_path: Path) -> None:
    lake = HandMade(tmp_path, protocol(["rowTracking", "domainMetadata"]), metadata(properties=ROW_IDS))
    Stream(lake).add(1, lake.write(pa.record_batch({"id": pa.array([1, 2], pa.int64())})))
    gain(lake)
    Stream(lake).add(2, lake.write(pa.record_batch([[3], ["n"]], schema=NOTE)))
    assert [lake.actions(version, "add")[0]["baseRowId"] for version in (1, 3)] == [0, 2]
    assert lake.actions(2, "domainMetadata") == []


# --- beside commits of others, and with outcomes that are not known ---------------------------------


def test_a_table_that_was_made_again_is_read_again(lake: DeltaLake) -> None:
    storage = LocalStorage(lake.location)
    seen = read_columns(storage)
    lake.replace()
    assert add_columns(storage, [NOTE.field("note")], seen) is False
    assert lake.schemas() == 1


@pytest.mark.parametrize("fault", Fault)
def test_a_change_is_made_once_whatever_is_known_of_its_outcome(lake: DeltaLake, fault: Fault) -> None:
    storage = FaultyStorage(lake.location, fault)
    seen = read_columns(storage)
    if fault is Fault.LANDED:
        assert add_columns(storage, [NOTE.field("note")], seen) is True
    else:
        with pytest.raises(LakeUnavailable):
            add_columns(storage, [NOTE.field("note")], seen)
        assert lake.schemas() == 1
    gain(lake)
    assert lake.schemas() == 2


def add_late(lake: DeltaLake, meanwhile: Callable[[], None]) -> None:
    """Add a column, while others act right before its version becomes visible; then add it again."""
    storage = ThawingStorage(lake.location, meanwhile, killed=False)
    assert add_columns(storage, [NOTE.field("note")], read_columns(storage)) is False
    gain(lake)


@pytest.mark.parametrize("theirs", ["append", "column"])
def test_a_commit_of_others_at_the_same_time_is_kept(lake: DeltaLake, theirs: str) -> None:
    append = theirs == "append"
    add_late(lake, (lambda: lake.foreign([1])) if append else lambda: lake.alter("note", pa.string()))
    assert lake.schemas() == 2
    assert len(lake.rows()) == append


@pytest.mark.slow
def test_a_version_that_comes_too_late_does_not_count(lake: DeltaLake) -> None:
    """Clean-up makes the number free again, but no reader uses it."""

    def meanwhile() -> None:
        for number in range(3):
            lake.foreign([number])
        lake.expire(1)

    add_late(lake, meanwhile)
    assert lake.rows() == [{"id": number, "note": None} for number in range(3)]


def test_a_commit_that_is_under_way_is_decided_again(lake: DeltaLake) -> None:
    storage = ThawingStorage(lake.location, lambda: gain(lake), killed=False)
    stream = Stream(lake, DeltaCommitter(storage, USER))
    checked = stream.committer.check([lake.event([1])])
    assert is_refused(stream.publish(1, stream.head(1), checked), again=True)
    stream.add(1, lake.event([1]), lake.write(pa.record_batch([[2], ["b"]], schema=NOTE)))
    assert [row["note"] for row in lake.rows()] == [None, "b"]
