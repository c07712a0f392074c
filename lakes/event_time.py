"""Event times in milliseconds since the Unix epoch. Times without a zone count as UTC."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.port import SchemaMismatch

_LIMIT: Final = 1 << 63
"""Milliseconds. Only a time in seconds can be outside of it."""


def event_time_range(column: pa.Array | pa.ChunkedArray) -> tuple[int | None, int | None]:
    """Return the lowest and highest event time of a column in milliseconds; None if it has no values.

    Integers are milliseconds; dates stand for their first moment. Raises SchemaMismatch for other types, and
    for times that have too many milliseconds.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_millisecond = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[kind.unit]
        factor = 1_000 if kind.unit == "s" else 1
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        per_millisecond = factor = 1
    elif pa.types.is_integer(kind):
        per_millisecond = factor = 1
    else:
        raise SchemaMismatch(f"an event time must be a timestamp, a date or milliseconds, not {kind}")
    found = pc.min_max(column).as_py()
    lowest, highest = found["min"], found["max"]
    both = [None if each is None else int(each) * factor // per_millisecond for each in (lowest, highest)]
    for time in both:
        if time is not None and not -_LIMIT <= time < _LIMIT:
            raise SchemaMismatch(f"an event time of {time} milliseconds is out of range. Correct the rows")
    return both[0], both[1]
