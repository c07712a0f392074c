"""What a commit reads of the log: nothing again that has not changed, and all that has."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.port import Found, Published, Unproven
from sluicegate.lakes.storage import Stamped
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.outcomes import is_refused

FILES = 1_000
MOST = 4_000
"""Bytes. A commit of one file has about a thousand."""


class Counting(LocalStorage):
    """Counts the bytes that are read."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.bytes = 0

    def read_stamped(self, name: str) -> Stamped | None:
        found = super().read_stamped(name)
        self.bytes += len(found.content) if found is not None else 0
        return found


def partitioned(folder: Path) -> DeltaLake:
    return DeltaLake(folder, pa.schema([("id", pa.int64()), ("p", pa.int64())]), ["p"])


def files(lake: DeltaLake, number: int) -> FilesWritten:
    """Write files, one for each partition."""
    numbers = pa.array(range(number), pa.int64())
    return lake.write(pa.record_batch({"id": numbers, "p": numbers}))


def committed(stream: Stream, decision: int, event: FilesWritten) -> None:
    """Commit as a coordinator does, with all that it asks the committer."""
    head = stream.head(decision)
    stream.committer.premises()
    checked = stream.committer.check([event])
    outcome = stream.publish(decision, head, checked)
    assert isinstance(outcome, Published), outcome
    stream.recorded = outcome.snapshot


@pytest.mark.slow
def test_a_small_commit_after_a_large_one_reads_little(tmp_path: Path) -> None:
    lake = partitioned(tmp_path)
    storage = Counting(lake.location)
    stream = Stream(lake, DeltaCommitter(storage, USER))
    committed(stream, 1, files(lake, FILES))
    assert lake.commit_file(1).stat().st_size > 50 * MOST
    for decision in (2, 3):
        event, before = files(lake, 1), storage.bytes
        committed(stream, decision, event)
        assert storage.bytes - before < MOST


@pytest.mark.slow
def test_a_large_commit_of_another_writer_is_read_once(tmp_path: Path) -> None:
    lake = partitioned(tmp_path)
    stream = Stream(lake)
    first, second = files(lake, FILES), files(lake, 1)
    committed(Stream(lake, lake.committer("another")), 1, first)
    old = lake.commit_file(1).stat().st_mtime_ns - 10**10
    os.utime(lake.commit_file(1), ns=(old, old))
    storage = Counting(lake.location)
    stream = Stream(lake, DeltaCommitter(storage, USER))
    whole = storage.bytes
    assert whole > 50 * MOST
    committed(stream, 1, second)
    assert storage.bytes - whole < MOST


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def by_rename(path: Path, content: bytes) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(content)
    other.replace(path)


def anew(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("overwrite", [in_place, by_rename, anew])
@pytest.mark.parametrize("asked", [False, True], ids=["before the question", "before the commit"])
def test_a_version_that_is_overwritten_by_one_of_its_size_is_noticed(
    tmp_path: Path, overwrite: Callable[[Path, bytes], None], asked: bool
) -> None:
    """Right after it was put, where times of files may not have moved on."""
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    event = lake.event([2])
    stream.commit(1, [1])
    path = lake.commit_file(1)
    content = path.read_bytes().replace(b"digest-1", b"digest-X")
    if not asked:
        overwrite(path, content)
        assert isinstance(stream.ask(2), Unproven)
        return
    head = stream.head(2)
    stream.committer.check([event])
    overwrite(path, content)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    assert not lake.commit_file(2).exists()


def test_a_file_that_only_looks_changed_is_read_and_found_unchanged(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1])
    lake.commit_file(1).touch()
    assert isinstance(stream.ask(1), Found)
    by_rename(lake.commit_file(1), lake.commit_file(1).read_bytes())
    stream.commit(2, [2])
    assert lake.ids() == [1, 2]
