"""What a Paimon table refers to beside its snapshots, what is no data file of it, and where links lead."""

import json
import os
import shutil
from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.maintenance import PaimonMaintenance
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


def committed(lake: PaimonLake) -> str:
    """Commit a file; returns its path."""
    event = lake.event([1])
    Stream(lake).add(1, event)
    return event.files[0].path


@pytest.mark.parametrize("keeper", ["snapshot", "tag", "branch", "branch's tag", "changelog"])
def test_a_file_stays_as_long_as_anything_can_be_read_by_it(lake: PaimonLake, keeper: str) -> None:
    path = committed(lake)
    kept = (lake.root / "snapshot" / "snapshot-1").read_bytes()
    (lake.root / "snapshot" / "snapshot-1").unlink()
    folder = {
        "snapshot": "snapshot/snapshot-1",
        "tag": "tag/tag-before",
        "branch": "branch/branch-b/snapshot/snapshot-1",
        "branch's tag": "branch/branch-b/tag/tag-before",
        "changelog": "changelog/changelog-1",
    }[keeper]
    (lake.root / folder).parent.mkdir(parents=True, exist_ok=True)
    (lake.root / folder).write_bytes(kept)
    drafts = [f"manifest/{name}" for name in os.listdir(lake.root / "manifest")]
    assert [lake.maintenance().delete_unreferenced(each) for each in (path, *drafts)] == (
        [FileStatus.REFERENCED] * 4
    )
    (lake.root / folder).unlink()
    assert [lake.maintenance().delete_unreferenced(each) for each in (path, *drafts)] == (
        [FileStatus.DELETED] * 4
    )


def test_tags_and_branches_of_the_library_are_read(lake: PaimonLake) -> None:
    path = committed(lake)
    lake.table.create_tag("before", 1)
    lake.catalog.create_branch("db.numbers", "b", "before")
    loser = lake.event([9]).files[0].path
    assert lake.maintenance().file_status([path, loser]) == {
        path: FileStatus.REFERENCED,
        loser: FileStatus.UNREFERENCED,
    }


def test_nothing_is_deleted_while_a_manifest_is_missing(lake: PaimonLake) -> None:
    committed(lake)
    loser = lake.event([9]).files[0].path
    head = json.loads((lake.root / "snapshot" / "snapshot-1").read_bytes())
    (lake.root / "manifest" / head["deltaManifestList"]).unlink()
    with pytest.raises(LakeUnavailable, match="a manifest of it is not"):
        lake.maintenance().delete_unreferenced(loser)
    assert (lake.root / loser).exists()


@pytest.mark.parametrize(
    "path",
    [
        "snapshot/snapshot-1",
        "schema/schema-0",
        "manifest/bucket-0/x",
        "tag/tag-a",
        "bucket-0/../schema/schema-0",
        "bucket-0",
        "a=1/../bucket-0/x",
    ],
)
def test_what_is_no_place_of_a_data_file_is_left_alone(lake: PaimonLake, path: str) -> None:
    committed(lake)
    os.makedirs(lake.root / "manifest" / "bucket-0", exist_ok=True)
    (lake.root / "manifest" / "bucket-0" / "x").write_text("x")
    assert lake.maintenance().delete_unreferenced(path) is FileStatus.OUTSIDE
    assert (lake.root / "snapshot" / "snapshot-1").exists()
    assert (lake.root / "schema" / "schema-0").exists()


def test_a_folder_that_leads_out_of_the_table_is_not_followed(lake: PaimonLake, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (lake.root / "bucket-7").symlink_to(elsewhere)
    with pytest.raises(LakeUnavailable, match="leads out of the table"):
        lake.maintenance().delete_unreferenced("bucket-7/precious")
    assert (elsewhere / "precious").exists()


def test_files_are_not_taken_over_into_another_schema(lake: PaimonLake, tmp_path: Path) -> None:
    event = lake.event([1])
    (tmp_path / "other" / "schema").mkdir(parents=True)
    schema = json.loads((lake.root / "schema" / "schema-0").read_bytes())
    schema["fields"][0]["name"] = "number"
    (tmp_path / "other" / "schema" / "schema-0").write_text(json.dumps(schema))
    maintenance = lake.adapter.open_maintenance(lake.adapter.parse_table(str(tmp_path / "other")))
    assert isinstance(maintenance, PaimonMaintenance)
    with pytest.raises(BadFiles, match="make the new table with the same schemas"):
        maintenance.adopt(event)


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_what_a_link_leads_out_of_the_table_is_refused(tmp_path: Path, linked: str) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    event = lake.event([1])
    path = lake.root / event.files[0].path
    inside, outside = path if linked == "file" else path.parent, tmp_path / "outside"
    shutil.move(inside, outside)
    inside.symlink_to(outside)
    Stream(lake).refuses(event, "out of the table")
    assert lake.ids() == []


def test_a_table_that_stands_behind_a_link_is_as_any_other(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    link = tmp_path / "link"
    link.symlink_to(lake.root)
    event = lake.event([1])
    committer = ADAPTER.open_committer(ADAPTER.parse_table(str(link)), USER)
    committer.inspect()
    committer.check([event.model_copy(update={"location": link.as_uri()})])


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", "a/" * 3000 + "b", "loop/x"])
def test_a_name_that_no_file_can_have_is_of_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert LocalStorage(str(tmp_path)).size(name) is None
