"""Groups in SQLite and Postgres: locks, deadlocks, and errors at the COMMIT of several entries."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from sluicegate.lakes.iceberg import sql
from sluicegate.lakes.iceberg.catalog import Identifier
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import Absent, Found, LakeError, OutcomeUnknown, Published
from sluicegate.lakes.storage import Uncertain
from tests.contracts.groups.harness import Coordinator, first
from tests.contracts.groups.iceberg_tables import NAMES, PostgresNamed, SqliteNamed, SqlTables
from tests.integration.waiting import wait_until
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow
ROWS = {"orders": [1], "items": [2], "bills": [3]}


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqlTables]:
    with closing(SqlTables({each: SqliteNamed(tmp_path, each) for each in NAMES})) as tables:
        yield tables


@pytest.fixture
def server(postgres: str, unique: str, tmp_path: Path) -> Iterator[SqlTables]:
    """Tables of a Postgres."""
    lakes = {each: PostgresNamed(postgres, unique, tmp_path, each) for each in NAMES}
    with closing(SqlTables(lakes)) as tables:
        yield tables
    for lake in lakes.values():
        lake.close()


def catalog_of(stream: Coordinator) -> SqlCatalog:
    catalog = stream.group._anchor.catalog  # type: ignore[attr-defined]
    assert isinstance(catalog, SqlCatalog)
    return catalog


def statements(engine: Engine) -> list[tuple[str, Any]]:
    """Return a list that gets the statements of an engine from now on."""
    found: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: bool) -> None:
        found.append((statement, parameters))

    return found


def drafts(tables: SqlTables) -> dict[str, set[str]]:
    """Return the files of each table's metadata that are there."""
    return {name: {*os.listdir(lake.root / "metadata")} for name, lake in tables.lakes.items()}


def ids(tables: SqlTables) -> dict[str, list[int]]:
    return {name: lake.ids() for name, lake in tables.lakes.items()}


@pytest.mark.parametrize("names", [["items", "bills"], ["bills", "items"]])
def test_entries_change_in_the_order_of_their_names(sqlite: SqlTables, names: list[str]) -> None:
    stream = Coordinator(sqlite, names=names)
    files = stream.files({name: [1] for name in ("orders", *names)})
    head = stream.absent(1, files)
    seen = statements(catalog_of(stream)._engine)
    assert isinstance(stream.publish(1, head, files), Published)
    changed = [
        next(each for each in parameters if each in NAMES) for text, parameters in seen if "UPDATE" in text
    ]
    assert changed == ["bills", "items", "orders"]


def test_all_entries_are_read_by_one_statement(sqlite: SqlTables) -> None:
    stream = Coordinator(sqlite)
    stream.commit(1, ROWS)
    seen = statements(catalog_of(stream)._engine)
    assert stream.group.trouble(stream.known) == {}
    (only,) = [text for text, _ in seen if "SELECT" in text]
    assert only.count("?") == 5


def test_a_conflict_deletes_the_files_of_the_table_that_moved_alone(sqlite: SqlTables) -> None:
    stream = Coordinator(sqlite)
    stream.commit(1, {"orders": [10], "items": [20], "bills": [30]})
    files, before = stream.files(ROWS), drafts(sqlite)
    head = stream.absent(2, files)
    seen: dict[str, set[str]] = {}

    def foreign(step: Callable[[], Any]) -> Any:
        seen.update({name: drafts(sqlite)[name] - before[name] for name in NAMES})
        sqlite.lakes["items"].foreign([100])
        return step()

    stream.at_step(foreign)
    assert is_refused(stream.publish(2, head, files), again=True)
    after = drafts(sqlite)
    assert all(seen.values())
    assert not seen["items"] & after["items"]
    assert not seen["orders"] & after["orders"]
    assert seen["bills"] <= after["bills"]
    assert isinstance(stream.publish(2, stream.absent(2, files), files), Published)
    assert drafts(sqlite)["bills"] == after["bills"]
    assert ids(sqlite) == {"orders": [1, 10], "items": [2, 20, 100], "bills": [3, 30]}


def test_files_of_a_decision_that_is_given_up_go_with_the_next_commit(sqlite: SqlTables) -> None:
    """The part of a table that had not moved was kept for the next try, which never came."""
    stream = Coordinator(sqlite)
    files, before = stream.files(ROWS), drafts(sqlite)
    head = stream.absent(1, files)
    stream.at_step(first(lambda: sqlite.lakes["items"].foreign([100])))
    assert is_refused(stream.publish(1, head, files), again=True)
    kept = drafts(sqlite)["bills"] - before["bills"]
    assert kept
    outcome = stream.publish(1, stream.absent(1, []), {})
    assert isinstance(outcome, Published)
    assert not kept & drafts(sqlite)["bills"]
    assert ids(sqlite) == {"orders": [], "items": [100], "bills": []}


