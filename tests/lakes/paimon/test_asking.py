"""Asking is a part of each commit: it reads what was put since the recorded snapshot, and nothing older."""

from pathlib import Path

import pytest

from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


class Counting(LocalStorage):
    """Counts how often snapshots are read and the folder is listed."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.reads = 0

    def read(self, name: str) -> bytes | None:
        self.reads += name.startswith("snapshot/")
        return super().read(name)

    def names(self, folder: str, after: str = "") -> list[str]:
        self.reads += folder == "snapshot"
        return super().names(folder, after)


@pytest.mark.slow
def test_a_commit_reads_as_many_snapshots_at_every_age(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    storage = Counting(lake.location)
    stream = Stream(lake, PaimonCommitter(storage, USER))
    reads = []
    for decision in range(1, 41):
        before = storage.reads
        stream.commit(decision, [decision])
        reads.append(storage.reads - before)
    assert len(set(reads[1:])) == 1, reads


@pytest.mark.slow
def test_commits_of_others_cost_one_read_each(tmp_path: Path) -> None:
    """Also those of a foreign job with our commit user."""
    lake = PaimonLake(tmp_path)
    storage = Counting(lake.location)
    stream = Stream(lake, PaimonCommitter(storage, USER))
    stream.commit(1, [1])
    before = storage.reads
    stream.ask(2)
    alone, before = storage.reads - before, storage.reads
    for number in range(5):
        lake.impostor(1, [100 + number])
    stream.ask(2)
    assert storage.reads - before <= alone + 5 + 1
