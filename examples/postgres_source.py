"""Read whole transactions from a slot of PostgreSQL, whose plugin is pgoutput, and commit them in order.

The slot is read with functions of SQL, so any client will do. It moves when the caller says that changes are
elsewhere, not when they are read. Transactions come in the order of their commits.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from types import EllipsisType
from typing import Any, NamedTuple, Protocol, Self

import psycopg
from psycopg.conninfo import make_conninfo

from sluicegate.writer_hooks import RegionDriver

Value = bytes | EllipsisType | None
"""A value of a row, as PostgreSQL writes it as text. An ellipsis: the source has not sent it."""
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
OPERATIONS = {b"I": "insert", b"U": "update", b"D": "delete"}
PAUSE = 0.1
"""Seconds before another try at a slot that the server still has in use for a program that was killed."""


class Refused(Exception):
    """A reason to end the program; the text has the way out."""


class Column(NamedTuple):
    """A column; `type` is the number of its type in PostgreSQL."""

    name: str
    type: int
    in_key: bool


class Relation(NamedTuple):
    """A table, as it was at the time of its changes."""

    schema: str
    name: str
    columns: tuple[Column, ...]


class Change(NamedTuple):
    """A change of one row, or `truncate`, which has no values.

    An update comes after a change `before` with the old values, if the source sends these.
    """

    operation: str
    relation: Relation
    values: list[Value]


class Transaction(NamedTuple):
    """A transaction; `lsn` is the place in the WAL right after its commit."""

    lsn: int
    number: int
    at: datetime
    changes: list[Change]


class Source:
    """A publication, and a slot that keeps its changes."""

    def __init__(self, address: str, publication: str, slot: str) -> None:
        # Values are written by these settings.
        how = {"client_encoding": "utf8", "options": "-c datestyle=ISO -c timezone=UTC"}
        self._connection = psycopg.connect(make_conninfo(address, **how), autocommit=True)
        self._publication, self._slot = publication, slot
        self.type_name = cache(lambda oid: str(self._one("SELECT %s::oid::regtype::text", oid)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def relations(self) -> list[Relation]:
        """Return the tables of the publication."""
        found: dict[tuple[str, str], list[Column]] = {}
        for schema, name, column, kind in self._rows(
            "SELECT schemaname, tablename, attname, atttypid FROM pg_publication_tables JOIN pg_attribute ON "
            "attrelid = format('%%I.%%I', schemaname, tablename)::regclass AND attname = ANY (attnames) "
            "WHERE pubname = %s ORDER BY schemaname, tablename, attnum",
            self._publication,
        ):
            found.setdefault((schema, name), []).append(Column(column, kind, in_key=False))
        if not found:
            how = f"CREATE PUBLICATION {self._publication} FOR TABLE ..."
            raise Refused(f"the publication {self._publication} has no tables. {how}")
        return [Relation(*name, tuple(columns)) for name, columns in found.items()]

    def start(self, after: Any) -> dict[str, Any]:
        """Return the place to read after: the given one, to which the slot moves, or that of a new slot."""
        slot, again = self._slot, "Begin again with another stream and slot"
        query = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        at, system = (
            self._one(query, slot),
            str(self._one("SELECT system_identifier FROM pg_control_system()")),
        )
        if after is None:
            make = "SELECT lsn - '0/0' FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
            return {"lsn": int(at or self._one(make, slot)), "slot": slot, "system": system}
        if (after["slot"], after["system"]) != (slot, system):
            raise Refused(f"what is committed comes from another slot or server, {after}. {again}")
        if at is None or at > after["lsn"]:
            raise Refused(f"changes are lost: the slot {slot} was dropped, or others have read it. {again}")
        self.advance(after["lsn"])
        return dict(after)

    def read(self, after: int, changes: int) -> tuple[list[Transaction], int]:
        """Return transactions after a place, and the place up to which these are all.

        They are as many as have so many changes, or a few more.
        """
        upto = int(self._one("SELECT pg_current_wal_flush_lsn() - '0/0'"))
        # The server compares the number of changes after each commit, so it cuts no transaction.
        messages = self._rows(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, '0/0'::pg_lsn + %s, %s, "
            "'proto_version', '1', 'publication_names', quote_ident(%s))",
            *(self._slot, upto, changes, self._publication),
        )
        found = [each for each in decode(data for (data,) in messages) if each.lsn > after]
        return found, found[-1].lsn if found else upto

    def advance(self, lsn: int) -> None:
        """Let PostgreSQL forget everything up to a place."""
        self._one("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)", self._slot, lsn)

    def _one(self, query: str, *values: Any) -> Any:
        return next((row[0] for row in self._rows(query, *values)), None)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        while True:
            try:
                return self._connection.execute(query, values, binary=True).fetchall()
            except psycopg.errors.ObjectInUse:
                time.sleep(PAUSE)


# --- from the source to a lake -------------------------------------------------------------------------

QUIET = 16 << 20
"""Bytes of WAL without published changes, after which a checkpoint without rows lets the slot move."""


class Lake(Protocol):
    """Tables that take the changes."""

    def write(self, driver: RegionDriver, found: list[Transaction], place: dict[str, Any]) -> None:
        """Commit transactions as one checkpoint, with the place in the source after them."""


def follow(source: Source, lake: Lake, driver: RegionDriver, changes: int, pause: float) -> None:
    """Commit changes without end, about so many at once. The slot moves when they are visible."""
    after = driver.committed
    if after is not None and after.source_offsets is None:
        raise Refused(
            "the place of the stream in the source is unknown. Begin again with another stream and slot"
        )
    place = source.start(after.source_offsets if after is not None else None)
    while True:
        found, upto = source.read(place["lsn"], changes)
        if not found and upto - place["lsn"] < QUIET:
            time.sleep(pause)
            continue
        place["lsn"] = upto
        lake.write(driver, found, place)
        source.advance(upto)
        print(f"committed: {len(found)} transactions", flush=True)


# --- the messages of pgoutput, version 1 ---------------------------------------------------------------


class Fields:
    """Fields of one message, from the first to the last."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._at += size
        return self._message[self._at - size : self._at]

    def number(self, size: int) -> int:
        """Return a number without a sign."""
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """Return a text, which a zero byte ends."""
        return self.take(self._message.index(0, self._at) + 1 - self._at)[:-1].decode()

    def values(self) -> list[Value]:
        """Return the values of a row."""
        return [self._value(self.take(1)) for _ in range(self.number(2))]

    def relation(self) -> Relation:
        """Return a table."""
        schema, name, _ = self.text(), self.text(), self.take(1)
        return Relation(schema, name, tuple(self._column() for _ in range(self.number(2))))

    def _value(self, kind: bytes) -> Value:
        return self.take(self.number(4)) if kind == b"t" else None if kind == b"n" else ...

    def _column(self) -> Column:
        flags, name, kind, _ = self.number(1), self.text(), self.number(4), self.take(4)
        return Column(name, kind, flags & 1 == 1)


