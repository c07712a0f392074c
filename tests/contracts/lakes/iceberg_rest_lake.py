"""Iceberg behind a REST catalog under the contract, and the choice of Iceberg's tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog.rest import RestCatalog
from requests import Response

from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.rest import RestTable
from sluicegate.lakes.port import LakeUnavailable
from tests.contracts.lakes.harness import Fault
from tests.contracts.lakes.iceberg_lake import IcebergLake, Killed
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
    ) -> Response:
        fault, self.fault = (self.fault, None) if method == "POST" else (None, self.fault)
        if fault is not Fault.LOST:
            answer = super()._send(method, endpoint, body, headers)
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
    ) -> Response:
        if method == "POST":
            self.meanwhile()
        answer = super()._send(method, endpoint, body, headers)
        if method == "POST":
            raise Killed
        return answer


class RestLake(IcebergLake):
    """A table of a REST catalog, in a namespace of its own."""

    def __init__(self, server: RestCatalogServer, unique: str, warehouse: Path, version: int = 2) -> None:
        self._server = server
        self._namespace = unique
        super().__init__(warehouse, version)

    def _connect(self, warehouse: Path) -> None:
        self.table_name = Identifier((self._namespace,), "numbers")
        self.database = str(self._server.database)
        self.uri = self._server.uri
        self.options = {"type": "rest", "uri": self.uri}
        self.adapter = IcebergAdapter(self.options)
        self.library = RestCatalog("default", **self.options)

    def catalog(self, files: Files) -> Catalog:
        return RestTable(self.options, "default", self.table_name, files)

    def faulty(self, files: Files, fault: Fault | None) -> Catalog:
        catalog = FaultyTable(self.options, "default", self.table_name, files)
        catalog.fault = fault
        return catalog

    def thawing(self, files: Files, meanwhile: Callable[[], None]) -> Catalog:
        catalog = ThawingTable(self.options, "default", self.table_name, files)
        catalog.meanwhile = meanwhile
        return catalog


ICEBERG: Final = ("iceberg", "iceberg-v3", "iceberg-rest", "iceberg-rest-v3")
"""Names of the tables of the contract suite."""


def iceberg_of(name: str, request: pytest.FixtureRequest, folder: Path) -> IcebergLake:
    """Return a fresh table."""
    version = 3 if name.endswith("v3") else 2
    if "rest" not in name:
        return IcebergLake(folder, version, forgets_parents=version == 3)
    server: RestCatalogServer = request.getfixturevalue("iceberg_rest")
    unique: str = request.getfixturevalue("unique")
    return RestLake(server, unique, folder, version)
