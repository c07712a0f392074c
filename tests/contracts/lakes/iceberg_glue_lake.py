"""Iceberg in AWS Glue under the contract, as moto has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import ReadTimeoutError
from pyiceberg.catalog.glue import GlueCatalog as GlueLibrary

from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.glue import GlueCatalog
from tests.contracts.lakes.harness import Fault, Killed
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.doubles.glue import options_of


def lose(catalog: GlueCatalog, fault: Fault) -> None:
    """Lose the next request of a change, or the answer to it."""
    client = catalog._client
    send = client.update_table

    def update(**request: Any) -> None:
        client.update_table = send
        if fault is not Fault.LOST:
            send(**request)
        raise ReadTimeoutError(endpoint_url="injected")

    client.update_table = update


class ThawingGlue(GlueCatalog):
    """Stands still right before the change of the entry, goes on, and is killed right after."""

    meanwhile: Callable[[], None]

    def _swap(self, old: str, new: str) -> bool:
        self.meanwhile()
        super()._swap(old, new)
        raise Killed


class GlueLake(IcebergLake):
    """A table of a catalog in Glue, in a database of its own."""

    def __init__(self, uri: str, unique: str, warehouse: Path, version: int = 2) -> None:
        self._given = uri
        self._namespace = unique
        super().__init__(warehouse, version)

    def _connect(self, warehouse: Path) -> None:
        self.table_name = Identifier((self._namespace,), "numbers")
        self.database = ""
        self.uri = self._given
        self.access_options = options_of(self._given)
        self.options = {"type": "glue", **self.access_options}
        self.adapter = IcebergAdapter(self.options)
        self.glue = GlueLibrary("default", **self.access_options, warehouse=f"file://{warehouse}")
        self.library = self.glue

    @property
    def entry(self) -> dict[str, Any]:
        """The table in the catalog."""
        name = {"DatabaseName": self._namespace, "Name": self.table_name.name}
        found: dict[str, Any] = self.glue.glue.get_table(**name)["Table"]
        return found

    def alter_entry(self, parameters: dict[str, str], **fields: Any) -> None:
        """Change the entry without a condition, as any tool may do."""
        entry = self.entry
        kept = {name: entry[name] for name in _KEPT if name in entry}
        made = {**kept, **fields, "Parameters": {**entry["Parameters"], **parameters}}
        self.glue.glue.update_table(DatabaseName=self._namespace, TableInput=made)

    def _pointer(self) -> str:
        return str(self.entry["Parameters"]["metadata_location"])

    def _point(self, before: str, after: str) -> None:
        self.alter_entry({"metadata_location": after, "previous_metadata_location": before})

    def glue_catalog(self, files: Files | None = None) -> GlueCatalog:
        """Return the adapter's access to the catalog, as it is."""
        return GlueCatalog(self.access_options, "default", self.table_name, files or Files())

    def catalog(self, files: Files) -> Catalog:
        return self.glue_catalog(files)

    def faulty(self, files: Files, fault: Fault | None) -> Catalog:
        catalog = self.glue_catalog(files)
        if fault is not None:
            lose(catalog, fault)
        return catalog

    def thawing(self, files: Files, meanwhile: Callable[[], None]) -> Catalog:
        catalog = ThawingGlue(self.access_options, "default", self.table_name, files)
        catalog.meanwhile = meanwhile
        return catalog


_KEPT = ("Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys", "TableType")
"""Fields of an entry that a change must repeat."""
