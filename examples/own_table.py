"""Rows of a CSV or Parquet file of your own become a commit of a table, without Spark.

    python examples/own_table.py 127.0.0.1:9092 orders orders.csv try/lake/default.db/orders

A table that does not exist is made, with the columns of the file. A coordinator runs with the stream, such as
that of `sluicegate up --dir try --table orders=try/lake/default.db/orders`. The source offset is a number of
rows: a second run writes the rows that were added to the end of the file, and nothing twice.
"""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluicegate.writer_hooks import RegionDriver


def read(file: Path) -> pa.Table:
    """Return all rows of a file."""
    return pyarrow.parquet.read_table(file) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)


def make_table(location: Path, columns: pa.Schema, lake: str) -> None:
    """Make a table with these columns, if there is none."""
    if lake == "delta":
        from deltalake import DeltaTable

        DeltaTable.create(location, columns, mode="ignore")
        return
    from pypaimon import CatalogFactory, Schema

    # Paimon's folders: WAREHOUSE/DATABASE.db/TABLE.
    database, warehouse = location.parent.name.removesuffix(".db"), location.parent.parent
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database(database, ignore_if_exists=True)
    schema = Schema.from_pyarrow_schema(columns)
    catalog.create_table(f"{database}.{location.name}", schema, ignore_if_exists=True)


def main() -> None:
    """Write the rows of one file that are not in the table yet."""
    parser = argparse.ArgumentParser(description="Commit the rows of a CSV or Parquet file.")
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("stream", help="name of the stream in the settings of the coordinator")
    parser.add_argument("file", type=Path, help="*.parquet, or CSV with a line of names")
    parser.add_argument("table", type=Path, help="its folder; for Paimon WAREHOUSE/DATABASE.db/TABLE")
    parser.add_argument("--format", default="paimon", choices=["paimon", "delta"], help="of the table")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    given = parser.parse_args()
    rows, table = read(given.file), given.table.absolute()
    make_table(table, rows.schema, given.format)
    options = {
        "stream": given.stream,
        "region": given.stream,
        "table": str(table),
        "format": given.format,
        "kafka.bootstrap.servers": given.bootstrap,
        "topic.prefix": given.topic_prefix,
    }
    with RegionDriver(options) as driver:
        after = driver.committed
        done = after.source_offsets["rows"] if after is not None else 0
        new = rows.slice(done)
        if new.num_rows == 0:
            print(f"all {rows.num_rows} rows are committed already")
            return
        checkpoint = driver.begin()
        result = checkpoint.write("file", new)
        driver.complete(checkpoint, [result], source_offsets={"rows": rows.num_rows})
        driver.await_commit(checkpoint)
        print(f"{new.num_rows} new rows are committed")


if __name__ == "__main__":
    main()
