"""The demo's tables of every format: commits of ours are read back, and damage is noticed."""

from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.cli.local.demo import _OF_FORMAT
from sluicegate.cli.local.errors import TableDamaged
from sluicegate.cli.local.flights import compare
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Absent, CommitRequest, Published
from sluicegate.lakes.registry import adapter

FORMATS = sorted(_OF_FORMAT)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> DemoTable:
    return create_table(request.param, tmp_path / "warehouse")


def commit(table: DemoTable, *parts: pa.Table) -> None:
    """Commit each part with our own writer and committer."""
    lake = adapter(table.format)
    there = lake.parse_table(table.location, table.options)
    committer = lake.open_committer(there, "demo-user")
    state = committer.inspect()
    head = state.head
    for decision, rows in enumerate(parts, 1):
        writer = lake.open_writer(there, "time_hour")
        for batch in rows.to_batches():
            writer.write(batch)
        event = FilesWritten(
            format=table.format,
            format_version=lake.format_version,
            location=writer.location,
            schema_id=writer.schema_id,
            spec_id=writer.spec_id,
            files=tuple(writer.finish()),
        )
        answer = committer.ask(decision, f"d{decision}", state.identity, head)
        assert isinstance(answer, Absent), answer
        request = CommitRequest(decision, f"d{decision}", answer.head, None, committer.check([event]))
        made = committer.publish(request)
        assert isinstance(made, Published), made
        head = made.snapshot
    committer.close()


@pytest.mark.slow
def test_rows_and_commits_are_read_back(table: DemoTable, few: pa.Table) -> None:
    commit(table, few.slice(0, 100), few.slice(100))
    contents = table.read()
    assert compare(contents.rows, few).exact
    assert contents.commits == 2
    assert contents.files == len(list(Path(table.location).rglob("*.parquet")))


@pytest.mark.slow
def test_a_file_that_is_gone_is_damage(table: DemoTable, few: pa.Table) -> None:
    commit(table, few)
    max(Path(table.location).rglob("*.parquet")).unlink()
    with pytest.raises(TableDamaged, match=f"the table at {table.location} cannot be read"):
        table.read()
