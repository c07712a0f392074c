"""Iceberg's groups under the contract: catalogs in SQLite, in Postgres and behind REST."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from sqlalchemy import text

from sluicegate.lakes.iceberg.adapter import ATOMIC, IcebergAdapter
from sluicegate.lakes.iceberg.ancestry import vector_property
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN, Metadata
from sluicegate.lakes.iceberg.rest import RestTable
from sluicegate.lakes.iceberg.sql import SqlCatalog
from tests.contracts.groups.harness import ANCHOR, FURTHER, AnyGroup, Around
from tests.contracts.lakes.harness import USER, Fault
from tests.contracts.lakes.iceberg_lake import ID_ONLY, IcebergLake
from tests.contracts.lakes.iceberg_objects import S3Folder
from tests.contracts.lakes.iceberg_rest_lake import PostgresLake, RestLake
from tests.iceberg_java.java import RestCatalogServer
from tests.nessie import Nessie

NAMES = (ANCHOR, *FURTHER)


class SqliteNamed(IcebergLake):
    """A table of a catalog in a file, by its name."""

    def __init__(self, warehouse: Path, name: str) -> None:
        self.name = name
        super().__init__(warehouse)

    def _connect(self, warehouse: Path) -> None:
        super()._connect(warehouse)
        self.table_name = replace(self.table_name, name=self.name)


class PostgresNamed(PostgresLake):
    """A table of a catalog in a Postgres, by its name."""

    def __init__(self, uri: str, unique: str, warehouse: Path, name: str) -> None:
        self.name = name
        super().__init__(uri, unique, warehouse)

    def _connect(self, warehouse: Path) -> None:
        super()._connect(warehouse)
        self.table_name = replace(self.table_name, name=self.name)


class RestNamed(RestLake):
    """A table of a REST catalog, by its name."""

    def __init__(self, server: RestCatalogServer, unique: str, warehouse: Path, name: str) -> None:
        self.name = name
        super().__init__(server, unique, warehouse)

    def _connect(self, warehouse: Path) -> None:
        super()._connect(warehouse)
        self.table_name = replace(self.table_name, name=self.name)


class NessieNamed(IcebergLake):
    """A table of a Nessie, by its name. Its catalog has no database that a test could change."""

    def __init__(self, server: Nessie, warehouse: Path, objects: S3Folder, name: str) -> None:
        self._server, self.name = server, name
        super().__init__(warehouse, objects=objects)

    def _connect(self, warehouse: Path) -> None:
        assert self.objects is not None
        self.table_name = Identifier((self.objects.name,), self.name)
        self.options = {"type": "rest", "uri": self._server.uri, "identifier": str(self.table_name)}
        self.adapter = IcebergAdapter(self.options)
        self.library = RestCatalog("default", type="rest", uri=self._server.uri, **self.access)

    def _create(self) -> None:
        super()._create()
        # The catalog gives the table a folder with a name of its own.
        self.location = self.base = self.metadata.table_location

    def catalog(self, files: Files) -> Catalog:
        options = {"type": "rest", "uri": self._server.uri}
        return RestTable(options, "default", self.table_name, files)

    @property
    def metadata(self) -> Metadata:
        return self.catalog(Files()).load()

    def committer(self, user: str = USER, fault: Fault | None = None) -> IcebergCommitter:
        files = Files()
        return IcebergCommitter(self.catalog(files), files, user, MAIN)


class IcebergTables(ABC):
    """Tables of one catalog, which groups open through the adapter."""

    options: Mapping[str, str] = {}
    """Options of an anchor beside those of its catalog."""

    def __init__(self, lakes: Mapping[str, IcebergLake]) -> None:
        self.lakes = lakes
        self._opened: list[AnyGroup] = []

    def close(self) -> None:
        for each in self._opened:
            each.close()

    def identifier(self, name: str) -> str:
        return str(self.lakes[name].table_name)

    def group(self, user: str, anchor: str, wanted: Mapping[str, str]) -> AnyGroup:
        lake = self.lakes[anchor]
        table = lake.adapter.parse_table(lake.location, self.options)
        found = lake.adapter.open_group(table, user, {name: (each, ()) for name, each in wanted.items()})
        self._opened.append(found)
        return found

    @abstractmethod
    def at_step(self, group: AnyGroup, around: Around) -> None:
        """Let something happen at the deciding step of the group's next publication."""

    @abstractmethod
    def alias(self, name: str) -> str:
        """Give a table a second name in the catalog, and return that."""

    def vector(self, user: str = USER) -> dict[str, tuple[int, str | None]]:
        text = self.lakes[ANCHOR].metadata.properties[vector_property(user, MAIN)]
        return {
            name: (decision, str(snapshot) if snapshot is not None else None)
            for name, (decision, snapshot) in json.loads(text)["tables"].items()
        }

    def inside(self, name: str) -> str:
        lake = self.lakes[name]
        identifier = f"{lake.table_name.namespace[0]}.inner"
        path = f"{lake.metadata.table_location}/data/inner"
        made = lake.library.create_table(identifier, ID_ONLY, properties={"write.data.path": path})
        made.append(pa.table({"id": pa.array([], pa.int64())}))
        return identifier


def _wrap(target: object, name: str, around: Around, *, method: str = "") -> None:
    """Let something happen around the next call of a method; `method`: only if that is its first argument."""
    # One that nobody has called is forgotten.
    vars(target).pop(name, None)
    inner, left = getattr(target, name), [around]

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if left and (not method or arguments[0] == method):
            return left.pop()(lambda: inner(*arguments, **named))
        return inner(*arguments, **named)

    setattr(target, name, wrapped)


class SqlTables(IcebergTables):
    """Tables of a database."""

    def at_step(self, group: AnyGroup, around: Around) -> None:
        catalog = group._anchor.catalog  # type: ignore[attr-defined]
        assert isinstance(catalog, SqlCatalog)
        _wrap(catalog, "swap_all", around)

    def alias(self, name: str) -> str:
        lake = self.lakes[name]
        insert = (
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES ('default', :at, 'alias', :location)"
        )
        with lake._database() as connection:
            values = {"at": lake.table_name.namespace[0], "location": lake.metadata.location}
            connection.execute(text(insert), values)
        return f"{lake.table_name.namespace[0]}.alias"


class RestTables(IcebergTables):
    """Tables behind REST."""

    options: Mapping[str, str] = {"transactions": ATOMIC}

    def __init__(self, lakes: Mapping[str, IcebergLake], *, empty: bool = False) -> None:
        """`empty`: the tables have no snapshot yet, so no group takes them."""
        super().__init__(lakes)
        for lake in lakes.values() if not empty else ():
            lake.foreign()

    def at_step(self, group: AnyGroup, around: Around) -> None:
        catalog = group._anchor.catalog  # type: ignore[attr-defined]
        assert isinstance(catalog, RestTable)
        _wrap(catalog, "_send", around, method="POST")

    def alias(self, name: str) -> str:
        lake = self.lakes[name]
        identifier = f"{lake.table_name.namespace[0]}.alias"
        lake.library.register_table(identifier, lake.metadata.location)
        return identifier
