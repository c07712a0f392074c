"""Event times of Arrow columns in milliseconds since the Unix epoch."""

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.port import SchemaMismatch


def event_time_range(column: pa.Array | pa.ChunkedArray) -> tuple[int | None, int | None]:
    """The lowest and highest event time of a column, None if it has no values.

    Timestamps without a zone are taken as UTC, integers as milliseconds, dates as their first moment.
    Raises SchemaMismatch for other types.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
        divisor = 1000
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        divisor = 1
    elif pa.types.is_integer(kind):
        divisor = 1
    else:
        raise SchemaMismatch(f"an event time must be a timestamp, a date or milliseconds, not {kind}")
    found = pc.min_max(column).as_py()
    lowest, highest = found["min"], found["max"]
    return (
        None if lowest is None else int(lowest) // divisor,
        None if highest is None else int(highest) // divisor,
    )