def test_an_unknown_outcome_deletes_no_file(sqlite: SqlTables) -> None:
    stream = Coordinator(sqlite)
    files = stream.files(ROWS)
    head = stream.absent(1, files)
    written: dict[str, set[str]] = {}

    def lost(step: Callable[[], Any]) -> Any:
        written.update(drafts(sqlite))
        raise Uncertain("injected")

    stream.at_step(lost)
    assert isinstance(stream.publish(1, head, files), OutcomeUnknown)
    assert drafts(sqlite) == written
    stream.settle(1, files)
    assert all(written[name] <= drafts(sqlite)[name] for name in NAMES)
    assert ids(sqlite) == ROWS


@pytest.mark.parametrize("begin", ["begin immediate", "begin exclusive"])
def test_a_lock_of_another_connection_leaves_no_doubt(sqlite: SqlTables, begin: str) -> None:
    stream = Coordinator(sqlite)
    files, before = stream.files(ROWS), drafts(sqlite)
    request = stream.request(1, stream.absent(1, files), files)
    lake = sqlite.lakes["orders"]

    def locked(step: Callable[[], Any]) -> Any:
        catalog_of(stream)._engine = create_engine(f"{lake.uri}?timeout=0", poolclass=NullPool)
        with closing(sqlite3.connect(lake.database, isolation_level=None)) as other:
            other.execute(begin)
            try:
                return step()
            finally:
                other.execute("rollback")

    stream.at_step(locked)
    assert is_refused(stream.group.publish(request), again=True)
    assert drafts(sqlite) == before
    assert isinstance(stream.group.publish(request), Published)
    assert ids(sqlite) == ROWS


# --- Postgres ---------------------------------------------------------------------------------------


class Session:
    """A session of somebody else, with a transaction."""

    def __init__(self, tables: SqlTables) -> None:
        lake = tables.lakes["orders"]
        self._engine = create_engine(lake.uri, poolclass=NullPool)
        self._namespace = lake.table_name.namespace[0]
        self.connection = self._engine.connect()

    def hold(self, name: str, *, wait: bool = True) -> None:
        """Lock the entry of a table. Without waiting, an error if another session has it."""
        query = "SELECT 1 FROM iceberg_tables WHERE table_namespace = :at AND table_name = :name FOR UPDATE"
        values = {"at": self._namespace, "name": name}
        self.connection.execute(text(query if wait else f"{query} NOWAIT"), values)

    def waiting(self) -> bool:
        """Return True if another session waits for a lock."""
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE%'"
        )
        with self._engine.connect() as connection:
            return bool(connection.execute(text(query)).scalar_one())

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def session(server: SqlTables) -> Iterator[Session]:
    with closing(Session(server)) as found:
        yield found


class Publishing(threading.Thread):
    """A publication in a thread."""

    def __init__(self, publish: Callable[[], object]) -> None:
        super().__init__()
        self._publish = publish
        self.outcome: object = None

    def run(self) -> None:
        self.outcome = self._publish()


def test_a_group_that_waits_holds_only_entries_of_lower_names(server: SqlTables, session: Session) -> None:
    """Their order is by name for all, so no two groups wait for each other."""
    stream = Coordinator(server, names=["items", "bills"])
    files = stream.files(ROWS)
    request = stream.request(1, stream.absent(1, files), files)
    session.hold("items")
    publishing = Publishing(lambda: stream.group.publish(request))
    publishing.start()
    wait_until(session.waiting, what="the group waits for the entry of items")
    with closing(Session(server)) as other:
        other.hold("orders", wait=False)
        with pytest.raises(Exception, match="could not obtain lock"):
            other.hold("bills", wait=False)
    session.connection.rollback()
    publishing.join()
    assert isinstance(publishing.outcome, Published), publishing.outcome
    assert ids(server) == ROWS


def test_a_wait_for_an_entry_ends_and_nothing_is_published(server: SqlTables, session: Session) -> None:
    stream = Coordinator(server)
    files, before = stream.files(ROWS), drafts(server)
    request = stream.request(1, stream.absent(1, files), files)
    session.hold("orders")
    assert "lock_timeout = '2s'" in sql.GROUP_LIMITS
    outcome = stream.group.publish(request)
    assert is_refused(outcome, again=True)
    assert "lock timeout" in outcome.reason
    assert drafts(server) == before
    session.connection.rollback()
    assert isinstance(stream.ask(1, files), Absent)
    assert isinstance(stream.group.publish(request), Published)
    assert ids(server) == ROWS


