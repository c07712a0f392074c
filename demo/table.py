"""The demo's table: one Paimon append table, partitioned by month."""

from pathlib import Path
from typing import Final

from pypaimon import CatalogFactory, Schema

from sluicegate.demo.data import PARTITION, SCHEMA

DATABASE: Final = "demo"
NAME: Final = "flights"


def create_table(warehouse: Path) -> Path:
    """Create the table in a new warehouse and return its folder."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database(DATABASE, True)
    # Without a fixed bucket number every writer may write every row, so writers need not exchange rows.
    schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=[PARTITION], options={"bucket": "-1"})
    catalog.create_table(f"{DATABASE}.{NAME}", schema, False)
    return warehouse / f"{DATABASE}.db" / NAME


def count_rows(warehouse: Path) -> int:
    """Count the table's rows with Paimon's own reader."""
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table(f"{DATABASE}.{NAME}")
    builder = table.new_read_builder().with_projection(["flight_id"])
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return int(rows.num_rows)
