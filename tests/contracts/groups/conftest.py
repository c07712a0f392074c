"""Every catalog that has a group of tables: in memory, in SQLite, in Postgres and behind REST."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.groups.harness import Coordinator, Tables
from tests.contracts.groups.iceberg_tables import (
    NAMES,
    IcebergTables,
    NessieNamed,
    PostgresNamed,
    RestNamed,
    RestTables,
    SqliteNamed,
    SqlTables,
)
from tests.contracts.groups.memory_tables import MemoryTables
from tests.contracts.lakes.iceberg_objects import s3_folder
from tests.iceberg_java.java import RestCatalogServer
from tests.nessie import Nessie

_SLOW: Final = pytest.mark.slow
_MATRIX: Final = pytest.mark.matrix
MEMORY: Final = "memory"
SQLITE: Final = pytest.param("sqlite", marks=_SLOW)
POSTGRES: Final = pytest.param("postgres", marks=[_SLOW, _MATRIX])
REST: Final = pytest.param("rest", marks=[_SLOW, _MATRIX])
NESSIE: Final = pytest.param("nessie", marks=[_SLOW, _MATRIX, pytest.mark.s3])
KEPT: Final = (MEMORY, SQLITE, POSTGRES)
"""Catalogs whose tables list their history, and can be set back by a test."""
ATOMIC: Final = (*KEPT, NESSIE)
"""Catalogs that change several tables in one step."""
ALL: Final = (*ATOMIC, REST)


def _tables(request: pytest.FixtureRequest, folder: Path) -> Iterator[Tables]:
    name: str = request.param
    if name == "memory":
        yield MemoryTables()
        return
    with closing(_iceberg(name, request, folder)) as tables:
        yield tables


def _iceberg(name: str, request: pytest.FixtureRequest, folder: Path) -> IcebergTables:
    if name == "sqlite":
        return SqlTables({each: SqliteNamed(folder, each) for each in NAMES})
    unique: str = request.getfixturevalue("unique")
    if name == "postgres":
        uri: str = request.getfixturevalue("postgres")
        lakes = {each: PostgresNamed(uri, unique, folder, each) for each in NAMES}
        for lake in lakes.values():
            request.addfinalizer(lake.close)
        return SqlTables(lakes)
    if name == "nessie":
        nessie: Nessie = request.getfixturevalue("nessie")
        objects = s3_folder(request)
        return RestTables({each: NessieNamed(nessie, folder, objects, each) for each in NAMES})
    server: RestCatalogServer = request.getfixturevalue("iceberg_rest")
    return RestTables({each: RestNamed(server, unique, folder, each) for each in NAMES})


@pytest.fixture(params=ALL)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Tables of any catalog."""
    yield from _tables(request, tmp_path)


@pytest.fixture(params=ATOMIC)
def atomic(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Tables of a catalog that changes them in one step."""
    yield from _tables(request, tmp_path)


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Tables of a catalog that lists their history."""
    yield from _tables(request, tmp_path)


@pytest.fixture
def stream(tables: Tables) -> Coordinator:
    """A coordinator of the tables of any catalog."""
    return Coordinator(tables)


@pytest.fixture
def safe(atomic: Tables) -> Coordinator:
    """A coordinator of tables that change in one step."""
    return Coordinator(atomic)


@pytest.fixture
def past(kept: Tables) -> Coordinator:
    """A coordinator of tables whose history a test can change."""
    return Coordinator(kept)
