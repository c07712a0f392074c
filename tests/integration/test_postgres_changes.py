"""The example of the changes of a real Postgres: ten tables, whole transactions, and kills of all parts."""

import argparse
import asyncio
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sluicegate.failpoints.points import VARIABLE
from tests.contracts.lakes.iceberg_lake import open_library
from tests.integration.coordinator import config_of_tables, coordinator_process, running, settings_for
from tests.integration.job import make_topics
from tests.integration.waiting import exit_status, tail, until, wait_until, watched

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PROGRAM: Final = EXAMPLES / "postgres_changes.py"
STREAM: Final = "bank"
USER: Final = f"sluicegate-{STREAM}"
TABLES: Final = tuple(f"t{number}" for number in range(10))
TELLERS: Final = 3
LEAD: Final = 120
"""Transactions that the tellers may be ahead of the reader, so that a slow machine has no more to do."""
KILLS: Final = ("hook.completion.before", "hook.completion.after", "") * 3
"""Places at which the program is killed; empty: at any."""
COORDINATORS: Final = 4
"""Coordinators that are killed meanwhile."""


@pytest.fixture
def database(postgres: str, unique: str) -> Iterator[str]:
    """Give the address of a database of the test's own, without a slot at the end."""
    server = postgres.replace("+psycopg", "")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{unique}"')
        yield make_conninfo(server, dbname=unique)
        of_database = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
        for (slot,) in admin.execute(of_database, [unique]).fetchall():
            wait_until(lambda: dropped(admin, slot), what=f"slot {slot}")  # noqa: B023
        admin.execute(f'DROP DATABASE "{unique}" WITH (FORCE)')


def dropped(admin: "psycopg.Connection[Any]", slot: str) -> bool:
    """Drop a slot, unless the server still works for a program that was killed."""
    try:
        admin.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    except psycopg.errors.ObjectInUse:
        return False
    return True


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the names of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return runpy.run_path(str(PROGRAM))


def execute(database: str, *statements: str) -> None:
    """Run each statement in a transaction of its own."""
    with psycopg.connect(database, autocommit=True) as connection:
        for each in statements:
            connection.execute(each)


# --- what the source sends ----------------------------------------------------------------------------


class Reading:
    """The source of the example, and its lake tables, in this process and without a coordinator."""

    def __init__(self, example: dict[str, Any], database: str, slot: str, root: Path, **more: Any) -> None:
        self._example, self._root = example, root
        self._place = database, "changes", slot
        given = {
            "anchor": "transactions",
            "stream": STREAM,
            "lake": root,
            "as_text": [],
            "add_columns": False,
        }
        self._given = argparse.Namespace(**given | more)

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, Any]]:
        """Give the source and the lake, as the program opens them."""
        with self._example["Source"](*self._place) as source, catalog_of(self._root) as catalog:
            yield source, self._example["Lake"](catalog, source, self._given)


