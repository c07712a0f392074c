"""Decode the messages of pgoutput, the plugin of PostgreSQL for logical replication, into transactions.

It reads version 1 of the protocol, which has whole transactions in the order of their commits. Values are the
bytes of their text in PostgreSQL.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import NamedTuple

Value = bytes | EllipsisType | None
"""A value of a row. An ellipsis: the source has not sent it."""
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
OPERATIONS = {b"I": "insert", b"U": "update", b"D": "delete"}


class Column(NamedTuple):
    """A column; `type` is the id of its type in pg_type."""

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
    """Return the transactions of the messages of one read of a slot."""
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
            number_of = fields.number(4)
            relations[number_of] = fields.relation()
        elif kind == b"T":
            count, _ = fields.number(4), fields.take(1)
            changes += [Change("truncate", relations[fields.number(4)], []) for _ in range(count)]
        elif kind in OPERATIONS:
            changes += row_changes(OPERATIONS[kind], relations[fields.number(4)], fields)


def row_changes(operation: str, relation: Relation, fields: Fields) -> Iterator[Change]:
    """Return the changes of one message: a row's old values, and its new ones."""
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
