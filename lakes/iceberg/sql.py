"""Catalog in a database: the tables of Iceberg's JDBC catalog, which pyiceberg's SQL catalog has, too."""

import json
import os
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from contextlib import closing
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.installation import install_command
from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.group import GroupTable, Member, Unchanged
from sluicegate.lakes.iceberg.catalog import (
    Identifier,
    NoTable,
    PointerCatalog,
    StateMissing,
    Written,
    after_change,
    before_change,
    missing_table,
)
from sluicegate.lakes.iceberg.committer import Composed, IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Metadata
from sluicegate.lakes.port import LakeError, LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Uncertain
from sluicegate.lakes.threads import CommitThreads

_KEY: Final = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_SELECT: Final = f"SELECT metadata_location FROM iceberg_tables WHERE {_KEY}"  # noqa: S608
_SELECT_ALL: Final = (
    "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables "
    "WHERE catalog_name = :catalog AND (table_namespace, table_name) IN (VALUES {})"
)
_UPDATE: Final = (
    "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old "  # noqa: S608
    f"WHERE {_KEY} AND metadata_location = :old"
)
_KEEP: Final = f"UPDATE iceberg_tables SET metadata_location = :old WHERE {_KEY} AND metadata_location = :old"  # noqa: S608
"""Holds an entry as it is until the transaction ends."""
_INSERT: Final = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
    "VALUES (:catalog, :namespace, :name, :new)"
)
_IDLE: Final = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
LIMITS: Final = f"SET LOCAL lock_timeout = '60s'; {_IDLE}"
"""A transaction that another writer leaves open must not stop us for ever, and ours must not stop others."""
GROUP_LIMITS: Final = f"SET LOCAL lock_timeout = '2s'; {_IDLE}"
"""A transaction over several entries holds those before the one that it waits for."""
_SIDE_BY_SIDE: Final = 8
"""Tables of one commit whose files are written at a time."""
_POSTGRES: Final = {"connect_timeout": "10", "tcp_user_timeout": "60000"}
"""Seconds for a connection, milliseconds until a peer that does not answer is given up."""


