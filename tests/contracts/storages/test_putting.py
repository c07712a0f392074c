"""Put-if-absent of every storage: of all that put one name, one wins."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from sluicegate.lakes.storage import Storage
from tests.contracts.storages.conftest import Place

WRITERS = 8


def test_the_second_put_of_a_name_changes_nothing(place: Place, storage: Storage) -> None:
    assert storage.put_if_absent("snapshot/snapshot-1", b"first")
    assert not storage.put_if_absent("snapshot/snapshot-1", b"second")
    assert not place.open().put_if_absent("snapshot/snapshot-1", b"third")
    assert storage.read("snapshot/snapshot-1") == b"first"
    assert storage.names("snapshot") == ["snapshot-1"]
    storage.settle("snapshot")


def test_a_deleted_name_can_be_put_again(storage: Storage) -> None:
    assert storage.put_if_absent("snapshot/snapshot-1", b"first")
    storage.remove("snapshot/snapshot-1")
    assert storage.put_if_absent("snapshot/snapshot-1", b"second")
    assert storage.read("snapshot/snapshot-1") == b"second"


def test_nothing_but_the_files_is_left(storage: Storage) -> None:
    storage.put_if_absent("snapshot/snapshot-1", b"first")
    storage.put_if_absent("snapshot/snapshot-1", b"second")
    assert storage.names(".") == ["snapshot"]


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


def test_neighbours_do_not_stand_in_the_way(storage: Storage) -> None:
    names = [f"snapshot/snapshot-{number}" for number in (1, 10, 100)]
    assert all(storage.put_if_absent(name, name.encode()) for name in names)