def rows_of(lake: Any, found: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the changes of transactions: table, operation, and values."""
    changes = [change for each in found for change in each.changes]
    return [(each.relation.name, each.operation, lake.values_of(each)) for each in changes]


def test_every_kind_of_change_becomes_rows(
    example: dict[str, Any], database: str, unique: str, tmp_path: Path
) -> None:
    long = "x" * 5_000
    text = "text STORAGE EXTERNAL"
    execute(
        database,
        f"CREATE TABLE plain (id int PRIMARY KEY, price numeric, at timestamptz, ok bool, long {text})",
        f'CREATE TABLE "Full" (id bigint, long {text}, day date, ratio float8)',
        'ALTER TABLE "Full" REPLICA IDENTITY FULL',
        'CREATE PUBLICATION changes FOR TABLE plain, "Full"',
    )
    with Reading(example, database, unique, tmp_path).opened() as (source, lake):
        place = source.start(None)
        execute(
            database,
            "INSERT INTO plain VALUES (1, 1.50, '2026-01-02 03:04:05.6+02', true, repeat('x', 5000))",
            "INSERT INTO plain VALUES (2, null, null, false, '')",
            "UPDATE plain SET price = 2 WHERE id = 1",
            "UPDATE plain SET id = 3 WHERE id = 2",
            "DELETE FROM plain WHERE id = 1",
            "INSERT INTO \"Full\" VALUES (-5, repeat('x', 5000), '2026-02-03', 'NaN')",
            'UPDATE "Full" SET ratio = 0.5',
            'TRUNCATE plain, "Full"',
            "BEGIN; INSERT INTO plain VALUES (9); ROLLBACK",
        )
        found, upto = source.read(place["lsn"], 10_000)
        assert source.read(place["lsn"], 10_000)[0] == found, "the slot stays"
        assert source.read(upto, 10_000)[0] == []
        numbered = [(change, each.lsn) for each in found for change in each.changes]
        assert [each.lsn for each in found] == sorted({lsn for _, lsn in numbered})
        rows = rows_of(lake, found)
        old = {"id": -5, "long": long, "day": example["date"](2026, 2, 3), "_absent": None}
        at = example["datetime"].fromisoformat("2026-01-02T01:04:05.600000+00:00")
        first = {"id": 1, "price": "1.50", "at": at, "ok": True, "long": long, "_absent": None}
        second = {"id": 2, "ok": False, "long": "", "_absent": None}
        assert rows[:2] == [("plain", "insert", first), ("plain", "insert", second)]
        changed = {"id": 1, "price": "2", "at": at, "ok": True, "_absent": "long"}
        assert rows[2] == ("plain", "update", changed)
        rest = "price, at, ok, long"
        assert rows[3:5] == [
            ("plain", "before", {"id": 2, "_absent": rest}),
            ("plain", "update", second | {"id": 3}),
        ]
        assert rows[5] == ("plain", "delete", {"id": 1, "_absent": rest})
        inserted, before, after = rows[6:9]
        assert (str(inserted[2].pop("ratio")), str(before[2].pop("ratio"))) == ("nan", "nan")
        assert inserted == ("Full", "insert", old)
        assert (before, after) == (("Full", "before", old), ("Full", "update", old | {"ratio": 0.5}))
        assert sorted(rows[9:]) == [(name, "truncate", {"_absent": None}) for name in ("Full", "plain")]
        # The slot moves to what is committed, also after a crash before the program has moved it.
        place["lsn"] = found[2].lsn
        assert source.start(place) == place
        assert source.read(0, 10_000)[0] == found[3:]


def test_a_batch_ends_after_a_whole_transaction(
    example: dict[str, Any], database: str, unique: str, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION changes FOR TABLE t")
    with Reading(example, database, unique, tmp_path).opened() as (source, _):
        place = source.start(None)
        ranges = (1, 3), (4, 500), (501, 502)
        execute(database, *(f"INSERT INTO t SELECT generate_series({a}, {b})" for a, b in ranges))
        sizes = []
        while found := (read := source.read(place["lsn"], 10))[0]:
            sizes.append([len(each.changes) for each in found])
            place["lsn"] = read[1]
            source.advance(place["lsn"])
    assert sizes == [[3, 497], [2]]


def test_the_slot_follows_changes_of_other_tables_and_loses_no_open_transaction(
    example: dict[str, Any], database: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE other (id int)",
        "CREATE PUBLICATION changes FOR TABLE t",
    )
    follow, written = example["follow"], list[tuple[list[Any], int]]()

    class Stop(Exception):
        pass

    class FakeLake:
        def write(self, _: Any, found: list[Any], place: dict[str, Any]) -> None:
            if any(found):
                raise Stop
            written.append((found, place["lsn"]))
            execute(database, "INSERT INTO other VALUES (2)")
            if len(written) == 2:
                late.commit()

    driver = argparse.Namespace(committed=None)
    monkeypatch.setitem(follow.__globals__, "QUIET", 1)
    with (
        psycopg.connect(database) as late,
        Reading(example, database, unique, tmp_path).opened() as (source, _),
    ):
        first = source.start(None)["lsn"]
        late.execute("INSERT INTO t VALUES (1)")
        execute(database, "INSERT INTO other VALUES (1)")
        with pytest.raises(Stop):
            follow(source, FakeLake(), driver, 10, 0.01)
        assert len(written) >= 2
        assert first < written[0][1] < written[1][1]
        (found,), _ = source.read(written[-1][1], 10)
        assert [each.values for each in found.changes] == [[b"1"]]


@pytest.mark.parametrize(
    ("statements", "more", "message"),
    [
        (["CREATE TABLE t (id int, place point)"], {}, "public.t.place is of the unknown type point"),
        (["CREATE TABLE t (id int, tags int[])"], {}, "--as-text 'integer..'"),
        (["CREATE TABLE t (_position int)"], {}, "public.t._position has a name of the lake"),
        (["CREATE TABLE t (id int)"], {"anchor": "t"}, "another name with --anchor"),
        (
            ["CREATE SCHEMA s", "CREATE TABLE t (id int)", "CREATE TABLE s.t (id int)"],
            {},
            "s.t has the name of that in public",
        ),
        ([], {}, "CREATE PUBLICATION changes FOR TABLE"),
    ],
)
def test_tables_that_cannot_be_written_are_refused_at_the_start(
    statements: list[str],
    more: dict[str, Any],
    message: str,
    example: dict[str, Any],
    database: str,
    unique: str,
    tmp_path: Path,
) -> None:
    execute(database, *statements, "CREATE PUBLICATION changes" + (" FOR ALL TABLES" if statements else ""))
    with (
        pytest.raises(example["Refused"], match=message),
        Reading(example, database, unique, tmp_path, **more).opened(),
    ):
        pass


def test_a_value_that_no_column_of_the_lake_can_have_is_refused(
    example: dict[str, Any], database: str, unique: str, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE t (at timestamp)", "CREATE PUBLICATION changes FOR ALL TABLES")
    with Reading(example, database, unique, tmp_path).opened() as (source, lake):
        place = source.start(None)
        execute(database, "INSERT INTO t VALUES ('2026-01-02'), ('infinity')")
        found, _ = source.read(place["lsn"], 10)
        with pytest.raises(example["Refused"], match="the value infinity, not a timestamp"):
            rows_of(lake, found)


def test_a_slot_that_lost_changes_is_refused(
    example: dict[str, Any], database: str, unique: str, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE t (id int)", "CREATE PUBLICATION changes FOR ALL TABLES")
    with Reading(example, database, unique, tmp_path).opened() as (source, _):
        place = source.start(None)
        with pytest.raises(example["Refused"], match="another slot or server"):
            source.start(place | {"system": "1"})
        execute(database, "INSERT INTO t VALUES (1)")
        source.advance(source.read(place["lsn"], 10_000)[1])
        with pytest.raises(example["Refused"], match="others have read it"):
            source.start(place)
        execute(database, f"SELECT pg_drop_replication_slot('{unique}')")
        with pytest.raises(example["Refused"], match="was dropped"):
            source.start(place)


# --- the program --------------------------------------------------------------------------------------


class Program:
    """Runs of an example in processes of their own, with one log."""

    def __init__(self, program: Path, log: Path, *arguments: str) -> None:
        self.log = log
        self.command = [sys.executable, str(program), *arguments, "--pause", "0.05"]

    @contextmanager
    def started(self, *more: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the program, and kill it at the end of the block."""
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [*self.command, *more], stdout=output, stderr=output, env={**os.environ, **environment}
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def text(self) -> str:
        """Return everything that all runs have printed."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


def program_of(root: Path, bootstrap: str, database: str, prefix: str, *more: str) -> Program:
    """Return the example, with tables in a folder."""
    options = ("--stream", STREAM, "--slot", prefix, "--topic-prefix", prefix)
    return Program(PROGRAM, root / "program.log", bootstrap, database, str(root), *options, *more)


def catalog_of(root: Path) -> Any:
    return closing(open_library("default", f"sqlite:///{root / 'catalog.db'}"))


def stream_of(root: Path, *tables: str) -> dict[str, Any]:
    """Settings of the stream."""
    return {
        "format": "iceberg",
        "table": str(root / STREAM / "transactions"),
        "tables": {name: f"{STREAM}.{name}" for name in tables},
        "options": {"uri": f"sqlite:///{root / 'catalog.db'}"},
    }


@pytest.mark.kafka
async def test_a_changed_source_is_refused_and_the_way_out_continues(
    kafka_bootstrap: str, unique: str, database: str, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, size int)",
        "CREATE PUBLICATION changes FOR ALL TABLES",
    )
    await make_topics(kafka_bootstrap, unique)
    program = program_of(tmp_path, kafka_bootstrap, database, unique)

    def rows(name: str = "t") -> list[dict[str, Any]]:
        with catalog_of(tmp_path) as catalog:
            found = catalog.load_table(f"{STREAM}.{name}").scan().to_arrow()
        ours = ("_commit_lsn", "_position", "_operation", "_absent")
        kept = [{name: value for name, value in row.items() if name not in ours} for row in found.to_pylist()]
        return sorted(kept, key=lambda row: row["id"])

    async def refusal() -> str:
        seen = len(program.text())
        with program.started() as process:
            assert await asyncio.to_thread(exit_status, process, program.log) == 1
        return program.text()[seen:]

    settings = settings_for(kafka_bootstrap, unique, {STREAM: stream_of(tmp_path, "t")})
    async with running(settings, ready=False):
        with program.started() as process:
            await until(lambda: slot_exists(database, unique), by=process, log=program.log)
            execute(database, "INSERT INTO t VALUES (1, 10)")
            await until(rows, lambda found: len(found) == 1, by=process, log=program.log)
        execute(
            database,
            "ALTER TABLE t ADD COLUMN note text",
            "INSERT INTO t VALUES (2, 20, 'n')",
            "ALTER TABLE t DROP COLUMN size",
            "INSERT INTO t VALUES (3, 'o')",
            "ALTER TABLE t ADD COLUMN place point",
            "INSERT INTO t VALUES (4, 'p', '(1,2)')",
        )
        assert "public.t.place is of the unknown type point. Start with --as-text 'point'" in await refusal()
        program.command += ["--as-text", "point"]
        # The start has found no new column in the changes that come first, so these are committed.
        assert "public.t has the new column note. Start again with --add-columns" in await refusal()
        with program.started("--add-columns") as process:
            await until(rows, lambda found: len(found) == 4, by=process, log=program.log)
        assert rows() == [
            {"id": 1, "size": 10, "note": None, "place": None},
            {"id": 2, "size": 20, "note": "n", "place": None},
            {"id": 3, "size": None, "note": "o", "place": None},
            {"id": 4, "size": None, "note": "p", "place": "(1,2)"},
        ]
        # A new table is refused by the program, then by the coordinator that lacks it.
        with program.started() as process:
            seen = len(program.text())
            execute(database, "INSERT INTO t VALUES (5, 'q', null)")
            await until(rows, lambda found: len(found) == 5, by=process, log=program.log)
            execute(database, "CREATE TABLE u (id int)", "INSERT INTO u VALUES (1)")
            assert await asyncio.to_thread(exit_status, process, program.log) == 1
        assert "public.u is new. Add it to the tables of the stream" in program.text()[seen:]
        assert "add u to streams.bank.tables" in await refusal()
    settings = settings_for(kafka_bootstrap, unique, {STREAM: stream_of(tmp_path, "t", "u")})
    async with running(settings):
        with program.started() as process:
            await until(lambda: rows("u"), lambda found: found == [{"id": 1}], by=process, log=program.log)


def slot_exists(database: str, slot: str) -> bool:
    with psycopg.connect(database) as connection:
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        return connection.execute(query, [slot]).fetchone() == (1,)


class Entry(NamedTuple):
    """A change as its transaction has made it."""

    table: str
    operation: str
    id: int
    balance: int | None


@dataclass
class Bank:
    """Accounts in ten tables. After each transaction, the balances of all of them have the sum 0."""

    database: str
    journal: dict[int, list[Entry]] = field(default_factory=dict)
    """By their numbers, what the transactions have done that are committed."""
    over: threading.Event = field(default_factory=threading.Event)

    def make(self) -> None:
        columns = "id bigint PRIMARY KEY, balance bigint, note text, at timestamptz DEFAULT now()"
        tables = ", ".join(TABLES)
        made = [f"CREATE TABLE {each} ({columns})" for each in TABLES]
        execute(self.database, *made, f"CREATE PUBLICATION changes FOR TABLE {tables}")

    @contextmanager
    def open(self, visible: Callable[[], int]) -> Iterator[None]:
        """Let the tellers work in the block; a wait fails if one of them ends."""
        threads = [
            threading.Thread(
                name=f"teller {each}",
                target=self.work,
                args=(each, random.Random(f"{self.database}{each}"), visible),
                daemon=True,
            )
            for each in range(TELLERS)
        ]
        try:
            with ExitStack() as stack:
                for each in threads:
                    each.start()
                    stack.enter_context(watched(each))
                yield
        finally:
            self.over.set()
            for each in threads:
                each.join()

    def work(self, teller: int, choose: random.Random, visible: Callable[[], int]) -> None:
        """Make transactions until the end. A teller has its own accounts, in all tables."""
        accounts: dict[tuple[str, int], int] = {}
        numbers = iter(range(teller, sys.maxsize, TELLERS))
        with psycopg.connect(self.database, autocommit=True) as connection:
            while not self.over.is_set():
                if len(self.journal) - visible() < LEAD:
                    self._transact(connection, accounts, numbers, choose)
                self.over.wait(choose.uniform(0, 0.05))

    def _transact(
        self,
        connection: "psycopg.Connection[Any]",
        accounts: dict[tuple[str, int], int],
        numbers: Iterator[int],
        choose: random.Random,
    ) -> None:
        # Some are larger than a batch.
        touched = choose.sample(TABLES, choose.randint(1, 5)) * choose.choice([1] * 30 + [60])
        amounts = [choose.randint(-99, 99) for _ in touched]
        done: list[Entry] = []
        draft = dict(accounts)
        with connection.transaction() as transaction:
            if choose.random() < 0.2:
                with connection.transaction(force_rollback=True):
                    connection.execute(f"INSERT INTO {touched[0]} VALUES (-1, 1)")  # noqa: S608
            for table, amount in zip(touched, amounts, strict=True):
                done += self._move(connection, draft, numbers, choose, table, amount)
            # The last table takes the rest, so that the sum stays 0.
            done += self._move(connection, draft, numbers, choose, touched[-1], -sum(draft.values()))
            row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            if given_up := choose.random() < 0.1:
                raise psycopg.Rollback(transaction)
        if not given_up:
            accounts.clear()
            accounts.update(draft)
            self.journal[row[0]] = done

    def _move(
        self,
        connection: "psycopg.Connection[Any]",
        accounts: dict[tuple[str, int], int],
        numbers: Iterator[int],
        choose: random.Random,
        table: str,
        amount: int,
    ) -> Iterator[Entry]:
        own = [each for name, each in accounts if name == table]
        if not own or choose.random() < 0.3:
            account = next(numbers)
            accounts[table, account] = amount
            note = f"n{account}" * choose.choice([1, 1, 500])
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", [account, amount, note])  # noqa: S608
            yield Entry(table, "insert", account, amount)
            return
        account = choose.choice(own)
        if len(own) > 1 and choose.random() < 0.3:
            amount += accounts.pop((table, account))
            connection.execute(f"DELETE FROM {table} WHERE id = %s", [account])  # noqa: S608
            yield Entry(table, "delete", account, None)
            account = choose.choice([each for each in own if each != account])
        accounts[table, account] += amount
        values = [accounts[table, account], account]
        connection.execute(f"UPDATE {table} SET balance = %s WHERE id = %s", values)  # noqa: S608
        yield Entry(table, "update", account, values[0])

    def balances(self) -> dict[tuple[str, int], int]:
        """Return what the source has."""
        with psycopg.connect(self.database) as connection:
            return {
                (table, account): balance
                for table in TABLES
                for account, balance in connection.execute(f"SELECT id, balance FROM {table}").fetchall()  # noqa: S608
            }


@dataclass
class State:
    """The lake tables at one vector."""

    anchor: list[dict[str, Any]]
    changes: dict[int, list[dict[str, Any]]]
    """By commit, in their order; each with the name of its table."""

    def problems(self) -> list[str]:
        """Return how transactions are not whole, or not there once."""
        lsns = [row["commit_lsn"] for row in self.anchor]
        found = []
        if len(set(lsns)) != len(lsns):
            found.append("a transaction is there twice")
        if more := {*self.changes} - {*lsns}:
            found.append(f"changes without a transaction: {more}")
        for row in self.anchor:
            places = [each["_position"] for each in self.changes.get(row["commit_lsn"], [])]
            if places != [*range(row["changes"])]:
                found.append(f"transaction {row} has the changes {places}")
        if total := sum(self.balances().values()):
            found.append(f"the sum of all balances is {total}")
        return found

    def balances(self) -> dict[tuple[str, int], int]:
        """Return the balances that the changes lead to."""
        found: dict[tuple[str, int], int] = {}
        for lsn in sorted(self.changes):
            for each in self.changes[lsn]:
                if each["_operation"] == "delete":
                    del found[each["table"], each["id"]]
                else:
                    found[each["table"], each["id"]] = each["balance"]
        return found


def test_the_reader_finds_transactions_that_are_not_whole() -> None:
    def state(anchor: list[tuple[int, int]], *places: tuple[int, int, int]) -> list[str]:
        changes: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for lsn, place, balance in places:
            row = {"_position": place, "_operation": "insert", "table": "t0", "id": place, "balance": balance}
            changes[lsn].append(row)
        return State([{"commit_lsn": lsn, "changes": count} for lsn, count in anchor], changes).problems()

    whole = (5, 0, 7), (5, 1, -7)
    assert state([(5, 2)], *whole) == []
    assert len(state([(5, 2)], whole[0])) == 2, "a change is missing, and so is its balance"
    assert len(state([(5, 2)], *whole, whole[1])) == 1
    assert len(state([(5, 2), (5, 2)], *whole)) == 1
    assert len(state([], *whole)) == 1
    assert len(state([(5, 2), (6, 1)], *whole)) == 1


class Reader(threading.Thread):
    """Reads all tables by the vector again and again, and checks what it sees."""

    def __init__(self, root: Path) -> None:
        super().__init__(name="reader", daemon=True)
        self._root = root
        self._at_one_commit = runpy.run_path(str(EXAMPLES / "read_tables.py"))["at_one_commit"]
        self._over = threading.Event()
        self.reads, self.transactions = 0, 0
        self.problems: list[str] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                if (state := self.look()) is None:
                    continue
                self.problems += state.problems()
                self.reads += len(state.anchor) > self.transactions
                self.transactions = len(state.anchor)
        except Exception as error:
            self.error = error

    def look(self) -> State | None:
        """Read all tables; None: there is no commit yet."""
        further = {name: f"{STREAM}.{name}" for name in TABLES}
        with catalog_of(self._root) as catalog:
            try:
                tables = self._at_one_commit(catalog, f"{STREAM}.transactions", further, USER)
            except LookupError:
                return None
            rows = {name: each.scan().to_arrow().to_pylist() for name, each in tables.items()}
        changes: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for name in TABLES:
            for row in rows[name]:
                changes[row["_commit_lsn"]].append({**row, "table": name})
        for each in changes.values():
            each.sort(key=lambda row: row["_position"])
        return State(rows["anchor"], changes)

    def started(self) -> "Reader":
        self.start()
        return self

    def end(self) -> None:
        self._over.set()
        self.join()
        assert self.error is None, self.error


@asynccontextmanager
async def at_work(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Do this beside the block, which it does not outlive."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.matrix
async def test_transactions_stay_whole_through_kills(
    kafka_bootstrap: str, unique: str, database: str, tmp_path: Path
) -> None:
    bank, dice = Bank(database), random.Random(unique)
    bank.make()
    await make_topics(kafka_bootstrap, unique)
    program = program_of(tmp_path, kafka_bootstrap, database, unique, "--changes", "100")
    settings, log = config(tmp_path, kafka_bootstrap, unique), tmp_path / "coordinator.log"
    reader, killed = Reader(tmp_path), {"program": 0, "coordinator": 0}

    async def progress(by: "subprocess.Popen[bytes]", path: Path) -> None:
        before = reader.transactions
        await until(lambda: reader.transactions, lambda now: now > before, by=by, log=path)
        # The kill that follows comes somewhere in one of the next commits.
        await asyncio.sleep(dice.uniform(0, 1))  # time: a moment of a kill

    async def coordinate() -> None:
        for _ in range(COORDINATORS):
            with coordinator_process(settings, log) as process:
                await progress(process, log)
            killed["coordinator"] += 1
        with coordinator_process(settings, log) as process:
            # A wait would watch the tellers, which end before.
            while process.poll() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # time: between two looks

    # What is committed before there is a slot is not copied, so the tellers wait for it.
    with coordinator_process(settings, log), program.started() as process:
        await until(lambda: slot_exists(database, unique), by=process, log=program.log)
    async with at_work(coordinate()) as coordinators:
        with watched(coordinators), watched(reader.started()):
            with bank.open(lambda: reader.transactions):
                for point in KILLS:
                    rule = {VARIABLE: f"{point}=kill@{dice.randint(1, 3)}"} if point else {}
                    with program.started(**rule) as process:
                        if point:
                            ended = await until(process.poll, lambda status: status is not None)
                            assert ended == -signal.SIGKILL, tail(program.log)
                        else:
                            await progress(process, program.log)
                    killed["program"] += 1
                with program.started() as process:
                    await until(
                        lambda: killed["coordinator"],
                        lambda now: now == COORDINATORS,
                        by=process,
                        log=program.log,
                    )
            with program.started() as process:
                expected = len(bank.journal)
                await until(
                    lambda: reader.transactions, lambda now: now >= expected, by=process, log=program.log
                )
    reader.end()
    state = reader.look()
    assert state is not None
    sizes = [row["changes"] for row in state.anchor]
    print(f"{len(sizes)} transactions of up to {max(sizes)} changes, {killed}, {reader.reads} reads")
    assert (reader.problems, state.problems()) == ([], [])
    assert reader.reads > len(KILLS)
    assert max(sizes) > 100
    found = {row["transaction_id"]: state.changes[row["commit_lsn"]] for row in state.anchor}
    assert len(found) == len(state.anchor)
    assert {
        number: [Entry(each["table"], each["_operation"], each["id"], each["balance"]) for each in rows]
        for number, rows in found.items()
    } == bank.journal
    assert state.balances() == bank.balances()


def config(root: Path, bootstrap: str, prefix: str) -> Path:
    """Write the settings of a coordinator."""
    stream = stream_of(root, *TABLES)
    place = root, bootstrap, prefix, STREAM, stream["table"]
    return config_of_tables(*place, stream["tables"], stream["options"]["uri"])
