"""Upkeep of tables: what refers to a file, and what is never deleted."""

from collections import Counter, defaultdict
from pathlib import Path

import fastavro
import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import LakeUnavailable
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.contracts.lakes.test_drafts import kill
from tests.lakes.iceberg.reading import lines


def status(lake: IcebergLake, path: str) -> FileStatus:
    return lake.maintenance().file_status([path])[path]


@pytest.mark.slow
def test_a_file_of_a_branch_or_a_tag_is_referenced(lake: IcebergLake) -> None:
    event = lake.event([1])
    Stream(lake).add(1, event)
    (path,) = (file.path for file in event.files)
    with lake.table.manage_snapshots() as snapshots:
        snapshots.create_tag(lake.metadata.snapshots[0]["snapshot-id"], "kept")
    lake.table.delete("id = 1")
    assert lake.ids() == []
    assert status(lake, path) is FileStatus.REFERENCED


@pytest.mark.slow
def test_a_deleted_file_is_referenced_until_its_snapshots_expire(lake: IcebergLake) -> None:
    event = lake.event([1])
    Stream(lake).add(1, event)
    (path,) = (file.path for file in event.files)
    lake.table.delete("id = 1")
    lake.foreign([2])
    assert status(lake, path) is FileStatus.REFERENCED
    lake.expire(1)
    assert status(lake, path) is FileStatus.UNREFERENCED


@pytest.mark.slow
@pytest.mark.parametrize("spelled", ["file:{}", "file://localhost{}", "{}", "file:///{}", "file://{}/."])
def test_a_committed_file_is_referenced_however_the_table_spells_its_location(
    lake: IcebergLake, spelled: str
) -> None:
    """Products write one folder in several ways, and owners change the location from one to another."""
    event = lake.event([1])
    Stream(lake).add(1, event)
    (path,) = (file.path for file in event.files)
    lake.edit(lambda fields: fields.update(location=spelled.format(lake.root)))
    assert lake.maintenance().delete_unreferenced(path) is FileStatus.REFERENCED
    assert (lake.root / path).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["metadata/x.avro", "../elsewhere", "data/../metadata/v.json", "elsewhere/x.parquet"]
)
def test_what_is_no_place_of_data_is_outside(lake: IcebergLake, path: str) -> None:
    Stream(lake).commit(1, [1])
    assert status(lake, path) is FileStatus.OUTSIDE
    assert lake.maintenance().delete_unreferenced(path) is FileStatus.OUTSIDE


def test_a_table_may_forbid_that_files_are_deleted(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, properties={"gc.enabled": "false"})
    event = lake.event([1])
    (path,) = (file.path for file in event.files)
    assert lake.maintenance().delete_unreferenced(path) is FileStatus.UNREFERENCED
    assert (lake.root / path).exists()


def kinds(lake: IcebergLake) -> dict[FileStatus, Counter[str]]:
    """Return the kinds of drafts, by status."""
    maintenance = lake.maintenance()
    found: dict[FileStatus, Counter[str]] = defaultdict(Counter)
    for path, status in maintenance.file_status([*maintenance.stated_files()]).items():
        found[status][path.rpartition("/")[2].split("-")[0].lstrip("0123456789") or "metadata"] += 1
    return found


def test_published_metadata_stays_until_nothing_of_the_table_can_read_it(tmp_path: Path) -> None:
    """A catalog may be set back to a metadata file of the log, and others may know an older one."""
    merging = {"commit.manifest.min-count-to-merge": "2"}
    lake = IcebergLake(tmp_path, properties={"write.metadata.previous-versions-max": "1", **merging})
    with_commits(lake, 4)
    assert [len(lake.fields()[each]) for each in ("metadata-log", "snapshots")] == [1, 4]
    assert {*kinds(lake)} == {FileStatus.REFERENCED}
    lake.expire(1)
    assert {*kinds(lake)} == {FileStatus.REFERENCED}
    assert kinds(lake)[FileStatus.REFERENCED]["metadata"] == 4
    lake.edit(lambda fields: fields.update({"metadata-log": []}))
    found = kinds(lake)
    numbers = {status: [found[status][kind] for kind in ("snap", "metadata")] for status in found}
    assert numbers == {FileStatus.REFERENCED: [1, 1], FileStatus.UNREFERENCED: [3, 3]}


def test_a_draft_that_any_field_of_the_metadata_names_stays(lake: IcebergLake) -> None:
    with_commits(lake, 1)
    lake.strand(2, lake.event([2]), kill)
    dead = {"manifest": 1, "snap": 1, "metadata": 1}
    assert kinds(lake)[FileStatus.UNREFERENCED] == dead
    maintenance = lake.maintenance()
    found = maintenance.file_status([*maintenance.stated_files()])
    path = next(path for path in found if found[path] is FileStatus.UNREFERENCED and "/manifest-" in path)
    lake.edit(lambda fields: fields.update(statistics=[{"snapshot-id": 1, "statistics-path": path}]))
    assert status(lake, path) is FileStatus.REFERENCED
    assert maintenance.delete_unreferenced(path) is FileStatus.REFERENCED


@pytest.mark.slow
def test_all_drafts_stay_while_earlier_metadata_cannot_be_read(lake: IcebergLake) -> None:
    with_commits(lake, 2)
    lake.strand(3, lake.event([3]), kill)
    (loser,) = (file.path for file in lake.event([4]).files)
    local(lake.fields()["metadata-log"][0]["metadata-file"]).write_text("{")
    assert {*kinds(lake)} == {FileStatus.REFERENCED}
    assert status(lake, loser) is FileStatus.UNREFERENCED


@pytest.mark.slow
def test_nothing_is_unreferenced_where_a_manifest_is_missing(lake: IcebergLake) -> None:
    Stream(lake).commit(1, [1])
    (path,) = (file.path for file in lake.event([2]).files)
    Path(lines(lake)[0]["manifest_path"].removeprefix("file://")).unlink()
    with pytest.raises(LakeUnavailable, match="is not there"):
        lake.maintenance().delete_unreferenced(path)
    assert (lake.root / path).exists()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file:", "", "file://localhost"])
def test_a_file_is_referenced_in_any_form_of_its_address(lake: IcebergLake, form: str) -> None:
    """Other products write addresses of local files in other forms."""
    event = lake.event([1])
    Stream(lake).add(1, event)
    manifest = Path(lines(lake)[0]["manifest_path"].removeprefix("file://"))
    with manifest.open("rb") as file:
        reader = fastavro.reader(file)
        entries, schema, header = list(reader), reader.writer_schema, dict(reader.metadata)
    for entry in entries:
        (path,) = (each.path for each in event.files)
        entry["data_file"]["file_path"] = f"{form}{lake.root}/{path}"
    with manifest.open("wb") as file:
        fastavro.writer(file, schema, entries, metadata=header)
    assert status(lake, path) is FileStatus.REFERENCED
    assert lake.maintenance().delete_unreferenced(path) is FileStatus.REFERENCED
