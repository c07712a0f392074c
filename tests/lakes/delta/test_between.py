"""Others change the table between our commits: they restore it, replace it, and lay it out in another way."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sluicegate.lakes.port import (
    Absent,
    Ahead,
    BadFiles,
    Found,
    Published,
    TableRefused,
    TableReplaced,
)
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.delta.making import column, info, metadata, put
from tests.lakes.outcomes import is_refused

PARTS = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path)


@pytest.mark.slow
def test_a_restore_takes_rows_back_and_no_decision(lake: DeltaLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    stream.commit(2, [2])
    lake.table.restore(1)
    assert lake.ids() == [1]
    assert isinstance(stream.ask(2), Found)
    stream.commit(3, [3])
    assert lake.ids() == [1, 3]
    successor = Stream(lake)
    assert isinstance(successor.ask(3), Found)
    history = lake.maintenance().history()
    assert [each.decision for each in history.commits if each.commit_user == USER] == [3, 2, 1]


@pytest.mark.slow
def test_a_restore_from_before_all_commits_is_no_fresh_table(lake: DeltaLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    lake.table.restore(0)
    lake.expire(1)
    assert isinstance(Stream(lake).ask(1), Found)
    stream.commit(2, [2])
    assert lake.ids() == [2]


def test_a_table_that_is_replaced_in_its_log_is_another_one(tmp_path: Path) -> None:
    """CREATE OR REPLACE keeps the log, with the transactions in it."""
    lake = DeltaLake(tmp_path, PARTS)
    stream = Stream(lake)
    event = lake.write(pa.record_batch({"id": pa.array([1], pa.int64()), "p": ["a"]}))
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
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
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, [decision])
    late = Stream(lake)
    assert late.ask(1) == Ahead(3, (3, "digest-3"))
    head = stream.head(4)
    assert is_refused(stream.publish(2, head, [lake.event([20])]), again=True)
    assert is_refused(stream.publish(3, head, [lake.event([30])]), again=True)
    assert lake.ids() == [1, 2, 3]


def test_a_table_that_is_dropped_is_refused_until_it_is_there_again(lake: DeltaLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
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
    assert isinstance(stream.publish(2, stream.head(2), [event]), Published)
    lake.table.create_checkpoint()
    put(lake.root, 2, info())
    successor = Stream(lake)
    successor.recorded = recorded
    assert isinstance(successor.publish(2, successor.head(2), [event]), Published)
    assert lake.ids() == [1, 2]
    assert isinstance(successor.ask(2), Found)
