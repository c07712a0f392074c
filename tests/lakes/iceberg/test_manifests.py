"""Manifests and their lists: merged by bytes, and those of other writers lose nothing."""

import json
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from sluicegate.lakes.avro import BadContainer
from sluicegate.lakes.iceberg.layout import Lists, UnknownMetadata
from sluicegate.lakes.iceberg.metadata import MAIN
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.lakes.iceberg.reading import avro, duck_rows, entries, lines
from tests.lakes.outcomes import is_refused

LEAST = {"commit.manifest.min-count-to-merge": "5"}


def described(lake: IcebergLake) -> dict[str, tuple[Any, ...]]:
    """Of each file: its snapshot, sequence numbers, first row id and rows, inherited ones included."""
    found: dict[str, tuple[Any, ...]] = {}
    rows: dict[str, int] = {}
    for path, entry in entries(lake).items():
        line, file = entry["line"], entry["data_file"]
        manifest = line["manifest_path"]
        numbers = [
            line["sequence_number"] if entry[key] is None else entry[key]
            for key in ("sequence_number", "file_sequence_number")
        ]
        first = file.get("first_row_id")
        if first is None and line.get("first_row_id") is not None:
            first = line["first_row_id"] + rows.get(manifest, 0)
            rows[manifest] = rows.get(manifest, 0) + file["record_count"]
        found[path] = (entry["snapshot_id"], *numbers, first, file["record_count"])
    return found


@pytest.mark.slow
def test_a_merge_changes_nothing_of_a_file(tmp_path: Path, version: int) -> None:
    lake = IcebergLake(tmp_path, version, properties=LEAST)
    stream = Stream(lake)
    before: dict[str, tuple[Any, ...]] = {}
    merged = 0
    for decision in range(1, 32):
        stream.commit(decision, range(decision * 10, decision * 10 + decision))
        now = described(lake)
        assert {path: now[path] for path in before} == before
        assert len(now) == decision
        merged += any(line["existing_files_count"] for line in lines(lake))
        before = now
    assert merged > 10
    assert len(lines(lake)) < 12
    expected = sorted(number for decision in range(1, 32) for number in range(decision * 10, decision * 11))
    assert lake.ids() == expected
    assert [number for (number,) in duck_rows(lake, "id")] == expected
    for line in lines(lake):
        assert line["added_files_count"] + line["existing_files_count"] > 0
        assert local(line["manifest_path"]).stat().st_size == line["manifest_length"]


@pytest.mark.slow
def test_row_ids_are_assigned_once_and_without_gaps(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, 3, properties=LEAST)
    stream = Stream(lake)
    for decision in range(1, 18):
        stream.commit(decision, range(decision))
    ranges = sorted((first, first + rows) for *_, first, rows in described(lake).values())
    assert ranges[0][0] == 0
    assert all(end == start for (_, end), (start, _) in pairwise(ranges))
    assert lake.fields()["next-row-id"] == ranges[-1][1] == sum(range(18))
    snapshots = lake.fields()["snapshots"]
    assert [each["added-rows"] for each in snapshots] == list(range(1, 18))
    assert [each["first-row-id"] for each in snapshots] == [sum(range(each)) for each in range(1, 18)]


@pytest.mark.slow
def test_manifests_of_others_stay_as_they_are(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, properties=LEAST)
    stream = Stream(lake)
    theirs: set[str] = set()
    for decision in range(1, 12):
        stream.commit(decision, [decision])
        lake.foreign([100 + decision])
        head = lake.metadata.head(MAIN)
        assert head is not None
        theirs |= {
            line["manifest_path"] for line in lines(lake) if line["added_snapshot_id"] == head["snapshot-id"]
        }
    stream.commit(12, [12])
    assert theirs <= {line["manifest_path"] for line in lines(lake)}
    assert any(line["existing_files_count"] for line in lines(lake))
    assert lake.ids() == [*range(1, 13), *range(101, 112)]


@pytest.mark.slow
def test_manifests_of_a_spec_whose_column_was_dropped_stay_as_they_are(tmp_path: Path, version: int) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    lake = IcebergLake(tmp_path, schema=schema, spec=spec, properties=LEAST)
    stream = Stream(lake)
    for decision in range(1, 6):
        batch = pa.record_batch({"id": pa.array([decision], pa.int64()), "x": pa.array([1], pa.int64())})
        stream.add(decision, lake.write(batch))
    before = {line["manifest_path"] for line in lines(lake)}
    with lake.table.update_spec() as update:
        update.remove_field("x")
    with lake.table.update_schema() as change:
        change.delete_column("x")
    if version > 2:
        lake.edit(lambda fields: fields.update({"format-version": 3, "next-row-id": 0}))
    for each in (stream, Stream(lake)):
        each.recorded = stream.recorded
        decision += 1
        stream.recorded = each.commit(decision, [decision])
    assert before <= {line["manifest_path"] for line in lines(lake)}
    # DuckDB ends its process with an error when it reads such a table.
    assert len(described(lake)) == 7


# --- lists of other writers -------------------------------------------------------------------------


def head_list(lake: IcebergLake) -> Path:
    head = lake.metadata.head(MAIN)
    assert head is not None
    return local(head["manifest-list"])


def rewrite(path: Path, change: Any) -> None:
    """Write a list again, after a change of its schema and records."""
    reader = fastavro.reader(BytesIO(path.read_bytes()))
    schema, records = json.loads(json.dumps(reader.writer_schema)), [dict(each) for each in reader]
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    schema.pop("__fastavro_parsed__", None)
    schema.pop("__named_schemas", None)
    change(schema, records)
    out = BytesIO()
    fastavro.writer(out, schema, records, codec="null", metadata=metadata)
    path.write_bytes(out.getvalue())


@pytest.mark.slow
def test_older_names_of_fields_are_understood(lake: IcebergLake) -> None:
    lake.foreign([100])

    def change(schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        for field in schema["fields"]:
            new = field["name"].replace("_files_count", "_data_files_count")
            for record in records:
                record[new] = record.pop(field["name"])
            field["name"] = new

    rewrite(head_list(lake), change)
    before = avro(str(head_list(lake)))
    assert "added_data_files_count" in before[0]
    with_commits(lake, 1)
    after = {line["manifest_path"]: line for line in lines(lake)}
    kept = after[before[0]["manifest_path"]]
    assert kept["added_files_count"] == before[0]["added_data_files_count"] == 1
    assert lake.ids() == [1, 100]
    assert duck_rows(lake, "id") == [(1,), (100,)]


@pytest.mark.slow
def test_a_field_of_the_future_is_not_lost_silently(lake: IcebergLake) -> None:
    lake.foreign([100])

    def change(schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        schema["fields"].append({"name": "new", "type": ["null", "long"], "default": None, "field-id": 599})
        for record in records:
            record["new"] = 5

    rewrite(head_list(lake), change)
    stream = Stream(lake)
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert is_refused(outcome)
    assert "the field new" in outcome.reason
    assert lake.ids() == [100]


def test_what_is_no_list_is_refused() -> None:
    lists = Lists(2, "null")
    out = BytesIO()
    fastavro.writer(
        out, {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, [{"a": 1}]
    )
    with pytest.raises((BadContainer, UnknownMetadata)):
        lists.read(out.getvalue())
