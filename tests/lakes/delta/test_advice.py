"""What the lake advises for a Delta table is done, and the same step succeeds."""

from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles, LakeUnavailable, TableRefused
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import column, info, metadata, protocol, put


def test_options_are_left_out(tmp_path: Path) -> None:
    for options, words in (
        ({"upsert": "id"}, "leave the option out, append the changes"),
        ({"colour": "red"}, "no option colour; the option is checkpoints. Leave it out, or correct its name"),
        ({"checkpoints": "no"}, "Set it to one of them"),
    ):
        with pytest.raises(TableRefused) as error:
            ADAPTER.parse_table(str(tmp_path), options)
        assert words in str(error.value)
    for options in ({}, {"checkpoints": "off"}):
        assert ADAPTER.parse_table(str(tmp_path), options).options == options


def test_a_commit_user_gets_another_name(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    table = ADAPTER.parse_table(lake.location)
    with pytest.raises(TableRefused, match="Set `commit_user` to another name"):
        ADAPTER.open_committer(table, "a.digest")
    ADAPTER.open_committer(table, "a")


@pytest.mark.slow
def test_a_damaged_commit_file_is_restored(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1])
    kept = lake.commit_file(1).read_bytes()
    lake.commit_file(1).write_bytes(b"?")
    with pytest.raises(LakeUnavailable, match="Restore that file of its folder"):
        stream.ask(2)
    lake.commit_file(1).write_bytes(kept)
    stream.commit(2, [2])
    assert lake.ids() == [1, 2]


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


def test_a_log_that_is_away_is_brought_back(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    (file,) = lake.event([1]).files
    lake.log.rename(tmp_path / "away")
    with pytest.raises(LakeUnavailable, match="Mount its storage, or restore its log"):
        lake.maintenance().file_status([file.path])
    (tmp_path / "away").rename(lake.log)
    assert lake.maintenance().file_status([file.path]) == {file.path: FileStatus.UNREFERENCED}


def test_files_go_to_a_table_of_their_schema(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    event = lake.event([1])
    put(tmp_path / "other", 0, info(), protocol(), metadata([column("x")]))
    with pytest.raises(BadFiles, match="or let it be made by naming a folder that is not there yet"):
        lake.maintenance(str(tmp_path / "other")).adopt(event)
    new = lake.maintenance(str(tmp_path / "new"))
    new.create_like(ADAPTER.parse_table(lake.location))
    assert new.adopt(event).location == new.location


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