class SqlCatalog(PointerCatalog):
    """One table in a database."""

    def __init__(
        self,
        uri: str,
        catalog: str,
        identifier: Identifier,
        files: Files,
        *,
        pooled: bool = False,
        engine: Engine | None = None,
    ) -> None:
        """Prepare the access; nothing is connected yet. `pooled`: a connection stays open until `close`.

        `engine`: connections of another table's access, which closes them. Raises TableRefused for an
        unusable URI.
        """
        super().__init__(identifier, files)
        self._uri, self._catalog, self._owns = uri, catalog, engine is None
        self._engine = engine or _engine(uri, pooled)
        self._shown = make_url(uri).render_as_string(hide_password=True)
        self._key = {
            "catalog": catalog,
            "namespace": ".".join(identifier.namespace),
            "name": identifier.name,
        }
        self._select = _for_driver(self._engine, _SELECT, self._key)

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        self._files.create(location, json.dumps(fields).encode())
        try:
            with self._engine.begin() as connection:
                connection.execute(text(_INSERT), {**self._key, "new": location})
        except IntegrityError:
            self._files.discard([location])
        except SQLAlchemyError as error:
            raise self._unavailable("made", error) from error

    def access(self) -> CatalogAccess:
        login = "user of the address" if self._engine.url.username else "none"
        # No entry names such a location, so nothing is changed.
        nowhere = f"{self.identifier}#{uuid.uuid4()}"
        taken = self._transact([{**self._key, "old": nowhere, "new": nowhere}], LIMITS)
        return CatalogAccess("SQL catalog", self._shown, login, refuses=not taken)

    def close(self) -> None:
        if self._owns:
            self._engine.dispose()

    def sibling(self, identifier: Identifier, files: Files) -> "SqlCatalog":
        """Return another table of this catalog, over the same connections."""
        return SqlCatalog(self._uri, self._catalog, identifier, files, engine=self._engine)

    def locations(self, tables: Sequence["SqlCatalog"]) -> list[str | None]:
        """Return the locations that the entries of siblings name, read with one statement; None: no entry.

        Raises LakeUnavailable.
        """
        keys = [(each._key["namespace"], each._key["name"]) for each in tables]
        pairs = ", ".join(f"(:namespace{number}, :name{number})" for number in range(len(keys)))
        values = {"catalog": self._catalog}
        for number, (namespace, name) in enumerate(keys):
            values |= {f"namespace{number}": namespace, f"name{number}": name}
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(text(_SELECT_ALL.format(pairs)), values).all()
        except SQLAlchemyError as error:
            raise self._unavailable("read", error) from error
        found = {(namespace, name): str(location) for namespace, name, location in rows}
        return [found.get(key) for key in keys]

    def swap_all(
        self,
        changes: Sequence[tuple["SqlCatalog", Written]],
        kept: "tuple[SqlCatalog, Metadata] | None" = None,
    ) -> bool:
        """Replace the entries of siblings in one transaction. False: one has changed, and none is replaced.

        `kept`: another entry that must not have changed either. All committers touch entries in the order of
        their names, so that none waits for another one in a circle. Raises as `_swap` does.
        """
        updates = [{**each._key, "old": it.base.location, "new": it.made.location} for each, it in changes]
        if kept is not None:
            updates.append({**kept[0]._key, "old": kept[1].location})
        updates.sort(key=lambda each: (each["namespace"], each["name"]))
        return self._transact(updates, GROUP_LIMITS)

    def _location(self) -> str:
        # Each step of a commit reads it. The driver's own connection does so in a third of the time.
        try:
            with closing(self._engine.raw_connection()) as connection:
                try:
                    with closing(connection.cursor()) as cursor:
                        cursor.execute(*self._select)
                        found = cursor.fetchone()
                except BaseException:
                    # It may be broken, and is not used again.
                    connection.invalidate()
                    raise
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            raise self._unavailable("read", error) from error
        if found is None:
            raise NoTable
        return str(found[0])

    def _swap(self, old: str, new: str) -> bool:
        return self._transact([{**self._key, "old": old, "new": new}], LIMITS)

    def _transact(self, updates: Sequence[Mapping[str, str]], limits: str) -> bool:
        # A process that stands still inside of the transaction would keep others from the table.
        before_change()
        try:
            connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise self._unavailable("changed", error) from error
        with connection:
            try:
                if self._engine.dialect.name == "postgresql":
                    connection.execute(text(limits))
                for update in updates:
                    statement = _UPDATE if "new" in update else _KEEP
                    if connection.execute(text(statement), update).rowcount != 1:
                        return False
            except SQLAlchemyError as error:
                # The transaction never reaches its commit.
                raise self._unavailable("changed", error) from error
            self.finish(connection)
            after_change()
        return True

    def finish(self, connection: Connection) -> None:
        """Commit the transaction that makes a change visible. Raises Uncertain, or LakeUnavailable."""
        raw = connection.connection.dbapi_connection
        try:
            connection.commit()
        except SQLAlchemyError as error:
            if _is_undone(raw, error.__cause__):
                raise self._unavailable("changed", error) from error
            raise Uncertain(str(self._unavailable("changed, perhaps", error))) from error

    def _unavailable(self, what: str, error: Exception) -> LakeUnavailable:
        cause = getattr(error, "orig", None) or error
        file = _file_of(make_url(self._shown))
        if file is not None and not os.path.exists(file):
            return StateMissing(
                f"the catalog entry of {self.identifier} cannot be {what}: the database {file} is not there."
                " Restore the file, mount its storage, or correct the option uri"
            )
        return LakeUnavailable(
            f"the catalog entry of {self.identifier} cannot be {what}: {cause}. See whether the database "
            f"{self._shown} can be reached"
        )


_Member = Member[Metadata, Composed]


