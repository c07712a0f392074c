"""Values of columns and partitions as Iceberg stores them: reading, comparison and text."""

import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes, unscaled_to_decimal

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DAY: Final = 86_400_000_000
"""Microseconds."""

_WIDER: Final = ((IntegerType, LongType), (FloatType, DoubleType))
"""Types whose values are the same for Python as those of a wider type."""

ReadBound = Callable[[bytes], Any]
"""Reads a lower or upper bound to a value that can be compared. Raises ValueError or struct.error."""


def _int(raw: bytes) -> int:
    number: int = _INT.unpack(raw)[0]
    return number


def _long(raw: bytes) -> int:
    # Four bytes: the column was an int when the file was written.
    number: int = (_INT if len(raw) == _INT.size else _LONG).unpack(raw)[0]
    return number


def _only_long(raw: bytes) -> int:
    number: int = _LONG.unpack(raw)[0]
    return number


def _float(raw: bytes) -> float:
    return _not_nan(_FLOAT.unpack(raw)[0])


def _double(raw: bytes) -> float:
    return _not_nan((_FLOAT if len(raw) == _FLOAT.size else _DOUBLE).unpack(raw)[0])


def _not_nan(number: float) -> float:
    if math.isnan(number):
        raise ValueError("NaN is no bound")
    return number


def _boolean(raw: bytes) -> bool:
    if raw not in (b"\x00", b"\x01"):
        raise ValueError("no boolean")
    return raw == b"\x01"


def _text(raw: bytes) -> str:
    return raw.decode()


def _time(raw: bytes) -> int:
    number = _only_long(raw)
    if not 0 <= number < _DAY:
        raise ValueError(f"{number} is no time of a day")
    return number


def _sized(size: int, raw: bytes) -> bytes:
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes instead of {size}")
    return raw


def _decimal(precision: int, longest: int, limit: int, raw: bytes) -> int:
    if not 1 <= len(raw) <= longest:
        raise ValueError(f"{len(raw)} bytes are no decimal of {precision} digits")
    number = int.from_bytes(raw, "big", signed=True)
    if not -limit < number < limit:
        raise ValueError(f"{number} has more than {precision} digits")
    return number


_READERS: Final[dict[type[PrimitiveType], ReadBound]] = {
    BooleanType: _boolean,
    IntegerType: _int,
    LongType: _long,
    FloatType: _float,
    DoubleType: _double,
    DateType: _int,
    TimeType: _time,
    TimestampType: _only_long,
    TimestamptzType: _only_long,
    TimestampNanoType: _only_long,
    TimestamptzNanoType: _only_long,
    StringType: _text,
    UUIDType: partial(_sized, 16),
    BinaryType: bytes,
}


def bound_reader(kind: IcebergType) -> ReadBound | None:
    """Return the reader of a column's bounds; None if such a column has none."""
    if isinstance(kind, DecimalType):
        return partial(_decimal, kind.precision, decimal_required_bytes(kind.precision), 10**kind.precision)
    if isinstance(kind, FixedType):
        return partial(_sized, len(kind))
    return _READERS.get(type(kind)) if isinstance(kind, PrimitiveType) else None


_WRITERS: Final[dict[type[PrimitiveType], Callable[[Any], bytes]]] = {
    BooleanType: lambda raw: b"\x01" if raw else b"\x00",
    IntegerType: _INT.pack,
    LongType: _LONG.pack,
    FloatType: _FLOAT.pack,
    DoubleType: _DOUBLE.pack,
    DateType: _INT.pack,
    TimeType: _LONG.pack,
    TimestampType: _LONG.pack,
    TimestamptzType: _LONG.pack,
}


def stored_bound(kind: PrimitiveType, raw: Any) -> bytes:
    """Return a lower or upper bound from a value as Parquet files store it."""
    if isinstance(kind, DecimalType):
        number = int(raw)
        return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
    write = _WRITERS.get(type(kind))
    return bytes(raw) if write is None else write(raw)


def partition_problem(field: PartitionField, kind: IcebergType, value: Any) -> str | None:
    """Return what is wrong with a partition value, as Avro stores it; None if nothing is."""
    if value is None:
        return None
    if isinstance(field.transform, VoidTransform):
        return "is not null, but its transform is void"
    if isinstance(field.transform, BucketTransform) and not 0 <= value < field.transform.num_buckets:
        return f"is {value}, but its buckets go from 0 to {field.transform.num_buckets - 1}"
    if isinstance(kind, DecimalType) and abs(int.from_bytes(value, "big", signed=True)) >= 10**kind.precision:
        return f"has more than {kind.precision} digits"
    return None


def partition_text(field: PartitionField, kind: IcebergType, value: Any) -> str | None:
    """Return a partition value as people read it, None for null. Raises any error for values out of range."""
    if value is None:
        return None
    return str(field.transform.to_human_string(kind, _python(kind, value)))


def partition_key(partition: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a partition in a form that is equal only for the same values.

    As for Iceberg's Java library, the two zeros are two values, and NaN is one.
    """
    return tuple([_float_key(value) if isinstance(value, float) else value for value in partition])


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def nan_fields(partition: tuple[Any, ...]) -> tuple[bool, ...]:
    """Return for each field of a partition if its value is NaN."""
    return tuple(map(is_nan, partition))


def _float_key(number: float) -> bytes:
    return b"NaN" if math.isnan(number) else _DOUBLE.pack(number)


def widened(before: IcebergType, now: IcebergType, value: Any) -> Any:
    """Return a partition value of a type as that of a wider one. Raises ValueError for another type."""
    kinds = type(before), type(now)
    if isinstance(before, DecimalType) and isinstance(now, DecimalType) and before.scale == now.scale:
        if value is None:
            return None
        number = int.from_bytes(value, "big", signed=True)
        return number.to_bytes(decimal_required_bytes(now.precision), "big", signed=True)
    if before != now and kinds not in _WIDER:
        raise ValueError(f"{before} became {now}")
    return value


def partition_bound(kind: PrimitiveType, value: Any) -> bytes:
    """Encode a partition value for the summaries of a manifest list."""
    encoded: bytes = to_bytes(kind, _python(kind, value))
    return encoded


def partition_order(kind: IcebergType, value: Any) -> Any:
    """Return a partition value, not null, in a form that compares as its type does."""
    return int.from_bytes(value, "big", signed=True) if isinstance(kind, DecimalType) else value


def _python(kind: IcebergType, value: Any) -> Any:
    if isinstance(kind, DecimalType):
        return unscaled_to_decimal(int.from_bytes(value, "big", signed=True), kind.scale)
    return value
