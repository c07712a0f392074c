"""Read a Paimon or Delta table with the library of its format, and print its rows.

    python examples/read_rows.py try/lake/default.db/orders

It shares no code with Sluicegate: the rows come from the table's newest snapshot alone.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyarrow import fs


def read(location: Path) -> pa.Table:
    """Return all rows of a table."""
    if (location / "_delta_log").is_dir():
        from deltalake import DeltaTable

        # With the library's own file system, threads of pyarrow can outlive the interpreter.
        files = fs.SubTreeFileSystem(str(location), fs.LocalFileSystem())
        return DeltaTable(location).to_pyarrow_table(filesystem=files)
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": str(location.parent.parent)})
    table = catalog.get_table(f"{location.parent.name.removesuffix('.db')}.{location.name}")
    builder = table.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def main(location: Path) -> None:
    """Print each row, and the number of rows."""
    rows = read(location).to_pylist()
    for row in rows:
        print("  ".join(str(value) for value in row.values()))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute())