class SqlTransactions:
    """Transactions over several entries of one database."""

    def __init__(self, anchor: SqlCatalog) -> None:
        self._anchor = anchor
        self._written: dict[int, tuple[SqlCatalog, Written]] = {}
        """By snapshot id, further changes that are written, and that no transaction has made visible yet."""

    def scope(self, metadata: Metadata) -> str | None:
        return None

    def load_all(self, tables: Sequence[GroupTable[Metadata, Composed]]) -> list[Metadata | LakeError]:
        catalogs = [_catalog_of(each) for each in tables]
        found: list[Metadata | LakeError] = []
        for table, location in zip(catalogs, self._anchor.locations(catalogs), strict=True):
            try:
                found.append(
                    table.load_at(location) if location is not None else missing_table(table.identifier)
                )
            except LakeError as error:
                found.append(error)
            except NoTable:
                found.append(missing_table(table.identifier))
        return found

    def commit_all(
        self, members: Sequence[_Member], unchanged: Unchanged[Metadata, Composed] | None = None
    ) -> bool:
        kept = (_catalog_of(unchanged.table), unchanged.state) if unchanged is not None else None
        try:
            changes = self._write_all(members)
            swapped = self._anchor.swap_all(changes, kept)
        except LakeUnavailable:
            numbers = {_number_of(each) for each in members}
            self._discard([change for number, change in self._written.items() if number in numbers])
            raise
        except Uncertain:
            self._written.clear()
            raise
        if swapped:
            for table, written in changes:
                table.swapped(written)
            visible = {written.made.location for _, written in changes}
            # Of a decision that was given up, or that somebody else has published.
            self._discard([each for each in self._written.values() if each[1].made.location not in visible])
            self._written.clear()
            return True
        # A further table that has not moved keeps its files for the next try.
        found = self._anchor.locations([table for table, _ in changes])
        moved = [
            change
            for change, member, location in zip(changes, members, found, strict=True)
            if not member.name or location != change[1].base.location
        ]
        hit(Failpoint.LAKE_DISCARD_BEFORE)
        self._discard(moved)
        hit(Failpoint.LAKE_DISCARD_AFTER)
        return False

    def _write_all(self, members: Sequence[_Member]) -> list[tuple[SqlCatalog, Written]]:
        """Write the files of all changes side by side, as storage takes several at once.

        Raises LakeUnavailable, and nothing is written any more then.
        """
        if len(members) == 1:
            return [self._write(members[0])]
        threads = _writers(os.getpid())
        writes = [threads.submit(self._write, each) for each in members]
        wait(writes)
        return [each.result() for each in writes]

    def _write(self, member: _Member) -> tuple[SqlCatalog, Written]:
        base, change, draft = member.composed.base, member.composed.change, member.composed.draft
        number = _number_of(member)
        if number not in self._written:
            table = _catalog_of(member.table)
            self._written[number] = table, table.write(base, change, draft.files)
        return self._written[number]

    def _discard(self, changes: Sequence[tuple[SqlCatalog, Written]]) -> None:
        gone = {written.made.location for _, written in changes}
        self._written = {
            key: each for key, each in self._written.items() if each[1].made.location not in gone
        }
        for table, written in changes:
            table.discard(written)


@cache
def _writers(process: int) -> CommitThreads:
    """Return the threads of a process for the tables of a commit; a fork has none of them."""
    return CommitThreads(_SIDE_BY_SIDE)


def _number_of(member: _Member) -> int:
    return int(member.composed.change.snapshot["snapshot-id"])


def _catalog_of(table: GroupTable[Metadata, Composed]) -> SqlCatalog:
    if not isinstance(table, IcebergCommitter) or not isinstance(table.catalog, SqlCatalog):
        raise TypeError(f"{table!r} is no table of an SQL catalog")
    return table.catalog


def _for_driver(engine: Engine, sql: str, values: Mapping[str, str]) -> tuple[str, Any]:
    """Return a statement and its parameters in the form that the database's driver takes."""
    found = text(sql).compile(dialect=engine.dialect)
    names = found.positiontup
    return str(found), dict(values) if names is None else tuple(values[name] for name in names)


_UNDONE: Final = "40"
_UNKNOWN: Final = "40003"
"""SQLSTATE of class 40 says that a transaction was rolled back, except for this one."""


def _is_undone(raw: Any, cause: BaseException | None) -> bool:
    """Return True if a transaction was certainly not committed; one that sqlite refuses is rolled back."""
    state = str(getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or "")
    if state.startswith(_UNDONE) and state != _UNKNOWN:
        return True
    busy = isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    # Another connection reads. The transaction stays open then.
    if not busy or not isinstance(raw, sqlite3.Connection) or not raw.in_transaction:
        return False
    try:
        raw.rollback()
    except sqlite3.Error:
        return False
    return not raw.in_transaction


def _engine(uri: str, pooled: bool) -> Engine:
    try:
        url = make_url(uri)
        # A file needs no pool, and an open one would block the tools of its owner.
        if url.get_backend_name() == "sqlite":
            return create_engine(_existing(url), poolclass=NullPool)
        if url.get_backend_name() == "postgresql":
            url = url.set(query={**_POSTGRES, **url.query})
        return create_engine(url, pool_pre_ping=True) if pooled else create_engine(url, poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        way_out = "Give the URI of a database as SQLAlchemy reads it, and install its driver"
        if isinstance(error, ImportError) and uri.startswith("postgres"):
            install = install_command("iceberg", "postgres")
            way_out = f"Use postgresql+psycopg://, whose driver comes with: {install}"
        raise TableRefused(f"the option uri of the catalog cannot be used: {error}. {way_out}") from error


def _file_of(url: URL) -> str | None:
    """Return the path of a database of sqlite; None for one in memory, and for other databases."""
    path = url.database or ""
    known = url.get_backend_name() == "sqlite" and path not in ("", ":memory:") and "uri" not in url.query
    return os.path.abspath(path) if known else None


def _existing(url: URL) -> URL:
    """Return the URL with which sqlite does not make a database that is missing."""
    path = _file_of(url)
    if path is None:
        return url
    return url.set(database=f"file:{quote(path)}", query={**url.query, "mode": "rw", "uri": "true"})
