"""Read a Paimon, Delta or Iceberg table with the library of its format, and print its rows.

    python examples/read_rows.py try/lake/default.db/orders
    python examples/read_rows.py try/lake/default.db/orders sqlite:///try/catalog.db

It shares no code with Sluicegate: the rows come from the table's newest snapshot alone.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyarrow import fs


def read(location: Path, catalog_uri: str | None) -> pa.Table:
    """Return all rows of a table. An Iceberg table needs the address of its SQL catalog."""
    name = f"{location.parent.name.removesuffix('.db')}.{location.name}"
    if not location.is_dir():
        sys.exit(f"there is no table at {location}")
    if catalog_uri is not None:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", type="sql", uri=catalog_uri).load_table(name).scan().to_arrow()
    if (location / "_delta_log").is_dir():
        from deltalake import DeltaTable

        # With the library's own file system, threads of pyarrow can outlive the interpreter.
        files = fs.SubTreeFileSystem(str(location), fs.LocalFileSystem())
        return DeltaTable(location).to_pyarrow_table(filesystem=files)
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": str(location.parent.parent)})
    table = catalog.get_table(name)
    builder = table.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def main(location: Path, catalog_uri: str | None = None) -> None:
    """Print each row, and the number of rows."""
    rows = read(location, catalog_uri).to_pylist()
    for row in rows:
        print("  ".join(str(value) for value in row.values()))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute(), *sys.argv[2:])
