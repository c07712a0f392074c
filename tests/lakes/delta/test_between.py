"""Others change the table between our commits, or while one stands still."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    BadFiles,
    Found,
    OutcomeUnknown,
    Published,
    TableRefused,
    TableReplaced,
    Unproven,
)
from tests.contracts.lakes.delta_lake import DeltaLake, ThawingStorage
from tests.contracts.lakes.harness import USER, Stream, with_commits
from tests.lakes.delta.making import column, info, metadata, put
from tests.lakes.outcomes import is_refused

PARTS = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.mark.slow
def test_a_restore_takes_rows_back_and_no_decision(lake: DeltaLake) -> None:
    stream = with_commits(lake, 2)
    lake.table.restore(1)
    assert lake.ids() == [1]
    assert isinstance(stream.ask(2), Found)
    stream.commit(3, [3])
    assert lake.ids() == [1, 3]
    successor = Stream(lake)
    assert isinstance(successor.ask(3), Found)
    history = lake.maintenance().history()
    assert [each.decision for each in history.commits if each.commit_user == USER] == [3, 2, 1]


def test_a_table_that_is_replaced_in_its_log_is_another_one(tmp_path: Path) -> None:
    """CREATE OR REPLACE keeps the log, with the transactions in it."""
    lake = DeltaLake(tmp_path, PARTS)
    stream = Stream(lake)
    event = lake.write(pa.record_batch({"id": pa.array([1], pa.int64()), "p": ["a"]}))
    stream.add(1, event)
    head = stream.head(2)
    DeltaTable.create(lake.location, PARTS, mode="overwrite", partition_by=["p"])
    assert lake.versions() == [0, 1, 2]
    assert is_refused(stream.publish(2, head, [event]), again=True)
    assert isinstance(stream.ask(2), TableReplaced)
    fresh = Stream(lake)
    assert fresh.table != stream.table
    assert lake.committer().inspect().head == fresh.recorded


def test_files_of_another_partitioning_are_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, PARTS)
    event = lake.write(pa.record_batch({"id": pa.array([1], pa.int64()), "p": ["a"]}))
    stream = Stream(lake)
    stream.committer.check([event])
    (said,) = lake.actions(0, "metaData")
    put(lake.root, 1, info(), metadata([column("id"), column("p", "string")], ["p"], table=str(said["id"])))
    with pytest.raises(BadFiles, match="other partition columns"):
        stream.committer.check([event])
    outcome = stream.publish(1, stream.head(1), [event])
    assert is_refused(outcome)
    assert "other partition columns" in outcome.reason


def test_a_lower_decision_on_the_newest_head_is_not_published(lake: DeltaLake) -> None:
    """Delta itself takes transactions with any version."""
    stream = with_commits(lake, 3)
    late = Stream(lake)
    assert late.ask(1) == Ahead(3, (3, "digest-3"))
    head = stream.head(4)
    assert is_refused(stream.publish(2, head, [lake.event([20])]), again=True)
    assert is_refused(stream.publish(3, head, [lake.event([30])]), again=True)
    assert lake.ids() == [1, 2, 3]


def test_a_table_that_is_dropped_is_refused_until_it_is_there_again(lake: DeltaLake) -> None:
    stream = with_commits(lake, 1)
    lake.drop()
    with pytest.raises(TableRefused, match="no Delta table"):
        lake.adapter.open_committer(lake.adapter.parse_table(lake.location), USER)
    lake._create()
    assert isinstance(stream.ask(1), TableReplaced)
    assert Stream(lake).ask(1) == Absent(None)


def test_a_version_that_another_writer_overwrote_after_a_checkpoint_counts_for_nothing(
    lake: DeltaLake,
) -> None:
    """The checkpoint still has its mark and its files; the same files once more double no rows."""
    stream = Stream(lake)
    recorded = stream.commit(1, [1])
    event = lake.event([2])
    stream.add(2, event)
    lake.table.create_checkpoint()
    put(lake.root, 2, info())
    successor = Stream(lake)
    successor.recorded = recorded
    assert isinstance(successor.publish(2, successor.head(2), [event]), Published)
    assert lake.ids() == [1, 2]
    assert isinstance(successor.ask(2), Found)


# --- versions of processes that stood still, where others were cleaned up ---------------------------


def others(lake: DeltaLake) -> Callable[[], None]:
    """Return what others do: two commits, and a clean-up of all versions before the second one."""

    def act() -> None:
        lake.foreign([100])
        lake.foreign([200])
        lake.expire(1)

    return act


@pytest.mark.slow
def test_a_stray_is_not_found_by_the_successor(lake: DeltaLake) -> None:
    first, event = with_commits(lake, 1), lake.event([2])
    lake.strand(2, event, others(lake))
    assert lake.versions() == [2, 3]
    successor = Stream(lake)
    successor.recorded = first.recorded
    # The marker of decision 1 is in the checkpoint, and none of decision 2 is.
    assert isinstance(successor.ask(2), Absent)
    assert lake.ids() == [1, 100, 200]
    history = lake.maintenance().history()
    assert ([each.ref.id for each in history.commits], history.whole) == ([3], False)
    paths = [file.path for file in event.files]
    assert set(lake.maintenance().file_status(paths).values()) == {FileStatus.REFERENCED}


@pytest.mark.slow
def test_a_process_that_stood_still_never_takes_its_stray_for_a_commit(lake: DeltaLake) -> None:
    with_commits(lake, 1)
    storage = ThawingStorage(lake.location, others(lake), killed=False)
    late, event = Stream(lake, DeltaCommitter(storage, USER)), lake.event([2])
    assert isinstance(late.publish(2, late.head(2), [event]), OutcomeUnknown)
    assert late.add(2, event).id == 4
    assert lake.ids() == [1, 2, 100, 200]


# --- versions that others overwrite -----------------------------------------------------------------


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
    lake: DeltaLake, overwrite: Callable[[Path, bytes], None], asked: bool
) -> None:
    """Right after it was put, where times of files may not have moved on."""
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


def test_a_file_that_only_looks_changed_is_read_and_found_unchanged(lake: DeltaLake) -> None:
    stream = with_commits(lake, 1)
    lake.commit_file(1).touch()
    assert isinstance(stream.ask(1), Found)
    by_rename(lake.commit_file(1), lake.commit_file(1).read_bytes())
    stream.commit(2, [2])
    assert lake.ids() == [1, 2]
