"""The example of a table of Paimon with the rows of a real Postgres: copies, changes, a kill, refusals."""

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from pypaimon import CatalogFactory

from sluicegate.failpoints.points import VARIABLE
from tests.integration.coordinator import running, settings_for
from tests.integration.job import make_topics
from tests.integration.test_postgres_changes import EXAMPLES, Program, execute
from tests.integration.test_postgres_changes import database as database
from tests.integration.waiting import exit_status, until

STREAM: Final = "accounts"
COLUMNS: Final = (
    "id bigint, region text, balance numeric(12,2), open boolean, changed timestamptz, note text, "
    "PRIMARY KEY (id, region)"
)


class Both:
    """The table in the source, and that in the lake."""

    def __init__(self, database: str, table: Path, slot: str) -> None:
        self._database, self._table, self._slot = database, table, slot

    def source(self) -> list[Any]:
        """Return the rows of the source."""
        with psycopg.connect(self._database) as connection:
            return connection.execute("SELECT * FROM accounts ORDER BY id, region").fetchall()

    def lake(self) -> list[Any]:
        """Return the rows of the lake."""
        catalog = CatalogFactory.create({"warehouse": str(self._table.parents[1])})
        builder = catalog.get_table("shop.accounts").new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        rows = [] if found is None else [tuple(each.values()) for each in found.to_pylist()]
        return sorted(rows, key=lambda row: row[:2])

    def are_equal(self) -> bool:
        """Return True if both have the same rows."""
        return (self._table / "snapshot").is_dir() and self.source() == self.lake()

    def place(self) -> int:
        """Return the place of the slot."""
        query = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        return self._number(query, self._slot)

    def end(self) -> int:
        """Return the end of the WAL."""
        return self._number("SELECT pg_current_wal_lsn() - '0/0'")

    def _number(self, query: str, *values: str) -> int:
        with psycopg.connect(self._database) as connection:
            row = connection.execute(query.encode(), values).fetchone()
        assert row is not None
        return int(row[0])


def program_of(root: Path, bootstrap: str, database: str, prefix: str) -> Program:
    """Return the example."""
    options = ("--slot", prefix, "--topic-prefix", prefix, "--changes", "50")
    table = str(root / "shop.db" / "accounts")
    return Program(EXAMPLES / "cdc_postgres.py", root / "program.log", bootstrap, database, table, *options)


@pytest.mark.kafka
async def test_the_table_has_the_rows_of_the_source_after_a_kill_too(
    kafka_bootstrap: str, unique: str, database: str, tmp_path: Path
) -> None:
    table = tmp_path / "shop.db" / "accounts"
    program, both = program_of(tmp_path, kafka_bootstrap, database, unique), Both(database, table, unique)
    execute(
        database,
        f"CREATE TABLE accounts ({COLUMNS})",
        "INSERT INTO accounts SELECT n, 'r' || n % 3, n * 1.25, n % 2 = 0, now(), repeat('x', n * 50) "
        "FROM generate_series(1, 100) n",
        "CREATE PUBLICATION accounts FOR TABLE accounts",
    )
    await make_topics(kafka_bootstrap, unique)
    with program.started() as process:
        assert await asyncio.to_thread(exit_status, process, program.log) == 1
    assert "ALTER TABLE public.accounts REPLICA IDENTITY FULL" in program.text()
    execute(database, "ALTER TABLE accounts REPLICA IDENTITY FULL")

    async def equal(process: Any) -> None:
        await until(both.are_equal, by=process, log=program.log)

    stream = {"format": "paimon", "table": str(table)}
    async with running(settings_for(kafka_bootstrap, unique, {STREAM: stream}), ready=False):
        with program.started() as process:
            await equal(process)
            assert len(both.lake()) == 100
            execute(
                database,
                "UPDATE accounts SET balance = balance + 1, note = null WHERE id <= 10",
                "UPDATE accounts SET open = not open WHERE id = 90",
                "DELETE FROM accounts WHERE id BETWEEN 20 AND 29",
                # Keys that move, also to those of rows that are deleted.
                "UPDATE accounts SET id = id + 1000 WHERE id BETWEEN 40 AND 44",
                "UPDATE accounts SET id = 20, region = 'new' WHERE id = 50",
                "BEGIN; DELETE FROM accounts WHERE id = 1; "
                "INSERT INTO accounts VALUES (1, 'r1', -0.5, null, 'epoch', ''); COMMIT",
                "BEGIN; DELETE FROM accounts; ROLLBACK",
            )
            await equal(process)
        before = both.end()
        # It dies when its completion is in the log: the slot stays, and the changes count once all the same.
        with program.started(**{VARIABLE: "hook.completion.after=kill@1"}) as process:
            execute(
                database,
                "UPDATE accounts SET balance = balance * 2 WHERE id > 60",
                "DELETE FROM accounts WHERE id = 60",
                "INSERT INTO accounts VALUES (60, 'r0', 1.00, true, now(), 'again')",
            )
            assert await asyncio.to_thread(exit_status, process, program.log) == -signal.SIGKILL
        assert both.place() <= before
        execute(database, "DELETE FROM accounts WHERE id = 61", "INSERT INTO accounts VALUES (20, 'r2')")
        with program.started() as process:
            await equal(process)
            await until(both.place, lambda place: place > before, by=process, log=program.log)
        snapshots = len([*(table / "snapshot").glob("snapshot-*")])
        # Nothing is left to be read, so nothing is committed once more.
        with program.started() as process:
            execute(database, "UPDATE accounts SET note = 'last' WHERE id = 2")
            await equal(process)
        assert len([*(table / "snapshot").glob("snapshot-*")]) == snapshots + 1
        execute(database, "TRUNCATE accounts")
        with program.started() as process:
            assert await asyncio.to_thread(exit_status, process, program.log) == 1
        assert "had a TRUNCATE" in program.text()
        assert both.lake()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["CREATE TABLE accounts (id int)"], "has no primary key"),
        (["CREATE TABLE accounts (id int PRIMARY KEY, place point)"], "place has the unknown type point"),
        (["CREATE TABLE accounts (id int PRIMARY KEY)", "CREATE TABLE b (id int)"], "has 2 tables"),
    ],
)
def test_sources_that_cannot_be_followed_are_refused_at_the_start(
    statements: list[str], message: str, database: str, unique: str, tmp_path: Path
) -> None:
    full = "ALTER TABLE accounts REPLICA IDENTITY FULL"
    execute(database, *statements, full, "CREATE PUBLICATION accounts FOR ALL TABLES")
    program = program_of(tmp_path, "127.0.0.1:1", database, unique)
    with program.started() as process:
        assert exit_status(process, program.log) == 1
    assert message in program.text()
    assert not (tmp_path / "shop.db").exists()
