"""Tables for the demo's reader, written with pypaimon itself."""

from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory

from sluicegate.cli.local.table_paimon import create_table
from sluicegate.cli.local.tables import DATABASE, NAME


def new_table(warehouse: Path, *commits: pa.Table) -> Path:
    """Create the demo's table and append to it, one commit each; return its folder."""
    folder = create_table(warehouse).folder
    for rows in commits:
        append(warehouse, rows)
    return folder


def append(warehouse: Path, rows: pa.Table) -> None:
    """Append rows to the demo's table in one commit."""
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table(f"{DATABASE}.{NAME}")
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
