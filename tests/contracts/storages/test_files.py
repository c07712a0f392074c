"""Files of every storage: what is written is read, whole, under its name."""

import threading
from pathlib import Path

import pytest

from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Range, Storage
from sluicegate.lakes.storages import open_storage
from tests.contracts.storages.conftest import Place

pytestmark = pytest.mark.seam

NAMES = ["plain.parquet", "dt=10%3A30", "a b", "café", "a+b&c=d,e;f@g~h", "x" * 200]


def test_what_is_not_there_is_absent(storage: Storage) -> None:
    assert storage.read("snapshot/snapshot-1") is None
    assert storage.size("snapshot/snapshot-1") is None
    assert storage.names("snapshot") == []
    assert not storage.remove("snapshot/snapshot-1")
    storage.discard("snapshot", ["snapshot-1"])


def test_written_files_are_read_by_others(place: Place, storage: Storage) -> None:
    files = {name: name.encode() * 3 for name in NAMES}
    storage.write("manifest", files)
    other = place.open()
    assert sorted(other.names("manifest")) == sorted(NAMES)
    assert {name: other.read(f"manifest/{name}") for name in NAMES} == files
    assert other.sizes([*(f"manifest/{name}" for name in NAMES), "manifest/none"]) == [
        *(len(content) for content in files.values()),
        None,
    ]


def test_names_are_those_of_one_folder(storage: Storage) -> None:
    storage.write("dt=1/bucket-0", {"a": b"1"})
    storage.write("dt=1", {"b": b"1"})
    storage.write("dt=10", {"c": b"1"})
    assert sorted(storage.names("dt=1")) == ["b", "bucket-0"]
    assert storage.names("dt=1/bucket-0") == ["a"]
    assert sorted(storage.names(".")) == ["dt=1", "dt=10"]


def test_names_after_one_of_them(storage: Storage) -> None:
    storage.write("log", {f"{number:03}.json": b"{}" for number in range(12)})
    storage.write("log/sidecars", {"x": b"1"})
    assert sorted(storage.names("log", "009.json")) == ["010.json", "011.json", "sidecars"]
    assert storage.names("log", "sidecars") == []
    assert sorted(storage.names("log", "0095")) == ["010.json", "011.json", "sidecars"]


@pytest.mark.slow
def test_a_large_file_is_whole(storage: Storage) -> None:
    content = bytes(range(256)) * (70 << 10)
    storage.write("bucket-0", {"large": content})
    assert storage.size("bucket-0/large") == len(content)
    assert storage.read("bucket-0/large") == content


@pytest.mark.slow
def test_a_file_is_visible_whole_or_not_at_all(place: Place, storage: Storage) -> None:
    content = bytes(4 << 20)
    seen: set[int | None] = set()
    ended = threading.Event()

    def look() -> None:
        reader = place.open()
        while True:
            last = ended.is_set()
            found = reader.read("snapshot/snapshot-1")
            seen.add(None if found is None else len(found))
            if last:
                return

    reader = threading.Thread(target=look)
    reader.start()
    try:
        assert storage.put_if_absent("snapshot/snapshot-1", content)
    finally:
        ended.set()
        reader.join()
    assert seen <= {None, len(content)}
    assert len(content) in seen


def test_deleted_files_are_gone(storage: Storage) -> None:
    storage.write("manifest", {"a": b"1", "b": b"2", "c": b"3"})
    assert storage.remove("manifest/a")
    assert not storage.remove("manifest/a")
    storage.discard("manifest", ["b", "not-there"])
    assert storage.names("manifest") == ["c"]


def test_a_file_outside_is_not_removed(place: Place, storage: Storage) -> None:
    other = place.open("other")
    other.write("manifest", {"a": b"1"})
    storage.write("manifest", {"a": b"1"})
    assert storage.leads_out("../other/manifest")
    with pytest.raises(LakeUnavailable, match="leads out of the table"):
        storage.remove("../other/manifest/a")
    assert other.read("manifest/a") == b"1"


def test_a_hint_is_replaced_whole(storage: Storage) -> None:
    storage.write("snapshot", {"snapshot-1": b"1"})
    for content in (b"100", b"7", b""):
        storage.hint("snapshot/LATEST", content)
        assert storage.read("snapshot/LATEST") == content


def test_a_file_is_replaced_whole(storage: Storage) -> None:
    for content in (b"100", b"7", b"1000"):
        storage.replace("dt=1/_SUCCESS", content)
        assert storage.read("dt=1/_SUCCESS") == content
    assert storage.names("dt=1") == ["_SUCCESS"]


def test_a_copy_is_whole_and_replaces_a_part(place: Place, storage: Storage, tmp_path: Path) -> None:
    beside, local = place.open("source"), open_storage(str(tmp_path / "elsewhere"))
    local.make_folder()
    for source in (beside, local):
        source.write("dt=1/bucket-0", {"data": source.uri.encode()})
        storage.copy(source, "dt=1/bucket-0/data")
        storage.settle_files(["dt=1/bucket-0/data"])
        assert storage.read("dt=1/bucket-0/data") == source.uri.encode()
    local.copy(storage, "dt=1/bucket-0/data")
    assert local.read("dt=1/bucket-0/data") == local.uri.encode()


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", "a/" * 3000 + "b"])
def test_a_name_that_no_file_can_have_is_of_no_file(storage: Storage, name: str) -> None:
    assert storage.size(name) is None
    assert storage.sizes([name]) == [None]


def test_parts_of_files_are_read(storage: Storage) -> None:
    storage.write("bucket-0", {"a": b"0123456789", "b ü%20": b"xy"})
    wanted = [Range("bucket-0/a", 7, 3), Range("bucket-0/b ü%20", 0, 2), Range("bucket-0/none", 0, 1)]
    assert storage.read_ranges(wanted) == [b"789", b"xy", None]
    assert storage.read_ranges([Range("bucket-0/a", 2, 4)]) == [b"2345"]


def test_only_a_new_table_gets_a_folder(tmp_path: Path) -> None:
    """A folder that is missing may be a share that is not mounted: what is written there would be hidden."""
    storage, other = open_storage(f"{tmp_path}/db/numbers"), open_storage(f"{tmp_path}/other")
    other.make_folder()
    other.write("data", {"a": b"x"})
    for write in (
        lambda: storage.write("data", {"a": b"x"}),
        lambda: storage.write(".", {"a": b"x"}),
        lambda: storage.put_if_absent("log/a", b"x"),
        lambda: storage.put_after("data", {"a": b"x"}, "log/a", b"x"),
        lambda: storage.copy(other, "data/a"),
    ):
        with pytest.raises(LakeUnavailable):
            write()
        storage.hint("a", b"x")
        assert not (tmp_path / "db").exists()
    storage.make_folder()
    storage.write("data/of/a/partition", {"a": b"x"})
    assert open_storage(f"{tmp_path}/db/numbers").read("data/of/a/partition/a") == b"x"
