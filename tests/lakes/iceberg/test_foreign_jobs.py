"""Iceberg's Java library appends, deletes, compacts, expires and rolls back between our commits."""

from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.lakes.port import Absent, Ahead, Found, Unproven
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ICEBERG, ON_S3, RestLake
from tests.iceberg_java.java import IcebergJava, s3_properties, sql_catalog
from tests.lakes.iceberg.reading import duck_rows, lines

Job = Callable[..., None]


_OTHERS = [
    *(pytest.param(name, marks=pytest.mark.matrix) for name in ICEBERG[1:]),
    *(pytest.param(name, marks=[pytest.mark.s3, pytest.mark.matrix]) for name in ON_S3),
]
each_lake = pytest.mark.parametrize("lake", [ICEBERG[0], *_OTHERS], indirect=True)


@pytest.fixture
def job(lake: IcebergLake, iceberg_java: IcebergJava) -> Job:
    """Give the changes that the library makes of the table."""
    if isinstance(lake, RestLake):
        catalog = {"type": "rest", "uri": lake.uri}
    else:
        catalog = sql_catalog(lake.database, f"file://{lake.root.parent}")

    if lake.objects is not None:
        catalog |= s3_properties(lake.objects.server.environment())

    def change(what: str, /, **more: Any) -> None:
        iceberg_java.change(what, catalog, str(lake.table_name), **more)

    return change


def ids(lake: IcebergLake, java: IcebergJava) -> list[int]:
    """Return the rows that two readers agree on."""
    store = lake.objects.server.environment() if lake.objects is not None else None
    found = sorted(int(str(row[0])) for row in java.read(lake.metadata.location, ["id"], store=store))
    assert [number for (number,) in duck_rows(lake, "id")] == found
    return found


@each_lake
def test_commits_go_on_whatever_others_do(lake: IcebergLake, job: Job, iceberg_java: IcebergJava) -> None:
    stream = Stream(lake)
    stream.commit(1, [1, 2, 3])
    job("append", ids=[100])
    stream.commit(2, [4])
    job("delete", ids=[2, 100])
    assert ids(lake, iceberg_java) == [1, 3, 4]
    stream.commit(3, [5, 6])
    assert ids(lake, iceberg_java) == [1, 3, 4, 5, 6]
    assert [line["content"] for line in lines(lake)].count(1) == 1
    job("compact")
    stream.commit(4, [7])
    assert ids(lake, iceberg_java) == [1, 3, 4, 5, 6, 7]
    job("rewrite-manifests")
    stream.commit(5, [8])
    job("expire", keep=1)
    stream.commit(6, [9])
    job("add-column", name="note")
    stream.commit(7, [10])
    job("append", ids=[101])
    stream.commit(8, [11])
    assert ids(lake, iceberg_java) == [1, *range(3, 12), 101]
    assert Stream(lake).committer.inspect().newest_made == 8


@each_lake
def test_a_commit_is_found_after_an_expiry_to_one_snapshot(lake: IcebergLake, job: Job) -> None:
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    job("append", ids=[100])
    job("compact")
    job("expire", keep=1)
    assert len(lake.metadata.snapshots) == 1
    assert isinstance(stream.ask(2), Found)
    answer = stream.ask(3)
    assert isinstance(answer, Absent)
    assert answer.by_marker
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3, 100]


@pytest.mark.parametrize("lake", ["iceberg", "iceberg-rest"], indirect=True)
def test_a_table_is_upgraded_while_files_wait(lake: IcebergLake, job: Job, iceberg_java: IcebergJava) -> None:
    stream = Stream(lake)
    stream.commit(1, [1, 2])
    waiting = lake.event([3])
    job("upgrade")
    assert lake.metadata.version == 3
    stream.add(2, waiting)
    stream.recorded = lake.committer().inspect().head
    stream.commit(3, [4])
    rows = iceberg_java.read(lake.metadata.location, ["id", "_row_id"])
    assert sorted(int(str(row[0])) for row in rows) == [1, 2, 3, 4]
    assert sorted(int(str(row[1])) for row in rows) == [0, 1, 2, 3]
    job("append", ids=[100])
    stream.commit(4, [5])
    rows = iceberg_java.read(lake.metadata.location, ["id", "_row_id"])
    assert sorted(int(str(row[1])) for row in rows) == list(range(6))


