"""Changes of tables in PostgreSQL become rows of Iceberg tables, in commits of whole source transactions.

    psql shop -c 'CREATE PUBLICATION changes FOR TABLE orders, items'
    sluicegate up --dir try --stream shop --option uri=sqlite:////lake/catalog.db \\
        --table transactions=/lake/shop/transactions \\
        --table orders=/lake/shop/orders --table items=/lake/shop/items
    python examples/postgres_changes.py 127.0.0.1:9092 postgresql:///shop /lake

It needs psycopg, PostgreSQL 15 or newer with `wal_level = logical`, and a user with the attribute REPLICATION.
It makes the lake tables and a replication slot, and runs until Ctrl-C. After a crash it continues behind the
newest commit: nothing is lost or doubled. The slot keeps what is not committed yet. If you end the program for
good, drop the slot: SELECT pg_drop_replication_slot('changes').

Rows are only added. A deleted row is one more row, whose `_operation` is `delete`. Each change has its place:
the commit of its transaction (`_commit_lsn`), and its number there (`_position`). The anchor, `transactions`,
has a row for each transaction, with the number of its changes. A reader by the vector (read_tables.py) sees
all changes of a transaction, or none.

- An update is a row `update` with the new values. A row `before` with the old ones precedes it, if the key has
  changed, or the table has REPLICA IDENTITY FULL.
- `_absent` names the columns that are null because the source does not send them without REPLICA IDENTITY
  FULL: long values that an update has not changed, and all columns of a deleted row but its key.
- Rows that a table has before the slot is made are not copied. A transaction must fit into memory.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pgoutput import Change, Relation, Transaction, decode  # type: ignore[import-not-found]  # beside this file
from pyiceberg.catalog import Catalog, load_catalog

from sluicegate.writer_hooks import RegionDriver

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
    **{"boolean": "boolean", "date": "date"},
    **{"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz"},
}
"""By the type of a column in PostgreSQL, that in the lake."""
ANCHOR = {"commit_lsn": "long", "transaction_id": "long", "committed_at": "timestamptz", "changes": "long"}
OF_CHANGES = {"_commit_lsn": "long", "_position": "long", "_operation": "string", "_absent": "string"}
QUIET = 16 << 20
"""Bytes of WAL without published changes, after which a checkpoint without rows lets the slot move."""

Columns = dict[str, str]
"""By the names of columns, their types in the lake."""


class Refused(Exception):
    """A reason to end the program; the text has the way out."""


class Source:
    """The publication and the slot of a database."""

    def __init__(self, connection: "psycopg.Connection[Any]", given: argparse.Namespace) -> None:
        self._connection, self._given = connection, given
        self.type_name = cache(lambda oid: str(self._one("SELECT %s::oid::regtype::text", oid)))

    def tables(self) -> dict[str, Columns]:
        """Return the columns of the published tables by the names of these."""
        found: dict[str, Columns] = {}
        schemas = {self._given.anchor: "the anchor"}
        for schema, name, column, oid in self._rows(
            "SELECT schemaname, tablename, attname, atttypid FROM pg_publication_tables JOIN pg_attribute ON "
            "attrelid = format('%%I.%%I', schemaname, tablename)::regclass AND attname = ANY (attnames) "
            "WHERE pubname = %s ORDER BY schemaname, tablename, attnum",
            self._given.publication,
        ):
            if (other := schemas.setdefault(name, schema)) != schema:
                raise Refused(
                    f"{schema}.{name} has the name of that in {other}. Give it a publication, slot and stream "
                    "of its own; or give the anchor another name with --anchor"
                )
            found.setdefault(name, OF_CHANGES.copy())[column] = self.lake_type(
                f"{schema}.{name}.{column}", oid
            )
        if not found:
            name = self._given.publication
            raise Refused(f"the publication {name} has no tables. CREATE PUBLICATION {name} FOR TABLE ...")
        return found

    def lake_type(self, column: str, oid: int) -> str:
        """Return the type of a column in the lake."""
        name = self.type_name(oid)
        if column.rpartition(".")[2] in OF_CHANGES:
            raise Refused(f"{column} has a name that means something else in the lake. {LEAVE_OUT}")
        if name not in LAKE_TYPES and name not in self._given.as_text:
            raise Refused(
                f"{column} has the unknown type {name}. Start with --as-text '{name}'. Or {LEAVE_OUT}"
            )
        return "string" if name in self._given.as_text else LAKE_TYPES[name]

    def start(self, committed: Any) -> dict[str, Any]:
        """Return the place to read after: that of the newest commit, to which the slot moves too."""
        slot, again = self._given.slot, "Begin again with another --stream and --slot"
        query = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        at, system = (
            self._one(query, slot),
            str(self._one("SELECT system_identifier FROM pg_control_system()")),
        )
        if committed is None:
            make = "SELECT lsn - '0/0' FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
            return {"lsn": int(at or self._one(make, slot)), "slot": slot, "system": system}
        if (committed["slot"], committed["system"]) != (slot, system):
            raise Refused(f"the stream has changes of another slot or server, {committed}. {again}")
        if at is None or at > committed["lsn"]:
            raise Refused(f"changes are lost: the slot {slot} was dropped, or others have read it. {again}")
        self.advance(committed["lsn"])
        return dict(committed)

    def read(self, after: int) -> tuple[list[Transaction], int]:
        """Return transactions after a place, and the place up to which these are all. The slot stays."""
        upto = int(self._one("SELECT pg_current_wal_flush_lsn() - '0/0'"))
        # The server compares the number of changes after each commit, so it cuts no transaction.
        messages = self._rows(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, '0/0'::pg_lsn + %s, %s, "
            "'proto_version', '1', 'publication_names', quote_ident(%s))",
            *(self._given.slot, upto, self._given.changes, self._given.publication),
        )
        found = [each for each in decode(data for (data,) in messages) if each.lsn > after]
        return found, found[-1].lsn if found else upto

    def advance(self, lsn: int) -> None:
        """Let PostgreSQL forget everything up to a place."""
        self._one("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)", self._given.slot, lsn)

    def _one(self, query: str, *values: Any) -> Any:
        return next((row[0] for row in self._rows(query, *values)), None)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        while True:
            try:
                return self._connection.execute(query, values, binary=True).fetchall()
            except psycopg.errors.ObjectInUse:
                time.sleep(self._given.pause)  # the server still works for a killed program


LEAVE_OUT = "leave it out of the publication: CREATE PUBLICATION ... FOR TABLE name (columns)"


class Lake:
    """The lake tables, with the columns of each."""

    def __init__(self, catalog: Catalog, source: Source, given: argparse.Namespace) -> None:
        """Make the tables that are missing."""
        self._source, self._given = source, given
        self.columns_of = cache(self._columns_of)
        catalog.create_namespace_if_not_exists(given.stream)
        for name, columns in {given.anchor: ANCHOR, **source.tables()}.items():
            location = (given.lake / given.stream / name).as_uri()
            catalog.create_table_if_not_exists(
                f"{given.stream}.{name}", schema_of(columns), location=location
            )
        # Also those that are not published any more: the WAL may have changes of them.
        found = [catalog.load_table(each) for each in catalog.list_tables(given.stream)]
        columns = {
            each.name()[-1]: {of.name: str(of.field_type) for of in each.schema().fields} for each in found
        }
        self.tables = {name: each for name, each in columns.items() if name != given.anchor}

    def write(self, driver: RegionDriver, found: list[Transaction], place: dict[str, Any]) -> None:
        """Commit transactions as one checkpoint, with the place in the source after them."""
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in found:
            for number, change in enumerate(each.changes):
                of_change = {"_commit_lsn": each.lsn, "_position": number, "_operation": change.operation}
                rows[change.relation.name].append(of_change | self.values_of(change))
        checkpoint, results = driver.begin(), []
        if found:
            anchor = [(each.lsn, each.number, each.at, len(each.changes)) for each in found]
            columns = dict(zip(ANCHOR, zip(*anchor, strict=True), strict=True))
            results.append(checkpoint.write("changes", pa.table(columns, schema=schema_of(ANCHOR))))
        for name, of_table in rows.items():
            data = pa.Table.from_pylist(of_table, schema_of(self.tables[name]))
            results.append(checkpoint.write("changes", data, table=name))
        driver.complete(checkpoint, results, source_offsets=place)
        driver.await_commit(checkpoint)

    def values_of(self, change: Change) -> dict[str, Any]:
        """Return the values of a change by column. Those that are missing become null."""
        found, absent = dict[str, Any](), []
        for (name, kind), value in zip(self.columns_of(change.relation).items(), change.values, strict=False):
            if value is ...:
                absent.append(name)
            elif value is not None:
                try:
                    found[name] = TYPES[kind][1](value.decode())
                except ValueError as error:
                    raise Refused(
                        f"{change.relation.name}.{name} has the value {value.decode()}, which is no {kind} in the "
                        "lake. Rename the column there, and start with --add-columns --as-text and its type"
                    ) from error
        return found | {"_absent": ", ".join(absent) or None}

    def _columns_of(self, relation: Relation) -> Columns:
        """Return the columns of a table of the source. The lake must have them."""
        table = f"{relation.schema}.{relation.name}"
        if (known := self.tables.get(relation.name)) is None:
            raise Refused(f"{table} is new. Add it to the tables of the stream, and start again")
        found = {
            each.name: self._source.lake_type(f"{table}.{each.name}", each.type) for each in relation.columns
        }
        for name, kind in found.items():
            if name not in known and not self._given.add_columns:
                raise Refused(f"{table} has the new column {name}. Start again with --add-columns")
            if known.setdefault(name, kind) != kind:
                raise Refused(
                    f"{table}.{name} is {kind} now, and {known[name]} in the lake. Rename the column in the lake, "
                    "and start again with --add-columns"
                )
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
    """Make what is missing, and commit changes without end."""
    given = arguments()
    given.lake = given.lake.absolute()
    given.lake.mkdir(parents=True, exist_ok=True)
    uri = given.catalog or f"sqlite:///{given.lake / 'catalog.db'}"
    # Values are texts of these settings.
    how = {"client_encoding": "utf8", "options": "-c datestyle=ISO -c timezone=UTC"}
    with psycopg.connect(
        psycopg.conninfo.make_conninfo(given.postgres, **how), autocommit=True
    ) as connection:
        source = Source(connection, given)
        with closing(load_catalog("default", type="sql", uri=uri)) as catalog:
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
            after = driver.committed
            place = source.start(after.source_offsets if after is not None else None)
            while True:
                found, upto = source.read(place["lsn"])
                if not found and upto - place["lsn"] < QUIET:
                    time.sleep(given.pause)
                    continue
                place["lsn"] = upto
                lake.write(driver, found, place)
                source.advance(upto)  # only what is visible
                print(f"committed: {len(found)} transactions", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Refused as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
