"""New columns of Delta tables beside commits of others, and with outcomes that are not known."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.new_columns import add_columns, read_columns
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import LakeUnavailable, Published, TableRefused
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake, FaultyStorage
from tests.contracts.lakes.harness import USER, Fault, Stream
from tests.lakes.outcomes import is_refused

NOTE = pa.schema([("id", pa.int64()), ("note", pa.string())])


def gain(root: Path | str, schema: pa.Schema = NOTE) -> None:
    evolve(ADAPTER, ADAPTER.parse_table(str(root)), schema)


def test_a_table_that_was_made_again_is_read_again(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    storage = LocalStorage(lake.location)
    seen = read_columns(storage)
    lake.replace()
    assert add_columns(storage, [NOTE.field("note")], seen) is False
    assert lake.schemas() == 1


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


def test_a_commit_that_is_under_way_is_decided_again(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    storage = Between(lake.location)
    stream = Stream(lake, DeltaCommitter(storage, USER))
    checked = stream.committer.check([lake.event([1])])
    storage.act = lambda: gain(lake.location)
    assert is_refused(stream.publish(1, stream.head(1), checked), again=True)
    newer = lake.write(pa.record_batch([[2], ["b"]], schema=NOTE))
    again = [*stream.committer.check([lake.event([1])]), *stream.committer.check([newer])]
    assert isinstance(stream.publish(1, stream.head(1), again), Published)
    assert [row["note"] for row in lake.rows()] == [None, "b"]


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DeltaLake(tmp_path)

    def no_links(draft: str, target: str) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(TableRefused, match="no hard links"):
        gain(lake.location)
    assert lake.schemas() == 1
