"""Rows of a CSV or Parquet file of your own become a commit of a table, without Spark.

    python examples/own_table.py 127.0.0.1:9092 orders orders.csv try/lake/default.db/orders

A table that does not exist is made, with the columns of the file. A coordinator runs with the stream, such as
that of `sluicegate up --dir try --table orders=try/lake/default.db/orders`. The source offset is a number of
rows: a second run writes the rows that were added to the end of the file, and nothing twice. The watermark of
a run is its time: the end of the file has no rows of an earlier one.
"""

import argparse
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluicegate.writer_hooks import RegionDriver


def read(file: Path) -> pa.Table:
    """Return all rows of a file."""
    return pyarrow.parquet.read_table(file) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)


def make_table(location: Path, columns: pa.Schema, lake: str, options: dict[str, str]) -> None:
    """Make a table with these columns, if there is none."""
    if lake == "delta":
        from deltalake import DeltaTable

        DeltaTable.create(location, columns, mode="ignore")
        return
    database, warehouse = location.parent.name.removesuffix(".db"), location.parent.parent
    if lake == "iceberg":
        from pyiceberg.catalog import load_catalog

        iceberg = load_catalog("default", type="sql", **options)
        iceberg.create_namespace_if_not_exists(database)
        iceberg.create_table_if_not_exists(f"{database}.{location.name}", columns, location=location.as_uri())
        return
    from pypaimon import CatalogFactory, Schema

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
    parser.add_argument("table", type=Path, help="its folder, such as WAREHOUSE/DATABASE.db/TABLE")
    parser.add_argument(
        "--format", default="paimon", choices=["paimon", "delta", "iceberg"], help="of the table"
    )
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE, such as Iceberg's uri=...")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    given = parser.parse_args()
    rows, table = read(given.file), given.table.absolute()
    of_table = dict(each.split("=", 1) for each in given.option)
    make_table(table, rows.schema, given.format, of_table)
    options = {
        "stream": given.stream,
        "region": given.stream,
        "table": str(table),
        "format": given.format,
        "kafka.bootstrap.servers": given.bootstrap,
        "topic.prefix": given.topic_prefix,
        **{f"table.{name}": value for name, value in of_table.items()},
    }
    with RegionDriver(options) as driver:
        after = driver.committed
        done = after.source_offsets["rows"] if after is not None else 0
        new, now = rows.slice(done), int(time.time() * 1000)
        if new.num_rows == 0:
            print(f"all {rows.num_rows} rows are committed already")
            return
        checkpoint = driver.begin()
        result = checkpoint.write("file", new)
        # In milliseconds since the Unix epoch. Rows that are added later are newer.
        driver.complete(checkpoint, [result], source_offsets={"rows": rows.num_rows}, watermark=now)
        driver.await_commit(checkpoint)
        print(f"{new.num_rows} new rows are committed")


if __name__ == "__main__":
    main()
