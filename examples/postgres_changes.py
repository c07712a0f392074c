"""Changes of tables in PostgreSQL become rows of Iceberg tables, in commits of whole source transactions.

    psql shop -c 'CREATE PUBLICATION changes FOR TABLE orders, items'
    sluicegate up --dir try --stream shop --option uri=sqlite:////lake/catalog.db \\
        --table transactions=/lake/shop/transactions \\
        --table orders=/lake/shop/orders --table items=/lake/shop/items
    python examples/postgres_changes.py 127.0.0.1:9092 postgresql:///shop /lake

It needs psycopg, PostgreSQL 15 or newer with `wal_level = logical`, and a user with the attribute
REPLICATION. It makes the lake tables and a replication slot, and runs until Ctrl-C. After a crash it
continues with the next transaction: nothing is lost or doubled. The slot keeps what is not committed yet.
To end the program for good, drop the slot: SELECT pg_drop_replication_slot('changes').

Rows are only added. A deleted row is one more row, whose `_operation` is `delete`. Each change has its place:
the commit of its transaction (`_commit_lsn`), and its number there (`_position`). The anchor, `transactions`,
has a row for each transaction, with the number of its changes. A reader by the vector (read_tables.py) sees
all changes of a transaction, or none.

- An update is a row `update` with the new values. A row `before` with the old ones precedes it, if the key
  has changed, or the table has REPLICA IDENTITY FULL.
- `_absent` names the columns that are null because the source does not send them without REPLICA IDENTITY
  FULL: long values that an update has not changed, and all columns of a deleted row but its key.
- Rows that a table has before the slot is made are not copied. A transaction must fit into memory.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from postgres_source import (  # type: ignore[import-not-found]  # it lies beside this file
    Change,
    Refused,
    Relation,
    Source,
    Transaction,
    follow,
)
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.writer_hooks import RegionDriver, RegistrationRefused

TYPES: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "long": (pa.int64(), int),
    "double": (pa.float64(), float),
    "boolean": (pa.bool_(), "t".__eq__),
    "date": (pa.date32(), date.fromisoformat),
    "timestamp": (pa.timestamp("us"), datetime.fromisoformat),
    "timestamptz": (pa.timestamp("us", "UTC"), datetime.fromisoformat),
    "string": (pa.string(), str),
}
"""By the type of a column in the lake, that in Arrow, and the reader of its values."""
LAKE_TYPES = {
    **dict.fromkeys(["smallint", "integer", "bigint"], "long"),
    **dict.fromkeys(["real", "double precision"], "double"),
    **dict.fromkeys(["text", "character varying", "character", "numeric", "uuid", "json", "jsonb"], "string"),
    "boolean": "boolean",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
"""By the type of a column in PostgreSQL, that in the lake."""
ANCHOR = {"commit_lsn": "long", "transaction_id": "long", "committed_at": "timestamptz", "changes": "long"}
OF_CHANGES = {"_commit_lsn": "long", "_position": "long", "_operation": "string", "_absent": "string"}
LEAVE_OUT = "leave it out of the publication, which can list columns: FOR TABLE name (column, ...)"

Columns = dict[str, str]
"""By the names of columns, their types in the lake."""


class Lake:
    """The lake tables, with the columns of each."""

    def __init__(self, catalog: Catalog, source: Source, given: argparse.Namespace) -> None:
        """Make the tables that are missing."""
        self._source, self._given = source, given
        self.checked_columns = cache(self._checked_columns)
        wanted, schemas = dict[str, Columns](), {given.anchor: "the anchor"}
        for each in source.relations():
            if (other := schemas.setdefault(each.name, each.schema)) != each.schema:
                raise Refused(
                    f"{each.schema}.{each.name} has the name of that in {other}. Give it a publication, a "
                    "slot and a stream of its own; or give the anchor another name with --anchor"
                )
            wanted[each.name] = OF_CHANGES | self._columns_of(each)
        catalog.create_namespace_if_not_exists(given.stream)
        # The anchor is the last one: with it, the coordinator begins, without tables that are missing then.
        for name, columns in [*wanted.items(), (given.anchor, ANCHOR)]:
            location = (given.lake / given.stream / name).as_uri()
            catalog.create_table_if_not_exists(
                f"{given.stream}.{name}", schema_of(columns), location=location
            )
        self.tables: dict[str, Columns] = {}
        # Also those that are not published any more: the WAL may have changes of them.
        for identifier in catalog.list_tables(given.stream):
            if identifier[-1] != given.anchor:
                fields = catalog.load_table(identifier).schema().fields
                self.tables[identifier[-1]] = {field.name: str(field.field_type) for field in fields}

    def write(self, driver: RegionDriver, found: list[Transaction], place: dict[str, Any]) -> None:
        """Commit transactions as one checkpoint, with the place in the source after them."""
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in found:
            for number, change in enumerate(each.changes):
                of_change = {"_commit_lsn": each.lsn, "_position": number, "_operation": change.operation}
                rows[change.relation.name].append(of_change | self.values_of(change))
        checkpoint, results = driver.begin(), []
        if found:
            transactions = [(each.lsn, each.number, each.at, len(each.changes)) for each in found]
            columns = dict(zip(ANCHOR, zip(*transactions, strict=True), strict=True))
            results.append(checkpoint.write("changes", pa.table(columns, schema=schema_of(ANCHOR))))
        for name, of_table in rows.items():
            data = pa.Table.from_pylist(of_table, schema_of(self.tables[name]))
            results.append(checkpoint.write("changes", data, table=name))
        driver.complete(checkpoint, results, source_offsets=place)
        driver.await_commit(checkpoint)

    def values_of(self, change: Change) -> dict[str, Any]:
        """Return the values of a change by column. Those that are missing become null."""
        found, absent = dict[str, Any](), []
        columns = self.checked_columns(change.relation).items()
        for (name, kind), value in zip(columns, change.values, strict=False):
            if value is ...:
                absent.append(name)
            elif value is not None:
                try:
                    found[name] = TYPES[kind][1](value.decode())
                except ValueError as error:
                    raise Refused(
                        f"{change.relation.name}.{name} has the value {value.decode()}, not a {kind} of "
                        "the lake. Rename the column there, and start with --add-columns, and with --as-text "
                        "and its type in PostgreSQL"
                    ) from error
        return found | {"_absent": ", ".join(absent) or None}

    def _checked_columns(self, relation: Relation) -> Columns:
        """Return the columns of a table of the source, which the lake must have."""
        table, found = f"{relation.schema}.{relation.name}", self._columns_of(relation)
        if (known := self.tables.get(relation.name)) is None:
            raise Refused(f"{table} is new. Add it to the tables of the stream, and start again")
        for name, kind in found.items():
            if name not in known and not self._given.add_columns:
                raise Refused(f"{table} has the new column {name}. Start again with --add-columns")
            if known.setdefault(name, kind) != kind:
                raise Refused(
                    f"{table}.{name} is {kind} now, and {known[name]} in the lake. Rename the column in the "
                    "lake, and start again with --add-columns"
                )
        return found

    def _columns_of(self, relation: Relation) -> Columns:
        found = {}
        for each in relation.columns:
            column, kind = f"{relation.schema}.{relation.name}.{each.name}", self._source.type_name(each.type)
            if each.name in OF_CHANGES:
                raise Refused(f"{column} has a name of the lake's own: {LEAVE_OUT}")
            if kind not in LAKE_TYPES and kind not in self._given.as_text:
                raise Refused(
                    f"{column} is of the unknown type {kind}. Start with --as-text '{kind}'; or {LEAVE_OUT}"
                )
            found[each.name] = "string" if kind in self._given.as_text else LAKE_TYPES[kind]
        return found


def schema_of(columns: Columns) -> pa.Schema:
    """Return columns as Arrow has them."""
    return pa.schema([(name, TYPES[kind][0]) for name, kind in columns.items()])


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Commit the changes of PostgreSQL to tables of Iceberg.")
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("postgres", help="the database, as libpq names it")
    parser.add_argument("lake", type=Path, help="folder: the tables are in LAKE/STREAM")
    parser.add_argument("--stream", default="shop", help="in the settings of the coordinator")
    parser.add_argument("--catalog", help="its address. Default: sqlite:///LAKE/catalog.db")
    parser.add_argument("--anchor", default="transactions", help="its name in the catalog")
    parser.add_argument("--publication", default="changes")
    parser.add_argument("--slot", default="changes", help="replication slot; a new stream makes it")
    parser.add_argument("--changes", type=int, default=10_000, help="about so many in a commit")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before a further look for changes")
    parser.add_argument("--as-text", action="append", default=[], metavar="TYPE", help="write a type as text")
    parser.add_argument("--add-columns", action="store_true", help="add the new columns of the source")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    return parser.parse_args()


def main() -> None:
    """Make what is missing, and follow the source."""
    given = arguments()
    given.lake = given.lake.absolute()
    given.lake.mkdir(parents=True, exist_ok=True)
    uri = given.catalog or f"sqlite:///{given.lake / 'catalog.db'}"
    with Source(given.postgres, given.publication, given.slot) as source:
        with closing(SqlCatalog("default", uri=uri)) as catalog:
            lake = Lake(catalog, source, given)
        options = {
            "stream": given.stream,
            "region": "postgres",
            "format": "iceberg",
            "table": str(given.lake / given.stream / given.anchor),
            "table.uri": uri,
            **{f"tables.{name}": f"{given.stream}.{name}" for name in lake.tables},
            "evolve": "add-columns" if given.add_columns else "never",
            "kafka.bootstrap.servers": given.bootstrap,
            "topic.prefix": given.topic_prefix,
            "registration.timeout": "forever",  # wait for a coordinator; the log says so after 10 s
        }
        with RegionDriver(options) as driver:
            follow(source, lake, driver, given.changes, given.pause)


if __name__ == "__main__":
    try:
        main()
    except (Refused, RegistrationRefused) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
