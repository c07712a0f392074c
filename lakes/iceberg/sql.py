"""Catalog in a database: the tables of Iceberg's JDBC catalog, which pyiceberg's SQL catalog has, too."""

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from sluicegate.lakes.iceberg.catalog import (
    Identifier,
    NoTable,
    PointerCatalog,
    StateMissing,
    after_change,
    before_change,
)
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Uncertain

_KEY: Final = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_SELECT: Final = f"SELECT metadata_location FROM iceberg_tables WHERE {_KEY}"  # noqa: S608
_UPDATE: Final = (
    "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old "  # noqa: S608
    f"WHERE {_KEY} AND metadata_location = :old"
)
_INSERT: Final = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
    "VALUES (:catalog, :namespace, :name, :new)"
)
LIMITS: Final = "SET LOCAL lock_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A transaction that another writer leaves open must not stop us for ever, and ours must not stop others."""
_POSTGRES: Final = {"connect_timeout": "10", "tcp_user_timeout": "60000"}
"""Seconds for a connection, milliseconds until a peer that does not answer is given up."""


class SqlCatalog(PointerCatalog):
    """One table in a database."""

    def __init__(
        self, uri: str, catalog: str, identifier: Identifier, files: Files, *, pooled: bool = False
    ) -> None:
        """Prepare the access; nothing is connected yet. `pooled`: a connection stays open until `close`.

        Raises TableRefused for an unusable URI.
        """
        super().__init__(identifier, files)
        self._engine = _engine(uri, pooled)
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

    def close(self) -> None:
        self._engine.dispose()

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
        # A process that stands still inside of the transaction would keep others from the table.
        before_change()
        try:
            connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise self._unavailable("changed", error) from error
        with connection:
            try:
                if self._engine.dialect.name == "postgresql":
                    connection.execute(text(LIMITS))
                result = connection.execute(text(_UPDATE), {**self._key, "old": old, "new": new})
            except SQLAlchemyError as error:
                # The transaction never reaches its commit.
                raise self._unavailable("changed", error) from error
            if result.rowcount != 1:
                return False
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
                f"the catalog entry of {self._identifier} cannot be {what}: the database {file} is not there."
                " Restore the file, mount its storage, or correct the option uri"
            )
        return LakeUnavailable(
            f"the catalog entry of {self._identifier} cannot be {what}: {cause}. See whether the database "
            f"{self._shown} can be reached"
        )


def _for_driver(engine: Engine, sql: str, values: Mapping[str, str]) -> tuple[str, Any]:
    """Return a statement and its parameters in the form that the database's driver takes."""
    found = text(sql).compile(dialect=engine.dialect)
    names = found.positiontup
    return str(found), dict(values) if names is None else tuple(values[name] for name in names)


def _is_undone(raw: Any, cause: BaseException | None) -> bool:
    """Roll back a transaction that sqlite has refused to commit. Return False unless that is certain."""
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
        raise TableRefused(
            f"the option uri of the catalog cannot be used: {error}. Give the URI of a database as "
            "SQLAlchemy reads it, and install its driver"
        ) from error


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
