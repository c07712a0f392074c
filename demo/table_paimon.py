"""The demo's table in Paimon: one append table, partitioned by month."""

from collections.abc import Mapping
from pathlib import Path

from pypaimon import CatalogFactory, Schema

from sluicegate.demo.data import PARTITION, SCHEMA
from sluicegate.demo.reader import read_table
from sluicegate.demo.tables import DATABASE, NAME, Contents


class PaimonTable:
    """The table in a warehouse, a folder with one folder for each database."""

    format = "paimon"
    options: Mapping[str, str] = {}

    def __init__(self, warehouse: Path) -> None:
        self._catalog = CatalogFactory.create({"warehouse": str(warehouse)})
        self.folder = warehouse / f"{DATABASE}.db" / NAME
        self.location = str(self.folder)

    def create(self) -> None:
        """Create the table."""
        self._catalog.create_database(DATABASE, True)
        # Without a fixed bucket number every writer may write every row, so writers need not exchange rows.
        schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=[PARTITION], options={"bucket": "-1"})
        self._catalog.create_table(f"{DATABASE}.{NAME}", schema, False)

    def read(self) -> Contents:
        return read_table(self.folder)

    def count(self) -> int:
        table = self._catalog.get_table(f"{DATABASE}.{NAME}")
        builder = table.new_read_builder().with_projection(["flight_id"])
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return int(rows.num_rows)


def create_table(folder: Path) -> PaimonTable:
    """Create the table in a new warehouse."""
    table = PaimonTable(folder)
    table.create()
    return table
