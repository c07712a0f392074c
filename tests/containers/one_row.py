"""Create a table, write one row as a job without Spark, wait for its commit, and print the table.

The test runs this text in a container: `python - KAFKA WAREHOUSE FORMAT [TOPIC-PREFIX]`.
"""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa


def create(warehouse: Path, format: str) -> str:
    """Create a table with one column, and return its location."""
    if format == "delta":
        from deltalake import DeltaTable, Schema
        from deltalake.schema import Field, PrimitiveType

        location = warehouse / "flights"
        DeltaTable.create(str(location), Schema([Field("id", PrimitiveType("long"))]))
        return str(location)
    from pypaimon import CatalogFactory
    from pypaimon import Schema as PaimonSchema

    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("default", True)
    schema = PaimonSchema.from_pyarrow_schema(pa.schema([("id", pa.int64())]), options={"bucket": "-1"})
    catalog.create_table("default.flights", schema, False)
    return str(warehouse / "default.db" / "flights")


def read(location: str, warehouse: Path, format: str) -> Any:
    """Return the ids that a reader finds, by the library of the format alone."""
    if format == "delta":
        from deltalake import DeltaTable

        return DeltaTable(location).to_pyarrow_table()["id"].to_pylist()
    from pypaimon import CatalogFactory

    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("default.flights")
    builder = table.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"].to_pylist()


def main(bootstrap: str, folder: str, format: str, prefix: str = "sluicegate") -> None:
    """Write one row, wait until it is committed, and print the rows of the table."""
    from sluicegate.writer_hooks import RegionDriver

    warehouse = Path(folder)
    location = create(warehouse, format)
    options = {
        "stream": "flights",
        "region": "orders",
        "table": location,
        "format": format,
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": prefix,
    }
    with RegionDriver(options) as driver:
        checkpoint = driver.begin()
        result = checkpoint.write("w0", pa.table({"id": pa.array([7], pa.int64())}))
        driver.complete(checkpoint, [result], source_offsets={"next": 1})
        committed = driver.await_commit(checkpoint)
        print("committed", committed.number, read(location, warehouse, format))


if __name__ == "__main__":
    main(*sys.argv[1:])
