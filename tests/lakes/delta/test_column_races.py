"""New columns of Delta tables beside commits of others, and with outcomes that are not known."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.new_columns import add_columns, read_columns
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import (
    Absent,
    Found,
    LakeUnavailable,
    Published,
)
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake, FaultyStorage, Killed
from tests.contracts.lakes.harness import Fault, Stream

NOTE = pa.schema([("id", pa.int64()), ("note", pa.string())])


def gain(root: Path | str, schema: pa.Schema = NOTE) -> None:
    evolve(ADAPTER, ADAPTER.parse_table(str(root)), schema)


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.LOST])
def test_a_change_that_did_not_appear_is_made_by_the_repetition(tmp_path: Path, fault: Fault) -> None:
    lake = DeltaLake(tmp_path)
    storage = FaultyStorage(lake.location, fault)
    with pytest.raises(LakeUnavailable):
        add_columns(storage, [NOTE.field("note")], read_columns(storage))
    assert lake.schemas() == 1
    gain(lake.location)
    assert lake.schemas() == 2


def test_an_unknown_outcome_is_read_back(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    storage = FaultyStorage(lake.location, Fault.LANDED)
    assert add_columns(storage, [NOTE.field("note")], read_columns(storage)) is True
    assert lake.schemas() == 2


class Between(LocalStorage):
    """A storage in which something happens right before its first version becomes visible."""

    act: Callable[[], None] | None = None

    def link(self, draft: str, target: str) -> None:
        act, self.act = self.act, None
        if act is not None:
            act()
        super().link(draft, target)


@pytest.mark.parametrize("theirs", ["append", "column"])
def test_a_commit_of_others_at_the_same_time_is_kept(tmp_path: Path, theirs: str) -> None:
    lake = DeltaLake(tmp_path)
    storage = Between(lake.location)
    storage.act = (
        (lambda: lake.foreign([1])) if theirs == "append" else lambda: lake.alter("note", pa.string())
    )
    assert add_columns(storage, [NOTE.field("note")], read_columns(storage)) is False
    gain(lake.location)
    assert lake.schemas() == 2
    assert len(lake.rows()) == (1 if theirs == "append" else 0)


@pytest.mark.slow
def test_a_version_that_comes_too_late_does_not_count(tmp_path: Path) -> None:
    """Clean-up makes the number free again, but no reader uses it."""
    lake = DeltaLake(tmp_path)

    def meanwhile() -> None:
        for number in range(3):
            lake.foreign([number])
        lake.expire(1)

    storage = Between(lake.location)
    storage.act = meanwhile
    assert add_columns(storage, [NOTE.field("note")], read_columns(storage)) is False
    assert lake.rows() == [{"id": number} for number in range(3)]
    gain(lake.location)
    assert lake.rows() == [{"id": number, "note": None} for number in range(3)]


@pytest.mark.parametrize("visible", [False, True])
def test_a_committer_that_dies_beside_a_change_has_a_successor(tmp_path: Path, visible: bool) -> None:
    """The schema changes right before the link that decides a commit, or right after it."""
    lake = DeltaLake(tmp_path)
    event = lake.event([1])

    def change_and_die() -> None:
        gain(lake.location)
        raise Killed

    lake.strand(1, event, change_and_die if not visible else lambda: None)
    gain(lake.location)
    stream = Stream(lake)
    stream.recorded = None
    answer = stream.ask(1)
    assert isinstance(answer, Found if visible else Absent)
    if isinstance(answer, Absent):
        assert isinstance(stream.publish(1, answer.head, stream.committer.check([event])), Published)
    newer = lake.write(pa.record_batch([[2], ["b"]], schema=NOTE))
    assert isinstance(stream.publish(2, stream.head(2), [newer]), Published)
    assert [(row["id"], row["note"]) for row in lake.rows()] == [(1, None), (2, "b")]
    assert lake.schemas() == 2
