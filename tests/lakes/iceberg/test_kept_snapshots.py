"""A tag or another branch keeps a snapshot of ours, while those after it expire: commits go on."""

from pathlib import Path

import pytest

from sluicegate.lakes.port import Absent, Found
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.iceberg_java.java import IcebergJava, sql_catalog


@pytest.mark.parametrize("kept", [False, True], ids=["no branch", "branch"])
@pytest.mark.parametrize("known", [True, False], ids=["outcome known", "outcome lost"])
def test_a_branch_that_keeps_a_commit_does_not_stop_the_next(
    tmp_path: Path, iceberg_java: IcebergJava, kept: bool, known: bool
) -> None:
    lake = IcebergLake(tmp_path)
    catalog = sql_catalog(lake.database, f"file://{lake.root.parent}")
    stream = Stream(lake)
    stream.commit(1, [1])
    made = stream.commit(2, [2], record=known)
    if kept:
        name = {"name": "audit", "snapshot": int(made.identity)}
        iceberg_java.change("branch-at", catalog, str(lake.table_name), **name)
    for number in (100, 101):
        iceberg_java.change("append", catalog, str(lake.table_name), ids=[number])
    iceberg_java.change("expire", catalog, str(lake.table_name), keep=1)
    if not known:
        assert isinstance(stream.ask(2), Found)
    answer = stream.ask(3)
    assert isinstance(answer, Absent)
    assert lake.committer().inspect().newest_decision == 2
    stream.publish(3, answer.head, [lake.event([3])])
    assert lake.ids() == [1, 2, 3, 100, 101]


@pytest.mark.parametrize("steps", [("rewrite-manifests",), ("compact",), ("rewrite-manifests", "compact")])
def test_rewritten_manifests_show_a_kept_commit(
    tmp_path: Path, iceberg_java: IcebergJava, steps: tuple[str, ...]
) -> None:
    lake = IcebergLake(tmp_path)
    catalog = sql_catalog(lake.database, f"file://{lake.root.parent}")
    stream = Stream(lake)
    stream.commit(1, [1])
    made = stream.commit(2, [2])
    name = {"name": "audit", "snapshot": int(made.identity)}
    iceberg_java.change("branch-at", catalog, str(lake.table_name), **name)
    iceberg_java.change("append", catalog, str(lake.table_name), ids=[100])
    for step in steps:
        iceberg_java.change(step, catalog, str(lake.table_name))
    iceberg_java.change("expire", catalog, str(lake.table_name), keep=1)
    answer = stream.ask(3)
    assert isinstance(answer, Absent)
    stream.publish(3, answer.head, [lake.event([3])])
    assert lake.ids() == [1, 2, 3, 100]