def decode(messages: Iterable[bytes]) -> Iterator[Transaction]:
    """Return the transactions of the messages of one read."""
    relations: dict[int, Relation] = {}
    at, number, changes = EPOCH, 0, list[Change]()
    for message in messages:
        kind, fields = message[:1], Fields(message[1:])
        if kind == b"B":
            fields.take(8)
            at, number, changes = EPOCH + timedelta(microseconds=fields.number(8)), fields.number(4), []
        elif kind == b"C":
            fields.take(9)
            yield Transaction(fields.number(8), number, at, changes)
        elif kind == b"R":
            oid = fields.number(4)
            relations[oid] = fields.relation()
        elif kind == b"T":
            count, _ = fields.number(4), fields.take(1)
            changes += [Change("truncate", relations[fields.number(4)], []) for _ in range(count)]
        elif kind in OPERATIONS:
            changes += row_changes(OPERATIONS[kind], relations[fields.number(4)], fields)


def row_changes(operation: str, relation: Relation, fields: Fields) -> Iterator[Change]:
    """Return the changes of one message: old values of a row, and new ones."""
    old: list[Value] = []
    if (image := fields.take(1)) in (b"K", b"O"):
        pairs = zip(relation.columns, fields.values(), strict=True)
        # The key alone has nulls in place of all other values.
        old = [value if column.in_key or image == b"O" else ... for column, value in pairs]
        yield Change(operation if operation == "delete" else "before", relation, old)
        image = fields.take(1)
    if image == b"N":
        new = fields.values()
        # A long value that did not change is sent with the old values, if at all.
        yield Change(
            operation, relation, [b if a is ... else a for a, b in zip(new, old or new, strict=True)]
        )
