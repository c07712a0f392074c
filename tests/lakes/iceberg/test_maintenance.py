"""Upkeep of tables: what refers to a file, and what is never deleted."""

from pathlib import Path

import fastavro
import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import LakeUnavailable
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
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
