"""A Delta table whose schema, log or references are damaged, and mended."""

from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import info, metadata, put


def test_a_broken_schema_is_corrected(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
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


def test_references_are_read_again_after_clean_up(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    (file,) = lake.event([1]).files
    storage = Vanishing(lake.location)
    maintenance = type(lake.maintenance())(storage)
    storage.lost = f"_delta_log/{0:020d}.json"
    with pytest.raises(LakeUnavailable, match="Try again"):
        maintenance.file_status([file.path])
    assert maintenance.file_status([file.path]) == {file.path: FileStatus.UNREFERENCED}


def test_a_damaged_file_of_the_log_is_restored_before_orphans_are_deleted(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    Stream(lake).commit(1, [1])
    (file,) = lake.event([2]).files
    kept = lake.commit_file(1).read_bytes()
    lake.commit_file(1).write_bytes(b"?")
    with pytest.raises(LakeUnavailable, match="Restore that file from a backup"):
        lake.maintenance().delete_unreferenced(file.path)
    lake.commit_file(1).write_bytes(kept)
    assert lake.maintenance().delete_unreferenced(file.path) is FileStatus.DELETED
