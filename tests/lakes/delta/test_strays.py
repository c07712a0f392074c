"""Versions that a process put after it stood still, where others were cleaned up: they are in no history."""

from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.port import Absent, CommitRequest, Found, OutcomeUnknown, Published
from tests.contracts.lakes.delta_lake import DeltaLake, ThawingStorage
from tests.contracts.lakes.harness import USER, Stream


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path)


@pytest.mark.slow
def test_a_stray_is_not_found_by_the_successor(lake: DeltaLake) -> None:
    first = Stream(lake)
    first.commit(1, [1])

    def meanwhile() -> None:
        lake.foreign([100])
        lake.foreign([200])
        lake.expire(1)

    event = lake.event([2])
    lake.strand(2, event, meanwhile)
    assert lake.versions() == [2, 3]
    successor = Stream(lake)
    successor.recorded = first.recorded
    # The marker of decision 1 is in the checkpoint, and none of decision 2 is.
    assert isinstance(successor.ask(2), Absent)
    assert lake.ids() == [1, 100, 200]
    history = lake.maintenance().history()
    assert [each.ref.id for each in history.commits] == [3]
    assert not history.whole
    paths = [file.path for file in event.files]
    assert set(lake.maintenance().file_status(paths).values()) == {FileStatus.REFERENCED}


@pytest.mark.slow
def test_a_process_that_stood_still_never_takes_its_stray_for_a_commit(lake: DeltaLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])

    def meanwhile() -> None:
        lake.foreign([100])
        lake.foreign([200])
        lake.expire(1)

    late = DeltaCommitter(ThawingStorage(lake.location, meanwhile, killed=False), USER)
    head = late.inspect().head
    event = lake.event([2])
    outcome = late.publish(CommitRequest(2, "digest-2", head, None, [event]))
    assert isinstance(outcome, OutcomeUnknown), outcome
    answer = late.ask(2, "digest-2", stream.table, head)
    assert isinstance(answer, Absent)
    again = late.publish(CommitRequest(2, "digest-2", answer.head, None, [event]))
    assert isinstance(again, Published)
    assert again.snapshot.id == 4
    assert lake.ids() == [1, 2, 100, 200]


@pytest.mark.slow
def test_a_checkpoint_right_after_the_commit_is_no_loss(lake: DeltaLake) -> None:
    """Another process may be faster than the check that follows a put."""
    stream = Stream(lake)
    stream.commit(1, [1])

    class Overtaken(ThawingStorage):
        def link(self, draft: str, target: str) -> None:
            super().link(draft, target)
            lake.foreign([100])
            lake.table.create_checkpoint()

    late = DeltaCommitter(Overtaken(lake.location, lambda: None, killed=False), USER)
    head = late.inspect().head
    outcome = late.publish(CommitRequest(2, "digest-2", head, None, [lake.event([2])]))
    assert isinstance(outcome, OutcomeUnknown)
    answer = late.ask(2, "digest-2", stream.table, head)
    assert isinstance(answer, Found)
    assert answer.snapshot.id == 2
    assert lake.ids() == [1, 2, 100]