# --- a tag or another branch keeps a snapshot of ours, while those after it expire ----------------------


@pytest.mark.parametrize("kept", [False, True], ids=["no branch", "branch"])
@pytest.mark.parametrize("known", [True, False], ids=["outcome known", "outcome lost"])
def test_a_branch_that_keeps_a_commit_does_not_stop_the_next(
    lake: IcebergLake, job: Job, kept: bool, known: bool
) -> None:
    stream = with_commits(lake, 1)
    made = stream.commit(2, [2], record=known)
    if kept:
        name = {"name": "audit", "snapshot": int(made.identity)}
        job("branch-at", **name)
    for number in (100, 101):
        job("append", ids=[number])
    job("expire", keep=1)
    if not known:
        assert isinstance(stream.ask(2), Found)
    answer = stream.ask(3)
    assert isinstance(answer, Absent)
    assert lake.committer().inspect().newest_decision == 2
    stream.publish(3, answer.head, [lake.event([3])])
    assert lake.ids() == [1, 2, 3, 100, 101]


@pytest.mark.parametrize("steps", [("rewrite-manifests",), ("compact",), ("rewrite-manifests", "compact")])
def test_rewritten_manifests_show_a_kept_commit(lake: IcebergLake, job: Job, steps: tuple[str, ...]) -> None:
    stream = with_commits(lake, 1)
    made = stream.commit(2, [2])
    name = {"name": "audit", "snapshot": int(made.identity)}
    job("branch-at", **name)
    job("append", ids=[100])
    for step in steps:
        job(step)
    job("expire", keep=1)
    answer = stream.ask(3)
    assert isinstance(answer, Absent)
    stream.publish(3, answer.head, [lake.event([3])])
    assert lake.ids() == [1, 2, 3, 100]


# --- commits that their owner rolls back, and brings back by cherry-pick ---------------------------------

ALL = 100
"""More snapshots than there are: only those that are in no branch expire."""


def picked(lake: IcebergLake, job: Job, decisions: int) -> Stream:
    """Commit decisions, roll all but the first one back, and pick them again, on a foreign snapshot."""
    stream = Stream(lake)
    made = [stream.commit(number, [number]) for number in range(1, decisions + 1)]
    job("rollback", snapshot=int(made[0].identity))
    job("append", ids=[100])
    for each in made[1:]:
        job("cherrypick", snapshot=int(each.identity))
    assert lake.ids() == [*range(1, decisions + 1), 100]
    stream.recorded = made[0]
    return stream


picked_lake = pytest.mark.parametrize("lake", ["iceberg", "iceberg-v3"], indirect=True)


@picked_lake
@pytest.mark.parametrize("expired", [False, True])
def test_a_commit_that_was_picked_again_is_found(lake: IcebergLake, job: Job, expired: bool) -> None:
    stream = picked(lake, job, 2)
    if expired:
        job("expire", keep=ALL)
    answer = stream.ask(2)
    assert isinstance(answer, Found)
    assert answer.snapshot.id == 4
    stream.recorded = answer.snapshot
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3, 100]


@picked_lake
def test_an_earlier_commit_is_not_absent_when_its_source_has_expired(lake: IcebergLake, job: Job) -> None:
    """The mark shows the newest decision alone. What the other copy contains is not known."""
    stream = picked(lake, job, 3)
    assert isinstance(stream.ask(2), Found | Ahead)
    job("expire", keep=ALL)
    assert isinstance(stream.ask(2), Ahead | Unproven)
    assert isinstance(stream.ask(3), Found)


@picked_lake
def test_copies_of_others_do_not_stop_commits(lake: IcebergLake, job: Job) -> None:
    stream = Stream(lake)
    first = stream.commit(1, [1])
    job("append", ids=[100])
    staged = int(lake.metadata.head("main")["snapshot-id"])  # type: ignore[index]
    job("rollback", snapshot=int(first.identity))
    job("append", ids=[101])
    job("cherrypick", snapshot=staged)
    job("expire", keep=ALL)
    assert isinstance(stream.ask(2), Absent)
    stream.commit(2, [2])
    assert lake.ids() == [1, 2, 100, 101]
