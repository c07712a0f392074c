"""A table of PostgreSQL becomes a table of Paimon with the same rows: inserts, updates and deletions.

    psql shop -c 'ALTER TABLE accounts REPLICA IDENTITY FULL'
    psql shop -c 'CREATE PUBLICATION accounts FOR TABLE accounts'
    sluicegate up --dir try --table accounts=/lake/shop.db/accounts
    python examples/cdc_postgres.py 127.0.0.1:9092 postgresql:///shop /lake/shop.db/accounts

It needs psycopg, PostgreSQL 15 or newer with `wal_level = logical`, and a user with the attribute
REPLICATION. It makes the table of Paimon, with the key of the source, and a replication slot. It copies the
rows that are there, and runs until Ctrl-C.

The place in the WAL (LSN) is the source offset of each checkpoint, and the slot moves after the commit. So a
crash anywhere neither loses nor repeats a change: the program continues with the next transaction. To end it
for good, drop the slot: SELECT pg_drop_replication_slot('accounts').

- One program writes all rows, in the order of the source's commits. No `sequence.field` is needed.
- The copy may have newer rows than the place of the slot. The changes since then are applied to it once more,
  in order, so the table is that of the source as soon as these are committed.
- REPLICA IDENTITY FULL makes the source send long values that an update has not changed.
- TRUNCATE, new columns and new types end the program, and the text has the way out.
- The rows to be copied, and a transaction, must fit into memory.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from postgres_source import (  # type: ignore[import-not-found]  # it lies beside this file
    Refused,
    Source,
    Transaction,
    Value,
    follow,
)
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pypaimon import CatalogFactory, Schema

from sluicegate.writer_hooks import RegionDriver, RegistrationRefused

KIND = "_kind"
"""Column of the rows that the table of Paimon does not have."""
KINDS = {"insert": "+I", "before": "-U", "update": "+U", "delete": "-D"}
"""By the operation of a change. `before` takes the old row away, whose key may be another one."""
TYPES: dict[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    **dict.fromkeys(["text", "uuid", "json", "jsonb"], pa.string()),
}
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnum = ANY (coalesce(indkey::int2[], '{}'))
FROM pg_publication_tables JOIN pg_attribute
    ON attrelid = format('%%I.%%I', schemaname, tablename)::regclass AND attname = ANY (attnames)
LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary WHERE pubname = %s ORDER BY attnum
"""
IDENTITY = """
SELECT relreplident::text, schemaname, tablename FROM pg_class JOIN pg_publication_tables
    ON oid = format('%%I.%%I', schemaname, tablename)::regclass WHERE pubname = %s
"""


