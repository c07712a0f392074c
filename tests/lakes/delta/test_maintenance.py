"""Upkeep of a Delta table: what refers to a file, what may be deleted, and what is damaged."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.maintenance import is_data_file
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import column, info, metadata, put


@pytest.mark.slow
def test_a_removed_file_stays_referenced_while_an_old_version_has_it(lake: DeltaLake) -> None:
    event = lake.event([1])
    Stream(lake).add(1, event)
    lake.table.delete()
    (file,) = event.files
    maintenance = lake.maintenance()
    assert maintenance.file_status([file.path]) == {file.path: FileStatus.REFERENCED}
    # The tombstone goes on in checkpoints until it expires.
    lake.foreign([2])
    lake.expire(1)
    assert lake.maintenance().file_status([file.path]) == {file.path: FileStatus.REFERENCED}


@pytest.mark.slow
def test_a_damaged_log_lets_no_file_be_deleted(lake: DeltaLake) -> None:
    Stream(lake).commit(1, [1])
    (orphan,) = lake.event([2]).files
    lake.foreign([3])
    lake.table.create_checkpoint()
    checkpoint = lake.log / f"{2:020d}.checkpoint.parquet"
    for damaged in (lake.commit_file(1), checkpoint):
        kept = damaged.read_bytes()
        damaged.write_bytes(b"{")
        with pytest.raises(LakeUnavailable, match="references are unknown"):
            lake.maintenance().delete_unreferenced(orphan.path)
        damaged.write_bytes(kept)
    assert lake.maintenance().delete_unreferenced(orphan.path) is FileStatus.DELETED


def test_without_a_log_no_file_is_deleted(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    (file,) = lake.event([1]).files
    lake.log.rename(tmp_path / "away")
    with pytest.raises(LakeUnavailable, match="has no log"):
        lake.maintenance().delete_unreferenced(file.path)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("data-x.parquet", True),
        ("p=1/data-x.parquet", True),
        ("_p=1/data-x.parquet", True),
        ("_delta_log/00000000000000000001.json", False),
        ("_delta_log/p=1/x.parquet", False),
        ("_change_data/cdc.parquet", False),
        ("p=1/_hidden", False),
        (".hidden/x.parquet", False),
        ("p=1/../x.parquet", False),
        ("p=1//x.parquet", False),
        ("", False),
    ],
)
def test_places_of_data_files(tmp_path: Path, path: str, data: bool) -> None:
    assert is_data_file(path) is data
    expected = FileStatus.GONE if data else FileStatus.OUTSIDE
    assert DeltaLake(tmp_path).maintenance().file_status([path]) == {path: expected}


def test_a_table_like_another_has_its_features_and_an_identity_of_its_own(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, properties={"delta.appendOnly": "true"})
    maintenance = lake.maintenance(lake.location + "2")
    maintenance.create_like(lake.adapter.parse_table(lake.location))
    maintenance.create_like(lake.adapter.parse_table(lake.location))
    copy = DeltaTable(maintenance.location.removeprefix("file://"))
    assert copy.metadata().configuration == {"delta.appendOnly": "true"}
    assert copy.schema() == lake.table.schema()
    assert copy.protocol() == lake.table.protocol()
    assert str(copy.metadata().id) != str(lake.table.metadata().id)


def test_files_of_another_schema_are_not_taken_over(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    event = lake.event([1])
    other = tmp_path / "other"
    put(
        other,
        0,
        info(),
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata([column("x")]),
    )
    with pytest.raises(BadFiles, match="has another one"):
        lake.maintenance(str(other)).adopt(event)


NOTE = pa.schema([pa.field("id", pa.int64()), pa.field("note", pa.string())])


def evolved(lake: DeltaLake) -> list[FilesWritten]:
    """Return events of two commits, between which the table gets a column."""
    older = lake.event([1])
    stream = Stream(lake)
    stream.add(1, older)
    evolve(ADAPTER, ADAPTER.parse_table(lake.location), NOTE)
    newer = lake.write(pa.record_batch([[2], ["n"]], schema=NOTE))
    stream.add(2, newer)
    return [older, newer]


def test_a_schema_that_clean_up_deleted_is_named_before_a_table_is_made(lake: DeltaLake) -> None:
    older, newer = evolved(lake)
    lake.expire(1)
    new = lake.maintenance(lake.location + "2")
    new.examine(newer)
    says = "clean-up has deleted that schema from its log. Copy the whole folder of the table"
    with pytest.raises(BadFiles, match=says):
        new.examine(older)
    new.create_like(ADAPTER.parse_table(lake.location))
    with pytest.raises(BadFiles, match=says):
        new.adopt(older)
    assert new.adopt(newer).location == new.location


def test_a_broken_schema_is_corrected(lake: DeltaLake) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    broken = metadata(table=stream.table)
    put(lake.root, 1, info(), {"metaData": {**broken["metaData"], "schemaString": "{"}})
    with pytest.raises(LakeUnavailable, match="Correct it"):
        stream.committer.check([event])
    put(lake.root, 2, info(), metadata(table=stream.table))
    stream.committer.check([event])


class Vanishing(LocalStorage):
    """Loses a file of the log once, right before it is read, as clean-up does."""

    lost = ""

    def read(self, name: str) -> bytes | None:
        if name == self.lost:
            self.lost = ""
            return None
        return super().read(name)


def test_references_are_read_again_after_clean_up(lake: DeltaLake) -> None:
    (file,) = lake.event([1]).files
    storage = Vanishing(lake.location)
    maintenance = type(lake.maintenance())(storage)
    storage.lost = f"_delta_log/{0:020d}.json"
    with pytest.raises(LakeUnavailable, match="Try again"):
        maintenance.file_status([file.path])
    assert maintenance.file_status([file.path]) == {file.path: FileStatus.UNREFERENCED}


def test_a_damaged_file_of_the_log_is_restored_before_orphans_are_deleted(lake: DeltaLake) -> None:
    Stream(lake).commit(1, [1])
    (file,) = lake.event([2]).files
    kept = lake.commit_file(1).read_bytes()
    lake.commit_file(1).write_bytes(b"?")
    with pytest.raises(LakeUnavailable, match="Restore that file from a backup"):
        lake.maintenance().delete_unreferenced(file.path)
    lake.commit_file(1).write_bytes(kept)
    assert lake.maintenance().delete_unreferenced(file.path) is FileStatus.DELETED
