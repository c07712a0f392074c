"""Catalogs in SQLite and Postgres: missing files, locks, and connections that end at the wrong time."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from sluicegate.lakes.iceberg import sql
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import (
    Absent,
    CommitRequest,
    Found,
    LakeUnavailable,
    OutcomeUnknown,
    Published,
    TableRefused,
)
from tests.contracts.lakes.harness import USER, Stream, with_commits
from tests.contracts.lakes.iceberg_lake import TABLE, IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import PostgresLake
from tests.lakes.outcomes import is_refused


@pytest.mark.slow
def test_a_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path / "a b")
    stream = with_commits(lake, 1)
    head, event = stream.head(2), lake.event([2])
    os.rename(lake.database, f"{lake.database}.away")
    with pytest.raises(LakeUnavailable, match=r"catalog\.db is not there"):
        stream.committer.inspect()
    assert is_refused(stream.publish(2, head, [event]), again=True)
    with pytest.raises(LakeUnavailable, match=r"catalog\.db is not there"):
        IcebergAdapter(lake.options).open_writer(lake.adapter.parse_table(lake.location), None)
    assert not os.path.exists(lake.database)
    os.rename(f"{lake.database}.away", lake.database)
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("uri", ["postgresql+psycopg://db/c", "postgresql://db/c"])
def test_a_driver_of_postgres_that_is_missing_is_named_with_the_extra_that_brings_one(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(TableRefused) as refused:
        SqlCatalog(uri, "default", TABLE, Files())
    assert "Use postgresql+psycopg://, whose driver comes with: pip install" in str(refused.value)
    assert "[iceberg,postgres]" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["begin", "begin immediate", "begin exclusive"])
def test_a_lock_of_another_connection_leaves_no_doubt(tmp_path: Path, begin: str) -> None:
    lake = IcebergLake(tmp_path)
    files = Files()
    catalog = SqlCatalog(f"{lake.uri}?timeout=0", "default", TABLE, files)
    committer = IcebergCommitter(catalog, files, USER, MAIN)
    state, event = committer.inspect(), lake.event([1])
    request = CommitRequest(1, "digest-1", state.head, None, committer.check([event]))
    before = sorted(os.listdir(lake.root / "metadata"))
    with closing(sqlite3.connect(lake.database, isolation_level=None)) as other:
        other.execute(begin)
        reading = other.execute("SELECT * FROM iceberg_tables")
        assert reading.fetchone()
        assert is_refused(committer.publish(request), again=True)
        assert sorted(os.listdir(lake.root / "metadata")) == before
        reading.close()
        other.execute("rollback")
    assert committer.ask(1, "digest-1", state.identity, None) == Absent(None)
    assert isinstance(committer.publish(request), Published)
    assert lake.ids() == [1]


# --- Postgres ---------------------------------------------------------------------------------------


@pytest.fixture(params=[2, 3])
def lake(
    request: pytest.FixtureRequest, postgres: str, unique: str, tmp_path: Path
) -> Iterator[PostgresLake]:
    with closing(PostgresLake(postgres, unique, tmp_path, request.param)) as lake:
        yield lake


class CutCatalog(SqlCatalog):
    """Loses its connection at the commit of the transaction that decides."""

    cut: Callable[[Connection], None] | None = None

    def finish(self, connection: Connection) -> None:
        cut, self.cut = self.cut, None
        if cut is not None:
            cut(connection)
        super().finish(connection)


def session_of(connection: Connection) -> int:
    pid: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    return pid


def end_session(uri: str, pid: int) -> None:
    """End a session from outside, as an administrator or a failover does."""
    with create_engine(uri, poolclass=NullPool).connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


@pytest.fixture
def catalog(lake: PostgresLake) -> Iterator[CutCatalog]:
    with closing(CutCatalog(lake.uri, "default", lake.table_name, Files(), pooled=True)) as catalog:
        yield catalog


@pytest.fixture
def stream(lake: PostgresLake, catalog: CutCatalog) -> Stream:
    return Stream(lake, IcebergCommitter(catalog, Files(), USER, MAIN))


def test_a_session_that_ends_at_the_commit_leaves_the_outcome_unknown(
    lake: PostgresLake, stream: Stream, catalog: CutCatalog
) -> None:
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])
    catalog.cut = lambda connection: end_session(lake.uri, session_of(connection))
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    answer = stream.ask(2)
    assert isinstance(answer, Absent)
    assert isinstance(stream.publish(2, answer.head, [event]), Published)
    assert lake.ids() == [1, 2]


@pytest.mark.seam
def test_a_commit_is_found_though_its_answer_is_lost(
    lake: PostgresLake, stream: Stream, catalog: CutCatalog
) -> None:
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])

    def committed_and_cut(connection: Connection) -> None:
        pid = session_of(connection)
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.commit()
        # The library's own commit follows, and needs a transaction to fail.
        driver.execute("SELECT 1")
        end_session(lake.uri, pid)

    catalog.cut = committed_and_cut
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    assert isinstance(stream.ask(2), Found)
    assert lake.ids() == [1, 2]


def test_a_process_that_stands_still_in_a_transaction_stops_no_others(
    lake: PostgresLake, stream: Stream, catalog: CutCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])
    monkeypatch.setattr(sql, "LIMITS", "SET LOCAL idle_in_transaction_session_timeout = '50ms'")
    other = Stream(lake)

    def others_commit(connection: Connection) -> None:
        other.recorded = stream.recorded
        other.commit(2, [20])

    catalog.cut = others_commit
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    assert lake.ids() == [1, 20]
