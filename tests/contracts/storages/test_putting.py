"""Put-if-absent of every storage: of all that put one name, one wins."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from sluicegate.lakes.delta.versions import Packed
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Stamped, Storage
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.storages.conftest import Place

pytestmark = pytest.mark.seam

WRITERS = 8
TICK = 50_000_000
"""Nanoseconds in which the clock of a file system moves on."""


def test_the_second_put_of_a_name_changes_nothing(place: Place, storage: Storage) -> None:
    assert storage.put_if_absent("snapshot/snapshot-1", b"first")
    assert not storage.put_if_absent("snapshot/snapshot-1", b"second")
    assert not place.open().put_if_absent("snapshot/snapshot-1", b"third")
    assert storage.read("snapshot/snapshot-1") == b"first"
    assert storage.names("snapshot") == ["snapshot-1"]
    storage.settle("snapshot")


def test_files_are_there_before_a_put_that_follows_them(storage: Storage) -> None:
    files = {"one": b"1", "two": b"2"}
    assert storage.put_after("manifest", files, "snapshot/snapshot-1", b"first")
    assert {name: storage.read(f"manifest/{name}") for name in files} == files
    assert storage.read("snapshot/snapshot-1") == b"first"
    assert sorted(storage.names(".")) == ["manifest", "snapshot"]


def test_a_refused_put_leaves_the_files_that_came_before_it(storage: Storage) -> None:
    storage.put_if_absent("snapshot/snapshot-1", b"first")
    assert not storage.put_after("manifest", {"one": b"1"}, "snapshot/snapshot-1", b"second")
    assert storage.read("manifest/one") == b"1"
    assert storage.read("snapshot/snapshot-1") == b"first"
    assert storage.names("snapshot") == ["snapshot-1"]


def test_nothing_is_put_after_files_that_cannot_be_written(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "manifest").write_bytes(b"no folder")
    with pytest.raises(LakeUnavailable, match="cannot write to the folder manifest"):
        storage.put_after("manifest", {"one": b"1"}, "snapshot/snapshot-1", b"first")
    assert storage.names("snapshot") == []


def test_content_in_parts_is_put_whole(storage: Storage) -> None:
    content = Packed(plain=10)
    for number in range(100):
        content.add(b"%d," % number)
    assert storage.put_if_absent("snapshot/snapshot-1", content)
    assert storage.read("snapshot/snapshot-1") == b"".join(b"%d," % number for number in range(100))
    assert not storage.put_if_absent("snapshot/snapshot-1", b"other")


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 1 << 20])
def test_a_race_has_one_winner(place: Place, size: int) -> None:
    """Each writer has clients of its own, as another process has."""
    storages = [place.open() for _ in range(WRITERS)]
    rounds = 12 if size < 1 << 20 else 3
    at_once = Barrier(WRITERS)

    def race(writer: int) -> list[bool]:
        won = []
        try:
            for number in range(rounds):
                at_once.wait()
                name = f"snapshot/snapshot-{number}"
                won.append(storages[writer].put_if_absent(name, bytes([writer]) * size))
        except BaseException:
            at_once.abort()
            raise
        return won

    with ThreadPoolExecutor(WRITERS) as threads:
        outcomes = list(threads.map(race, range(WRITERS)))
    reader = place.open()
    for number in range(rounds):
        winners = [writer for writer in range(WRITERS) if outcomes[writer][number]]
        assert len(winners) == 1, (number, winners)
        assert reader.read(f"snapshot/snapshot-{number}") == bytes([winners[0]]) * size


def test_a_stamp_is_of_one_content(place: Place, storage: Storage) -> None:
    name = "snapshot/snapshot-1"
    assert storage.stamp(name) is None
    assert storage.read_stamped(name) is None
    assert storage.stamp_of_put(name) is None
    assert storage.put_if_absent(name, b"one")
    put = storage.stamp_of_put(name)
    assert put is not None
    assert storage.stamp(name) == place.open().stamp(name) == put
    assert storage.read_stamped(name) == Stamped(b"one", put)
    assert storage.stamp_of_put("snapshot/snapshot-2") is None
    assert not storage.put_if_absent(name, b"two")
    assert storage.stamp_of_put(name) is None
    assert storage.stamp(name) == put


@pytest.mark.slow
def test_a_file_that_replaces_another_one_has_another_stamp(place: Place, storage: Storage) -> None:
    """Also one of the same size, at the same moment."""
    name, other = "snapshot/snapshot-1", place.open()
    stamps: set[str] = set()
    for number in range(20):
        content = b"%03d" % number
        assert storage.put_if_absent(name, content)
        assert storage.read(name) == content
        stamps.add(storage.stamp_of_put(name) or "")
        other.hint(name, b"abc")
        found = storage.read_stamped(name)
        assert found is not None
        assert found.content == b"abc"
        assert found.stamp is None or found.stamp not in stamps
        assert other.remove(name)
        assert storage.stamp(name) is None
    assert len(stamps) == 20
    assert "" not in stamps


def test_a_file_that_could_change_within_one_tick_of_a_clock_has_no_stamp(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    path = tmp_path / "log" / "1"
    assert storage.put_if_absent("log/1", b"1")
    put = path.stat()
    # Whoever writes to it now gives it a time that it has not had, however coarse the clock is.
    assert put.st_ctime_ns - put.st_mtime_ns >= TICK
    for age, stamped in ((-TICK, False), (0, False), (5 * TICK, True)):
        moment = time.time_ns() // 1_000_000 * 1_000_000 - age + 1
        os.utime(path, ns=(moment, moment))
        assert (storage.stamp("log/1") is not None) is stamped
    moment = time.time_ns() // 10**9 * 10**9 - 10**9
    os.utime(path, ns=(moment, moment))
    assert storage.stamp("log/1") is None
