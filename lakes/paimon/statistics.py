"""Examination of the statistics of an entry. pypaimon decodes all of them for each read of the table.

So bytes that it cannot decode would make the whole table unreadable, and wrong bounds would hide rows.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from pypaimon.schema.data_types import AtomicType, DataField, DataType
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer, _parse_type_precision_scale

EMPTY: Final = GenericRowSerializer.to_bytes(GenericRow([], []))
"""Row without columns, as Paimon stores it."""
_ARITY: Final = 4
"""Bytes before a row."""
_HEADER: Final = 8
"""Bits of a row before those of its nulls: its kind, 0 for an insertion."""
_LONGEST_DECIMAL: Final = 16
_DAYS: Final = range(-719_162, 2_932_897)
"""Dates that Python has: the years 1 to 9999."""
_MILLIS: Final = range(_DAYS.start * 86_400_000, _DAYS.stop * 86_400_000)
_MILLIS_OF_DAY: Final = range(86_400_000)
_NANOS: Final = range(1_000_000)

_Read = Callable[[bytes, int], Any]
"""Return a value that compares as its type does, from a row and the column's slot. Raises ValueError."""


class Statistics:
    """Reader of the statistics of some columns."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._names = [str(field.name) for field in fields]
        self._readers = [_reader(field.type) for field in fields]
        self._slots = struct.Struct(f"<{len(fields)}q")
        self._arity = struct.pack(">i", len(fields))
        self._start = (len(fields) + _HEADER + 63) // 64 * 8

    def problem(self, stats: Mapping[str, Any], rows: int) -> str | None:
        """Return what is wrong with the statistics of a file of so many rows; None if nothing is."""
        counts = stats["_NULL_COUNTS"]
        if counts is not None and len(counts) != len(self._names):
            return f"has {len(counts)} numbers of nulls for {len(self._names)} columns"
        try:
            lower, upper = self._bounds(stats["_MIN_VALUES"]), self._bounds(stats["_MAX_VALUES"])
        except (ValueError, struct.error) as error:
            return f"has bounds that cannot be read: {error}"
        for name, low, high, nulls in zip(self._names, lower, upper, counts or repeat(None), strict=False):
            if nulls is not None and not 0 <= nulls <= rows:
                return f"has {nulls} nulls in the column {name}, of {rows} rows"
            if nulls == rows and not low is high is None:
                return f"has bounds of the column {name}, which is null in all rows"
            if low is not None and high is not None and low > high:
                return f"has a lower bound above the upper one for the column {name}"
        return None

    def _bounds(self, raw: bytes) -> list[Any]:
        """Return the values of a row, None for null. Raises ValueError or struct.error."""
        if raw[:_ARITY] != self._arity:
            raise ValueError(f"they are not those of {len(self._names)} columns")
        row = raw[_ARITY:]
        slots = self._slots.unpack_from(row, self._start)
        kind, nulls = row[0], int.from_bytes(row[: self._start], "little") >> _HEADER
        if kind != 0:
            raise ValueError(f"their row has the kind {kind}")
        values: list[Any] = []
        for at, (name, read, slot) in enumerate(zip(self._names, self._readers, slots, strict=True)):
            try:
                values.append(None if nulls >> at & 1 else read(row, slot))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return values


def _reader(kind: DataType) -> _Read:
    if not isinstance(kind, AtomicType):
        return _none
    name = kind.type.upper().split("(")[0].split()[0]
    if name.startswith(("DECIMAL", "NUMERIC", "TIMESTAMP")):
        return _scaled(name, _parse_type_precision_scale(kind)[0])
    return _READERS.get(name, _none)


def _scaled(name: str, precision: int) -> _Read:
    if name.startswith("TIMESTAMP"):
        return _moment if precision > 3 else lambda _, slot: _inside(_MILLIS, slot)
    digits = range(1 - 10**precision, 10**precision)
    return partial(_decimal, digits) if precision > 18 else lambda _, slot: _inside(digits, slot)


def _none(_: bytes, __: int) -> Any:
    raise ValueError("a column of its type has no bounds")


def _inside(values: range, value: int) -> int:
    if value not in values:
        raise ValueError(f"{value} is out of range")
    return value


def _integer(bits: int, _: bytes, slot: int) -> int:
    sign = 1 << bits - 1
    return (slot & (1 << bits) - 1 ^ sign) - sign


def _float(layout: struct.Struct, _: bytes, slot: int) -> float:
    value: float = layout.unpack(struct.pack("<q", slot))[0]
    if math.isnan(value):
        raise ValueError("NaN is no bound")
    return value


def _variable(row: bytes, slot: int) -> bytes:
    """Return a value of any length: it is in its slot, or the slot has its place in the row."""
    if slot < 0:
        inline = struct.pack("<q", slot)
        length = inline[7] & 0x7F
        if length > 7:
            raise ValueError(f"a slot has a value of {length} bytes")
        return inline[:length]
    return _part(row, slot >> 32, slot & 0xFFFF_FFFF)


def _part(row: bytes, start: int, length: int) -> bytes:
    if start + length > len(row):
        raise ValueError("a value ends after the row")
    return row[start : start + length]


def _text(raw: bytes) -> bytes:
    """Return the bytes of a text, which compare as its characters do. Raises ValueError for others."""
    raw.decode()
    return raw


def _decimal(digits: range, row: bytes, slot: int) -> int:
    length = slot & 0xFFFF_FFFF
    if slot < 0 or not 1 <= length <= _LONGEST_DECIMAL:
        raise ValueError(f"a decimal has {length} bytes")
    return _inside(digits, int.from_bytes(_part(row, slot >> 32, length), "big", signed=True))


def _moment(row: bytes, slot: int) -> tuple[int, int]:
    """Return the milliseconds of a time, and the nanoseconds of its last one."""
    (millis,) = struct.unpack("<q", _part(row, slot >> 32 & 0xFFFF_FFFF, 8))
    return _inside(_MILLIS, millis), _inside(_NANOS, slot & 0xFFFF_FFFF)


def _long(_: bytes, slot: int) -> int:
    return slot


def _string(row: bytes, slot: int) -> bytes:
    return _text(_variable(row, slot))


_READERS: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), lambda _, slot: _inside(range(2), slot & 0xFF)),
    **dict.fromkeys(("TINYINT", "BYTE"), partial(_integer, 8)),
    **dict.fromkeys(("SMALLINT", "SHORT"), partial(_integer, 16)),
    **dict.fromkeys(("INT", "INTEGER"), partial(_integer, 32)),
    **dict.fromkeys(("BIGINT", "LONG"), _long),
    **dict.fromkeys(("FLOAT", "REAL"), partial(_float, struct.Struct("<f4x"))),
    "DOUBLE": partial(_float, struct.Struct("<d")),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), _string),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), _variable),
    "DATE": lambda row, slot: _inside(_DAYS, _integer(32, row, slot)),
    "TIME": lambda row, slot: _inside(_MILLIS_OF_DAY, _integer(32, row, slot)),
}
