"""Commits that their owner rolls back, and brings back by cherry-pick: the copy is the same commit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.port import Absent, Ahead, Found, Published, Unproven
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import iceberg_of
from tests.iceberg_java.java import IcebergJava, sql_catalog

Job = Callable[..., None]
_ALL = 100
"""More snapshots than there are: only those that are in no branch expire."""


@pytest.fixture(params=["iceberg", "iceberg-v3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    return iceberg_of(request.param, request, tmp_path)


@pytest.fixture
def job(lake: IcebergLake, iceberg_java: IcebergJava) -> Job:
    """Return the jobs of another engine, on the table."""
    catalog = sql_catalog(lake.database, f"file://{lake.root.parent}")

    def change(kind: str, **more: object) -> None:
        iceberg_java.change(kind, catalog, str(lake.table_name), **more)

    return change


def picked(lake: IcebergLake, job: Job, decisions: int) -> tuple[Stream, list[SnapshotRef]]:
    """Commit decisions, roll all but the first one back, and pick them again, on a foreign snapshot."""
    stream = Stream(lake)
    made = [stream.commit(number, [number]) for number in range(1, decisions + 1)]
    job("rollback", snapshot=int(made[0].identity))
    job("append", ids=[100])
    for each in made[1:]:
        job("cherrypick", snapshot=int(each.identity))
    assert lake.ids() == [*range(1, decisions + 1), 100]
    stream.recorded = made[0]
    return stream, made


@pytest.mark.parametrize("expired", [False, True])
def test_a_commit_that_was_picked_again_is_found(lake: IcebergLake, job: Job, expired: bool) -> None:
    stream, _ = picked(lake, job, 2)
    if expired:
        job("expire", keep=_ALL)
    answer = stream.ask(2)
    assert isinstance(answer, Found)
    assert answer.snapshot.id == 4
    stream.recorded = answer.snapshot
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3, 100]


def test_an_earlier_commit_is_not_absent_when_its_source_has_expired(lake: IcebergLake, job: Job) -> None:
    """The mark shows the newest decision alone. What the other copy contains is not known."""
    stream, _ = picked(lake, job, 3)
    assert isinstance(stream.ask(2), Found | Ahead)
    job("expire", keep=_ALL)
    assert isinstance(stream.ask(2), Ahead | Unproven)
    assert isinstance(stream.ask(3), Found)


def test_copies_of_others_do_not_stop_commits(lake: IcebergLake, job: Job) -> None:
    stream = Stream(lake)
    first = stream.commit(1, [1])
    job("append", ids=[100])
    staged = int(lake.metadata.head("main")["snapshot-id"])  # type: ignore[index]
    job("rollback", snapshot=int(first.identity))
    job("append", ids=[101])
    job("cherrypick", snapshot=staged)
    job("expire", keep=_ALL)
    assert isinstance(stream.ask(2), Absent)
    done = stream.publish(2, stream.head(2), [lake.event([2])])
    assert isinstance(done, Published)
    assert lake.ids() == [1, 2, 100, 101]
