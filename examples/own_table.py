"""Rows of a CSV or Parquet file of your own become a commit of a table, without Spark.

    python examples/own_table.py 127.0.0.1:9092 orders orders.csv try/lake/default.db/orders

A table that does not exist is made, with the columns of the file. A coordinator runs with the stream, such as
that of `sluicegate up --dir try --table orders=try/lake/default.db/orders`. The source offset is a number of
rows: a second run writes the rows that were added to the end of the file, and nothing twice. A digest of
these rows is kept with it, so another file is refused: it needs another stream and table. The watermark of a
run is its time: the end of the file has no rows of an earlier one.

In a CSV file, nothing between two commas is null, and "" is an empty text. Columns have the types of the
table. Those of a new table are inferred from the values, unless `--type` gives them: `--type zip=string`.
"""

import argparse
import csv
import hashlib
import re
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluicegate.writer_hooks import HookError, RegionDriver

TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
}
"""Names of types, as in SQL. A decimal has any digits and scale; this one stands for all."""


def typed(text: str) -> tuple[str, pa.DataType]:
    """Return the column and the type of COLUMN=TYPE. Raises ArgumentTypeError."""
    column, _, name = text.rpartition("=")
    digits = re.fullmatch(r"decimal\((\d+),(\d+)\)", name)
    if not column or (digits is None and name not in TYPES):
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=TYPE with a type of {', '.join(TYPES)}")
    return column, pa.decimal128(int(digits[1]), int(digits[2])) if digits else TYPES[name]


def read(file: Path, types: dict[str, pa.DataType]) -> pa.Table:
    """Return all rows of a file. Its times get microseconds, which all formats of tables have.

    `types` are those of columns in a CSV file; Parquet has its own. Raises ArrowException.
    """
    if file.suffix == ".parquet":
        rows = pyarrow.parquet.read_table(file)
    else:
        conversion = pyarrow.csv.ConvertOptions(
            column_types=types,
            # Only nothing at all is null: "NA" may be a name.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        # A text may have several lines.
        parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
        rows = pyarrow.csv.read_csv(file, parse_options=parsing, convert_options=conversion)
    for index, each in enumerate(rows.schema):
        if pa.types.is_timestamp(each.type):
            times = rows.column(index).cast(pa.timestamp("us", each.type.tz))
            rows = rows.set_column(index, each.name, times)
    return rows


def located(file: Path, error: str) -> tuple[str, str]:
    """Return an error of Arrow with the name of its column, which Arrow counts from 0; and that name."""
    found = re.search(r"In CSV column #(\d+)", error)
    if found is None:
        return error, "COLUMN"
    with file.open(newline="", encoding="utf-8") as lines:
        column = next(csv.reader(lines))[int(found[1])]
    return error.replace(found[0], f"in the column {column}"), column


def rows_of(given: argparse.Namespace, known: pa.Schema | None) -> pa.Table:
    """Return all rows of the file, with the types of the table and those that are given."""
    types = {field.name: field.type for field in known or ()} | dict(given.type)
    if given.type and given.file.suffix == ".parquet":
        sys.exit("nothing was written: a Parquet file has its types. Leave --type out")
    try:
        rows = read(given.file, types)
    except pa.ArrowException as error:
        problem, column = located(given.file, str(error))
        if known is not None:
            sys.exit(
                f"nothing was written: {given.file}: {problem}. The types are those of the table: correct "
                "the value"
            )
        sys.exit(
            f"nothing was written: {given.file}: {problem}. Correct the value, or give the column another "
            f"type, such as --type {column}=string"
        )
    names = rows.column_names
    if unknown := [name for name, _ in given.type if name not in names]:
        sys.exit(
            f"nothing was written: {given.file} has no column {unknown[0]}. Its columns: {', '.join(names)}"
        )
    if untyped := [each.name for each in rows.schema if pa.types.is_null(each.type)]:
        more = " ".join(f"--type {name}=string" for name in untyped)
        sys.exit(
            f"nothing was written: {', '.join(untyped)} of {given.file} has no value, so its type is not "
            f"known. Give one, such as {more}"
        )
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


def columns_of(
    location: Path, lake: str, options: dict[str, str], new: pa.Schema | None = None
) -> pa.Schema | None:
    """Return the columns of a table, None if there is none. `new`: make one with these columns then."""
    if lake == "delta":
        from deltalake import DeltaTable

        if new is not None:
            DeltaTable.create(location, new, mode="ignore")
        exists = DeltaTable.is_deltatable(str(location))
        return pa.schema(DeltaTable(location).schema().to_arrow()) if exists else None
    database, warehouse = location.parent.name.removesuffix(".db"), location.parent.parent
    name = f"{database}.{location.name}"
    if lake == "iceberg":
        from pyiceberg.catalog import load_catalog

        iceberg = load_catalog("default", type="sql", **options)
        if new is not None:
            iceberg.create_namespace_if_not_exists(database)
            iceberg.create_table_if_not_exists(name, new, location=location.as_uri())
        return iceberg.load_table(name).schema().as_arrow() if iceberg.table_exists(name) else None
    from pypaimon import CatalogFactory, Schema
    from pypaimon.schema.data_types import PyarrowFieldParser

    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    if new is not None:
        catalog.create_database(database, ignore_if_exists=True)
        catalog.create_table(name, Schema.from_pyarrow_schema(new), ignore_if_exists=True)
    exists = (location / "schema").is_dir()
    return PyarrowFieldParser.from_paimon_schema(catalog.get_table(name).fields) if exists else None


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
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        type=typed,
        metavar="COLUMN=TYPE",
        help=f"of a column in a CSV file: {', '.join(TYPES)}",
    )
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    return parser.parse_args()


def main() -> None:
    """Write the rows of one file that are not in the table yet."""
    given = arguments()
    table = given.table.absolute()
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
    if not given.file.is_file():
        sys.exit(f"nothing was written: there is no file {given.file}")
    if found is None and given.format == "paimon" and table.parent.suffix != ".db":
        place = given.table.parent / "default.db" / table.name
        sys.exit(
            f"nothing was written: a table of Paimon is in WAREHOUSE/DATABASE.db/TABLE, and {given.table} is "
            f"not. Give such a folder here, and to the coordinator: {place}"
        )
    known = columns_of(table, given.format, of_table)
    for name, kind in given.type:
        if known is not None and name in known.names and known.field(name).type != kind:
            there = known.field(name).type
            sys.exit(f"nothing was written: the table has {name} {there}. Leave --type {name}=... out")
    rows = rows_of(given, known)
    if known is None:
        columns_made = ", ".join(f"{each.name} {each.type}" for each in rows.schema)
        print(f"{table.name} is new: {columns_made}")
    columns = [field.name for field in columns_of(table, given.format, of_table, rows.schema) or ()]
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
        # In seconds. A person waits, so an address of Kafka that is wrong is told soon.
        "publish.timeout": "15",
        **{f"table.{name}": value for name, value in of_table.items()},
    }
    try:
        write(given, options, rows)
    except HookError as error:
        made = "" if known is not None else f". The new table {table} has no row yet"
        sys.exit(f"nothing was written: {error}{made}")


def write(given: argparse.Namespace, options: dict[str, str], rows: pa.Table) -> None:
    """Write the rows that follow the committed ones. Raises HookError."""
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
