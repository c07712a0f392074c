"""Iceberg behind a REST catalog and in a Postgres under the contract, and the choice of Iceberg's tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog as SqlLibraryCatalog
from requests import Response

from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.rest import RestTable
from sluicegate.lakes.port import LakeUnavailable, TableRef
from tests.contracts.lakes.harness import Fault, Killed
from tests.contracts.lakes.iceberg_glue_lake import GlueLake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_objects import S3Folder, s3_folder
from tests.iceberg_java.java import RestCatalogServer


class FaultyTable(RestTable):
    """Loses the answer to one commit, or the commit itself."""

    fault: Fault | None = None

    def _send(
        self,
        method: str,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        of_table: bool = True,
    ) -> Response:
        fault, self.fault = (self.fault, None) if method == "POST" else (None, self.fault)
        if fault is not Fault.LOST:
            answer = super()._send(method, endpoint, body, headers, of_table=of_table)
        if fault is not None:
            raise LakeUnavailable("injected")
        return answer


class ThawingTable(RestTable):
    """Stands still right before the request of a commit, goes on, and is killed right after."""

    meanwhile: Callable[[], None]

    def _send(
        self,
        method: str,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        of_table: bool = True,
    ) -> Response:
        if method == "POST":
            self.meanwhile()
        answer = super()._send(method, endpoint, body, headers, of_table=of_table)
        if method == "POST":
            raise Killed
        return answer


class RestLake(IcebergLake):
    """A table of a REST catalog, in a namespace of its own."""

    def __init__(
        self,
        server: RestCatalogServer,
        unique: str,
        warehouse: Path,
        version: int = 2,
        *,
        objects: S3Folder | None = None,
    ) -> None:
        self._server = server
        self._namespace = unique
        super().__init__(warehouse, version, objects=objects)

    def _connect(self, warehouse: Path) -> None:
        self.table_name = Identifier((self._namespace,), "numbers")
        self.database = str(self._server.database)
        self.database_uri = f"sqlite:///{self.database}"
        self.uri = self._server.uri
        self._access = {"type": "rest", "uri": self.uri}
        self.options = self._access
        self.adapter = IcebergAdapter(self._access)
        self.library = RestCatalog("default", **self._access, **self.access)

    def catalog(self, files: Files) -> Catalog:
        return RestTable(self._access, "default", self.table_name, files)

    def faulty(self, files: Files, fault: Fault | None) -> Catalog:
        catalog = FaultyTable(self._access, "default", self.table_name, files)
        catalog.fault = fault
        return catalog

    def thawing(self, files: Files, meanwhile: Callable[[], None]) -> Catalog:
        catalog = ThawingTable(self._access, "default", self.table_name, files)
        catalog.meanwhile = meanwhile
        return catalog


class RecordingAdapter(IcebergAdapter):
    """Remembers the committers, which keep connections open."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        super().__init__(defaults)
        self.opened: list[IcebergCommitter] = []

    def open_committer(self, table: TableRef, commit_user: str) -> IcebergCommitter:
        self.opened.append(super().open_committer(table, commit_user))
        return self.opened[-1]


class PostgresLake(IcebergLake):
    """A table of a catalog in a Postgres, in a namespace of its own."""

    def __init__(self, uri: str, unique: str, warehouse: Path, version: int = 2) -> None:
        self._given = uri
        self._namespace = unique
        super().__init__(warehouse, version)

    def _connect(self, warehouse: Path) -> None:
        self.table_name = Identifier((self._namespace,), "numbers")
        self.database = ""
        self.uri = self.database_uri = self._given
        self.options = {"uri": self.uri}
        self.adapter = self._recording = RecordingAdapter(self.options)
        self.library = SqlLibraryCatalog("default", uri=self.uri, warehouse=f"file://{warehouse}")

    def close(self) -> None:
        """Close what is open, the library's connections included."""
        for committer in self._recording.opened:
            committer.close()
        self.library.close()


ICEBERG: Final = ("iceberg", "iceberg-v3", "iceberg-rest", "iceberg-rest-v3")
"""Names of the tables of the contract suite that the library for Java can reach, too."""
ON_S3: Final = ("iceberg-on-s3", "iceberg-on-s3-v3", "iceberg-rest-on-s3")
"""Names of the tables whose files are in an S3 server."""
ALL_ICEBERG: Final = (
    *ICEBERG,
    "iceberg-glue",
    "iceberg-postgres",
    *(pytest.param(name, marks=pytest.mark.s3) for name in ON_S3),
)
"""Names of the tables of the contract suite, as parameters of fixtures."""


def iceberg_of(name: str, request: pytest.FixtureRequest, folder: Path) -> IcebergLake:
    """Return a fresh table."""
    version = 3 if name.endswith("v3") else 2
    if name in ("iceberg", "iceberg-v3"):
        return IcebergLake(folder, version, forgets_parents=version == 3)
    unique: str = request.getfixturevalue("unique")
    if name in ON_S3:
        return _on_s3(name, request, unique, folder, version)
    if name == "iceberg-glue":
        return GlueLake(request.getfixturevalue("glue"), unique, folder, version)
    if name == "iceberg-postgres":
        lake = PostgresLake(request.getfixturevalue("postgres"), unique, folder, version)
        request.addfinalizer(lake.close)
        return lake
    server: RestCatalogServer = request.getfixturevalue("iceberg_rest")
    return RestLake(server, unique, folder, version)


def _on_s3(name: str, request: pytest.FixtureRequest, unique: str, folder: Path, version: int) -> IcebergLake:
    objects = s3_folder(request)
    if "rest" in name:
        server: RestCatalogServer = request.getfixturevalue("iceberg_rest_of_s3")
        return RestLake(server, unique, folder, version, objects=objects)
    return IcebergLake(folder, version, objects=objects)
