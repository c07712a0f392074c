"""Catalogs in sqlite: a file that is missing, and one that other connections read."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import Absent, CommitRequest, LakeUnavailable, Published
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.iceberg_lake import TABLE, IcebergLake
from tests.lakes.outcomes import is_refused


@pytest.mark.slow
def test_a_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path / "a b")
    stream = Stream(lake)
    stream.commit(1, [1])
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