class Table:
    """The table of Paimon, and that of the source."""

    def __init__(self, address: str, given: argparse.Namespace) -> None:
        """Make the table of Paimon if it is missing. Raises Refused."""
        self._address = address
        with psycopg.connect(address) as source:
            found = source.execute(IDENTITY, [given.publication]).fetchall()
            if len(found) != 1:
                raise Refused(
                    f"the publication {given.publication} has {len(found)} tables. Make one for each table: "
                    f"CREATE PUBLICATION {given.publication} FOR TABLE ..."
                )
            ((identity, *place),) = found
            self._place, self.name = sql.Identifier(*place), ".".join(place)
            if identity != "f":
                raise Refused(
                    f"the source does not send all values of a changed row. ALTER TABLE {self.name} REPLICA "
                    "IDENTITY FULL, and start again"
                )
            columns = source.execute(COLUMNS, [given.publication]).fetchall()
        keys = [name for name, _, in_key in columns if in_key]
        if not keys:
            raise Refused(f"{self.name} has no primary key, or the publication lacks it")
        fields = [pa.field(name, type_of(name, kind), nullable=not key) for name, kind, key in columns]
        self.columns = pa.schema(fields)
        self.location: Path = given.table
        self._make(keys, given.buckets)

    def _make(self, keys: list[str], buckets: int) -> None:
        database = self.location.parent.name.removesuffix(".db")
        catalog = CatalogFactory.create({"warehouse": str(self.location.parents[1])})
        catalog.create_database(database, ignore_if_exists=True)
        options = {"bucket": str(buckets), "write-only": "true"}
        made = Schema.from_pyarrow_schema(self.columns, primary_keys=keys, options=options)
        catalog.create_table(f"{database}.{self.location.name}", made, ignore_if_exists=True)

    def copy(self, driver: RegionDriver, place: dict[str, Any]) -> None:
        """Commit the rows of the source as the first checkpoint. Changes after the place follow it."""
        texts = [sql.SQL("{}::text").format(sql.Identifier(name)) for name in self.columns.names]
        query = sql.SQL("SELECT '+I', {} FROM {}").format(sql.SQL(", ").join(texts), self._place)
        # Values are written by these settings, as those of the changes are.
        how = {"client_encoding": "utf8", "options": "-c datestyle=ISO -c timezone=UTC"}
        with psycopg.connect(make_conninfo(self._address, **how)) as source:
            self._commit(driver, source.execute(query).fetchall(), place)

    def write(self, driver: RegionDriver, found: list[Transaction], place: dict[str, Any]) -> None:
        """Commit transactions as one checkpoint, with the place in the source after them."""
        rows = []
        for change in (change for each in found for change in each.changes):
            if change.operation not in KINDS:
                raise Refused(
                    f"{self.name} had a {change.operation.upper()}, which is no change of rows. Begin again "
                    "with another table of Paimon, stream and slot"
                )
            if [column.name for column in change.relation.columns] != self.columns.names:
                raise Refused(
                    f"{self.name} has other columns now. Begin again with another table of Paimon, stream "
                    "and slot"
                )
            rows.append((KINDS[change.operation], *map(self._text, change.values)))
        self._commit(driver, rows, place)

    def _text(self, value: Value) -> str | None:
        if value is ...:
            raise Refused(
                f"the source has not sent all values of a changed row: {self.name} had no REPLICA IDENTITY "
                "FULL then. Set it, and begin again with another table of Paimon, stream and slot"
            )
        return None if value is None else value.decode()

    def _commit(self, driver: RegionDriver, rows: list[Any], place: dict[str, Any]) -> None:
        checkpoint, results = driver.begin(), []
        if rows:
            kinds, *columns = zip(*rows, strict=True)
            arrays = [values(*each) for each in zip(self.columns, columns, strict=True)]
            names = [KIND, *self.columns.names]
            results.append(checkpoint.write("changes", pa.table([pa.array(kinds), *arrays], names=names)))
        driver.complete(checkpoint, results, source_offsets=place)
        driver.await_commit(checkpoint)


def type_of(column: str, kind: str) -> pa.DataType:
    """Return the type in Paimon of a column of PostgreSQL. Raises Refused."""
    if digits := re.fullmatch(r"numeric\((\d+),(\d+)\)", kind):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if re.match(r"character\b", kind):
        return pa.string()
    if kind not in TYPES:
        raise Refused(
            f"the column {column} has the unknown type {kind}. Leave it out of the publication, which can "
            "list columns: FOR TABLE name (column, ...)"
        )
    return TYPES[kind]


def values(field: pa.Field, texts: Sequence[str | None]) -> pa.Array:
    """Return the values of a column, which PostgreSQL has written as texts. Raises Refused."""
    found = pa.array(texts, pa.string())
    if field.type == pa.bool_():
        return pa.array([None if each is None else each[0] == "t" for each in texts])
    try:
        return found.cast(field.type)
    except pa.ArrowInvalid as error:
        raise Refused(f"the column {field.name} has a value that is no {field.type}: {error}") from error


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Keep a table of Paimon as a table of PostgreSQL is.")
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("postgres", help="the database, as libpq names it")
    parser.add_argument("table", type=Path, help="folder of the table of Paimon: WAREHOUSE/DATABASE.db/TABLE")
    parser.add_argument("--stream", default="accounts", help="in the settings of the coordinator")
    parser.add_argument("--publication", default="accounts", help="of one table")
    parser.add_argument("--slot", default="accounts", help="replication slot; a new stream makes it")
    parser.add_argument("--buckets", type=int, default=4, help="of a new table of Paimon")
    parser.add_argument("--changes", type=int, default=10_000, help="about so many in a commit")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before a further look for changes")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    return parser.parse_args()


def main() -> None:
    """Make what is missing, copy the rows, and follow the source."""
    given = arguments()
    given.table = given.table.absolute()
    table = Table(given.postgres, given)
    options = {
        "stream": given.stream,
        "region": "postgres",
        "format": "paimon",
        "table": str(given.table),
        "row.kind.column": KIND,
        "kafka.bootstrap.servers": given.bootstrap,
        "topic.prefix": given.topic_prefix,
        "registration.timeout": "forever",  # wait for a coordinator; the log says so after 10 s
    }
    with Source(given.postgres, given.publication, given.slot) as source, RegionDriver(options) as driver:
        if driver.committed is None:
            table.copy(driver, source.start(None))
        follow(source, table, driver, given.changes, given.pause)


if __name__ == "__main__":
    try:
        main()
    except (Refused, RegistrationRefused) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
