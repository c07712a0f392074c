"""The demo's table, in three formats: an append table that is partitioned by month.

The library of the format makes it and reads it back. The coordinator commits without these libraries, so they
judge its work independently.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from sluicegate.cli.local.errors import TableDamaged
from sluicegate.cli.local.flights import PARTITION, SCHEMA

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

DATABASE: Final = "demo"
_NAME: Final = "flights"
_TABLE: Final = f"{DATABASE}.{_NAME}"


class Contents(NamedTuple):
    """A table as of its newest snapshot."""

    rows: pa.Table
    files: int
    commits: int


class DemoTable(NamedTuple):
    """A table, with the values of the coordinator's settings."""

    format: str
    location: str
    options: Mapping[str, str]
    load: Callable[[], Contents]

    def read(self) -> Contents:
        """Read the table. Raises TableDamaged."""
        try:
            return self.load()
        except Exception as error:  # the libraries raise errors of many types
            raise TableDamaged(
                f"the table at {self.location} cannot be read ({type(error).__name__}: {error})"
            ) from error


def create_table(table_format: str, folder: Path) -> DemoTable:
    """Create the table in a new folder: `paimon`, `iceberg` or `delta`."""
    return {"paimon": _paimon, "iceberg": _iceberg, "delta": _delta}[table_format](folder)


def _paimon(folder: Path) -> DemoTable:
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database(DATABASE, True)
    # Without a fixed bucket number every writer may write every row, so writers need not exchange rows.
    schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=[PARTITION], options={"bucket": "-1"})
    catalog.create_table(_TABLE, schema, False)

    def load() -> Contents:
        table = catalog.get_table(_TABLE)
        newest, builder = table.snapshot_manager().get_latest_snapshot(), table.new_read_builder()
        if newest is None:
            return Contents(pa.table({}), 0, 0)
        splits = builder.new_scan().plan().splits()
        return Contents(
            builder.new_read().to_arrow(splits), sum(len(split.files) for split in splits), newest.id
        )

    return DemoTable("paimon", str(folder / f"{DATABASE}.db" / _NAME), {}, load)


def _iceberg(folder: Path) -> DemoTable:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    place, uri, catalog_name = folder / DATABASE / _NAME, f"sqlite:///{folder / 'catalog.db'}", "default"
    catalog = SqlCatalog(catalog_name, uri=uri, warehouse=folder.as_uri())
    catalog.create_namespace(DATABASE)
    with catalog.create_table(_TABLE, SCHEMA, location=place.as_uri()).update_spec() as update:
        update.add_identity(PARTITION)
    catalog.close()
    options = {"type": "sql", "uri": uri, "catalog": catalog_name, "identifier": _TABLE}
    load = load_of(lambda: SqlCatalog(catalog_name, uri=uri), _TABLE)
    return DemoTable("iceberg", str(place), options, load)


def load_of(opened: "Callable[[], SqlCatalog]", identifier: str) -> Callable[[], Contents]:
    """Return what reads a table of a catalog of Iceberg."""

    def load() -> Contents:
        with closing(opened()) as catalog:
            table = catalog.load_table(identifier)
            files = len(list(table.scan().plan_files()))
            return Contents(table.scan().to_arrow(), files, len(table.snapshots()))

    return load


def _delta(folder: Path) -> DemoTable:
    from deltalake import DeltaTable

    location = str(folder / DATABASE / _NAME)
    DeltaTable.create(location, SCHEMA, partition_by=[PARTITION])

    def load() -> Contents:
        table = DeltaTable(location)
        # The version 0 is that of the creation.
        return Contents(table.to_pyarrow_table(), len(table.file_uris()), table.version())

    return DemoTable("delta", location, {}, load)
