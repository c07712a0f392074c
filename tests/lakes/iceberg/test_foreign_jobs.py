"""Iceberg's Java library appends, deletes, compacts, expires and rolls back between our commits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.lakes.port import Absent, Found, Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ICEBERG, ON_S3, RestLake, iceberg_of
from tests.iceberg_java.java import IcebergJava, s3_properties, sql_catalog
from tests.lakes.iceberg.reading import duck_rows, lines

Job = Callable[..., None]


@pytest.fixture(params=[*ICEBERG, *(pytest.param(name, marks=pytest.mark.s3) for name in ON_S3)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    return iceberg_of(request.param, request, tmp_path)


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


@pytest.mark.seam
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


def test_a_commit_is_found_after_an_expiry_to_one_snapshot(lake: IcebergLake, job: Job) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
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
    assert isinstance(stream.publish(2, stream.head(2), [waiting]), Published)
    stream.recorded = lake.committer().inspect().head
    stream.commit(3, [4])
    rows = iceberg_java.read(lake.metadata.location, ["id", "_row_id"])
    assert sorted(int(str(row[0])) for row in rows) == [1, 2, 3, 4]
    assert sorted(int(str(row[1])) for row in rows) == [0, 1, 2, 3]
    job("append", ids=[100])
    stream.commit(4, [5])
    rows = iceberg_java.read(lake.metadata.location, ["id", "_row_id"])
    assert sorted(int(str(row[1])) for row in rows) == list(range(6))
