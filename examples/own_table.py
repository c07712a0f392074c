"""Rows of a CSV or Parquet file of your own become a commit of a table, without Spark.

    python examples/own_table.py 127.0.0.1:9092 orders orders.csv try/lake/default.db/orders

A table that does not exist is made, with the columns of the file. A coordinator runs with the stream, such as
that of `sluicegate up --dir try --table orders=try/lake/default.db/orders`. The source offset is a number of
rows: a second run writes the rows that were added to the end of the file, and nothing twice. A digest of
these rows is kept with it, so another file is refused: it needs another stream and table. The watermark of a
run is its time: the end of the file has no rows of an earlier one.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluicegate.writer_hooks import RegionDriver


def read(file: Path) -> pa.Table:
    """Return all rows of a file. Its times get microseconds, which all formats of tables have."""
    rows = pyarrow.parquet.read_table(file) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)
    for index, each in enumerate(rows.schema):
        if pa.types.is_timestamp(each.type):
            times = rows.column(index).cast(pa.timestamp("us", each.type.tz))
            rows = rows.set_column(index, each.name, times)
    return rows


def digest_of(rows: pa.Table) -> str:
    """Return a digest of the names and values of these rows, the same for CSV and Parquet."""
    digest = hashlib.sha256(repr(rows.column_names).encode())
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            digest.update(repr(row).encode())
    return digest.hexdigest()


def format_of(location: Path) -> str | None:
    """Return the format of a table that exists, by its metadata; None if there is none."""
    marks = {"_delta_log/*.json": "delta", "metadata/*.metadata.json": "iceberg", "schema/schema-*": "paimon"}
    return next((lake for mark, lake in marks.items() if any(location.glob(mark))), None)


def make_table(location: Path, columns: pa.Schema, lake: str, options: dict[str, str]) -> list[str]:
    """Make a table with these columns, if there is none; return the columns that the table has."""
    if lake == "delta":
        from deltalake import DeltaTable

        delta = DeltaTable.create(location, columns, mode="ignore")
        return [field.name for field in delta.schema().fields]
    database, warehouse = location.parent.name.removesuffix(".db"), location.parent.parent
    if lake == "iceberg":
        from pyiceberg.catalog import load_catalog

        iceberg = load_catalog("default", type="sql", **options)
        iceberg.create_namespace_if_not_exists(database)
        name = f"{database}.{location.name}"
        table = iceberg.create_table_if_not_exists(name, columns, location=location.as_uri())
        return list(table.schema().column_names)
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database(database, ignore_if_exists=True)
    schema = Schema.from_pyarrow_schema(columns)
    catalog.create_table(f"{database}.{location.name}", schema, ignore_if_exists=True)
    return list(catalog.get_table(f"{database}.{location.name}").field_names)


def counted(number: int, noun: str = "row") -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def refuse(given: argparse.Namespace, reason: str) -> None:
    """End the program with the commands for another file."""
    stream, table = f"{given.stream}2", given.table.with_name(f"{given.table.name}2")
    lake = f"--format {given.format}"
    more = " ".join([lake, *(f"--option {each}" for each in given.option)])
    sys.exit(
        f"nothing was written: {reason}. Another file needs another stream and table. End `sluicegate up`, "
        f"start it again with the same options and\n  --table {stream}={table} {lake}\nThen run\n"
        f"  python {sys.argv[0]} {given.bootstrap} {stream} {given.file} {table} {more} "
        f"--topic-prefix {given.topic_prefix}"
    )


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
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
    return parser.parse_args()


def main() -> None:
    """Write the rows of one file that are not in the table yet."""
    given = arguments()
    rows, table = read(given.file), given.table.absolute()
    of_table = dict(each.split("=", 1) for each in given.option)
    if (found := format_of(table)) not in (None, given.format):
        sys.exit(
            f"nothing was written: {table} is a table of the format {found}, and --format is {given.format}. "
            f"Give --format {found} here, and to the coordinator"
        )
    if given.format == "iceberg" and "uri" not in of_table:
        sys.exit(
            "nothing was written: a table of Iceberg is in a catalog. Give the catalog's address with "
            "--option uri=..., as in the settings of the coordinator"
        )
    columns = make_table(table, rows.schema, given.format, of_table)
    if sorted(columns) != sorted(rows.column_names):
        names = ", ".join(rows.column_names)
        refuse(given, f"the table has the columns {', '.join(columns)}, and {given.file} has {names}")
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
        # An older position has no digest.
        known = after.source_offsets.get("digest") if after is not None else None
        if known is not None and known != digest_of(rows.slice(0, done)):
            refuse(given, f"{given.file} does not begin with the {counted(done)} that are committed")
        new, now = rows.slice(done), int(time.time() * 1000)
        if new.num_rows == 0:
            print(f"committed already: {counted(rows.num_rows)}")
            return
        checkpoint = driver.begin()
        result = checkpoint.write("file", new)
        # In milliseconds since the Unix epoch. Rows that are added later are newer.
        offsets = {"rows": rows.num_rows, "digest": digest_of(rows)}
        driver.complete(checkpoint, [result], source_offsets=offsets, watermark=now)
        driver.await_commit(checkpoint)
        print(f"committed: {counted(new.num_rows, 'new row')}")


if __name__ == "__main__":
    main()