@pytest.mark.matrix
def test_two_groups_with_opposite_orders_never_deadlock(server: SqlTables) -> None:
    one = Coordinator(server, names=["items", "bills"])
    two = Coordinator(server, "stream-b", names=["bills", "items"])
    rounds, refusals = 15, list[str]()

    def run(stream: Coordinator, base: int) -> int:
        for decision in range(1, rounds + 1):
            files = stream.files({name: [base + decision] for name in NAMES})
            while True:
                answer = stream.ask(decision, files)
                if isinstance(answer, Found):
                    stream.record(decision, answer)
                    break
                assert isinstance(answer, Absent)
                outcome = stream.publish(decision, answer.head, files)
                if is_refused(outcome, again=True):
                    refusals.append(outcome.reason)
        return rounds

    others = [Publishing(lambda: run(one, 0)), Publishing(lambda: run(two, 1000))]
    for each in others:
        each.start()
    for each in others:
        each.join()
    assert [each.outcome for each in others] == [rounds, rounds]
    own = [*range(1, rounds + 1), *range(1001, 1001 + rounds)]
    assert ids(server) == dict.fromkeys(NAMES, own)
    assert not [each for each in refusals if "deadlock" in each or "timeout" in each]


TRIGGER = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END $$;
CREATE CONSTRAINT TRIGGER {name} AFTER UPDATE ON iceberg_tables DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.table_namespace = '{namespace}') EXECUTE FUNCTION {name}()
"""


@pytest.mark.parametrize(
    ("code", "known"), [("40001", True), ("40P01", True), ("40002", True), ("40003", False), ("23505", False)]
)
def test_an_error_at_the_commit_is_known_only_where_the_database_says_so(
    server: SqlTables, code: str, known: bool
) -> None:
    stream = Coordinator(server)
    files, before = stream.files(ROWS), drafts(server)
    request = stream.request(1, stream.absent(1, files), files)
    lake = server.lakes["orders"]
    names = {"name": f"fail_{lake.table_name.namespace[0]}", "namespace": lake.table_name.namespace[0]}
    with lake._database() as connection:
        connection.execute(text(TRIGGER.format(**names, code=code)))
    outcome = stream.group.publish(request)
    with lake._database() as connection:
        connection.execute(text("DROP FUNCTION {name} CASCADE".format(**names)))
    if known:
        assert is_refused(outcome, again=True)
        assert drafts(server) == before
    else:
        assert isinstance(outcome, OutcomeUnknown)
        assert all(before[name] < drafts(server)[name] for name in NAMES)
    assert isinstance(stream.ask(1, files), Absent)
    assert stream.settle(1, files) == 1
    assert ids(server) == ROWS


def end_session(connection: Connection, uri: str) -> None:
    """End a session from outside, as a failover does."""
    pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with create_engine(uri, poolclass=NullPool).connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


@pytest.mark.parametrize("landed", [False, True])
def test_a_session_that_ends_at_the_commit_leaves_the_outcome_unknown(
    server: SqlTables, landed: bool
) -> None:
    stream = Coordinator(server)
    files = stream.files(ROWS)
    request = stream.request(1, stream.absent(1, files), files)
    catalog, uri = catalog_of(stream), server.lakes["orders"].uri
    finish = catalog.finish

    def cut(connection: Connection) -> None:
        if landed:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.commit()
            # The library's own commit follows, and needs a transaction to fail.
            driver.execute("SELECT 1")
        end_session(connection, uri)
        finish(connection)

    vars(catalog)["finish"] = cut
    assert isinstance(stream.group.publish(request), OutcomeUnknown)
    del vars(catalog)["finish"]
    assert isinstance(stream.ask(1, files), Found if landed else Absent)
    assert stream.settle(1, files) == (0 if landed else 1)
    assert ids(server) == ROWS


@pytest.mark.matrix
def test_one_statement_sees_every_decision_in_all_tables_or_in_none(server: SqlTables) -> None:
    """Invariant 13: readers of all pointers see no torn decision."""
    stream, stop, torn = Coordinator(server), threading.Event(), list[object]()
    reader = Coordinator(server)
    tables = [reader.group._anchor, *(reader.group.table(each.terms) for each in reader.known.values())]

    def read() -> None:
        while not stop.is_set():
            states = reader.group._transactions.load_all(tables)
            counts = {len(each.snapshots) for each in states if not isinstance(each, LakeError)}
            if len(counts) > 1:
                torn.append(counts)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for decision in range(1, 16):
            stream.commit(decision, {name: [decision] for name in NAMES})
    finally:
        stop.set()
        thread.join()
    assert torn == []


def test_entries_of_500_tables_are_read_by_one_statement(sqlite: SqlTables, server: SqlTables) -> None:
    for tables in (sqlite, server):
        stream = Coordinator(tables)
        catalog, lake = catalog_of(stream), tables.lakes["items"]
        files = Files()
        siblings = [catalog.sibling(Identifier(("away",), f"t{number}"), files) for number in range(499)]
        siblings.insert(250, catalog.sibling(lake.table_name, files))
        found = catalog.locations(siblings)
        assert found[250] == lake.metadata.location
        assert found.count(None) == 499
