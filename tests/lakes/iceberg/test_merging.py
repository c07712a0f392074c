"""Manifests are merged by bytes: files keep their snapshots, sequence numbers and row ids."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.port import Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.lakes.iceberg.reading import duck_rows, entries, lines

LEAST = {"commit.manifest.min-count-to-merge": "5"}


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


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


@pytest.mark.long
def test_never_more_than_130_manifests_stay(tmp_path: Path, version: int) -> None:
    lake = IcebergLake(tmp_path, version)
    stream = Stream(lake)
    event = lake.event([1])
    most = 0
    for decision in range(1, 421):
        # The same file again: only the manifests count here.
        assert isinstance(stream.publish(decision, stream.head(decision), [event]), Published)
        stream.recorded = stream.committer.inspect().head
        most = max(most, len(lines(lake)))
    assert most <= 130
    assert sum(line["added_files_count"] + line["existing_files_count"] for line in lines(lake)) == 420


@pytest.mark.slow
def test_manifests_of_a_spec_whose_column_was_dropped_stay_as_they_are(tmp_path: Path, version: int) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    lake = IcebergLake(tmp_path, schema=schema, spec=spec, properties=LEAST)
    stream = Stream(lake)
    for decision in range(1, 6):
        batch = pa.record_batch({"id": pa.array([decision], pa.int64()), "x": pa.array([1], pa.int64())})
        stream.publish(decision, stream.head(decision), [lake.write(batch)])
        stream.recorded = stream.committer.inspect().head
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


@pytest.mark.slow
def test_a_table_upgraded_to_version_3_gets_row_ids_for_old_files(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, properties=LEAST)
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, range(decision))
    waiting = lake.event([100])
    lake.edit(lambda fields: fields.update({"format-version": 3, "next-row-id": 0}))
    stream.committer.check([waiting])
    stream.publish(4, stream.head(4), [waiting])
    head = lake.fields()["snapshots"][-1]
    assert (head["first-row-id"], head["added-rows"]) == (0, 7)
    assert lake.fields()["next-row-id"] == 7
    ranges = sorted((first, first + rows) for *_, first, rows in described(lake).values())
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 7
    for decision in range(5, 14):
        stream = Stream(lake)
        stream.commit(decision, [decision])
    before = described(lake)
    assert len(before) == 13
    assert len({first for *_, first, _ in before.values()}) == 13
    assert [number for (number,) in duck_rows(lake, "id")] == sorted([0, 0, 0, 1, 1, 2, 100, *range(5, 14)])
