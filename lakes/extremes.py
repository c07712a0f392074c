"""Lowest and highest values of the columns of Parquet files, from their footers, as the files store them.

A bound that a footer has may be wider than the values. Where it could be narrower, there is none:

- Columns of floats have none, unless the caller knows that they have no NaN. Writers leave NaN out of bounds,
  and readers take NaN for the highest number.
- A column has none if a row group with values has none.
- An empty text is no upper bound: the library gives one where a footer has only a lower bound.
"""

import decimal
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_FLOATS: Final = ("FLOAT", "DOUBLE")
_UNORDERED: Final = "INT96"
_VIEWED: Final = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_time)


class Extremes(NamedTuple):
    """Bounds of a column over all row groups, and the number of its nulls."""

    lowest: Any
    """As the file stores it; None: no bound."""
    highest: Any
    nulls: int | None
    """None: unknown. In columns with lists or maps around them, also empty ones count."""

    @property
    def bounded(self) -> bool:
        return self.lowest is not None


def extremes_of(footer: pq.FileMetaData, number: int, *, without_nan: bool = False) -> Extremes:
    """Return the extremes of a column, by its number in the file. Raises any error for malformed bytes.

    `without_nan`: statistics of floats are those of columns without NaN.
    """
    leaf = footer.schema.column(number)
    chunks = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
    parts = [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]
    nulls: int | None = 0
    for chunk, part in zip(chunks, parts, strict=True):
        found = part.null_count if part is not None and part.has_null_count else None
        if found is not None and not 0 <= found <= chunk.num_values:
            raise ValueError(f"{found} of {chunk.num_values} values of {leaf.path} are null")
        nulls = nulls + found if nulls is not None and found is not None else None
    if leaf.physical_type == _UNORDERED or (leaf.physical_type in _FLOATS and not without_nan):
        return Extremes(None, None, nulls)
    bounds = []
    for chunk, part in zip(chunks, parts, strict=True):
        if part is None or not part.has_min_max:
            if part is not None and part.has_null_count and part.null_count == chunk.num_values:
                continue
            return Extremes(None, None, nulls)
        if part.max_raw == b"":
            return Extremes(None, None, nulls)
        bounds.append((_ordered(leaf, part.min_raw), _ordered(leaf, part.max_raw)))
    if not bounds or any(low > high for low, high in bounds):
        return Extremes(None, None, nulls)
    return Extremes(min(low for low, _ in bounds), max(high for _, high in bounds), nulls)


def _ordered(leaf: Any, raw: Any) -> Any:
    """Return a raw bound in a form that compares as the column's values do."""
    if isinstance(raw, bytes) and json.loads(leaf.logical_type.to_json())["Type"] == "Decimal":
        return int.from_bytes(raw, "big", signed=True)
    return raw


def unbounded(footer: pq.FileMetaData) -> Iterator[tuple[str, Extremes]]:
    """Yield the columns without bounds that readers may use, or without a number of nulls, by their path."""
    for number in range(footer.num_columns):
        found = extremes_of(footer, number)
        if not found.bounded or found.nulls is None:
            yield footer.schema.column(number).path, found


def extreme_values(footer: pq.FileMetaData, number: int, kind: pa.DataType) -> pa.Array | None:
    """Return the lowest and the highest value of a column, of its type; one null if all are.

    None if they are unknown, or if values and nulls are mixed. Raises any error for malformed bytes.
    """
    found, rows = extremes_of(footer, number), footer.num_rows
    if found.nulls == rows:
        return pa.nulls(1, kind)
    if found.nulls != 0 or not found.bounded:
        return None
    bounds = [found.lowest, found.highest]
    if pa.types.is_decimal(kind):
        scaled = [decimal.Decimal(each).scaleb(-kind.scale, decimal.Context(prec=80)) for each in bounds]
        return pa.array(scaled, kind)
    if any(is_viewed(kind) for is_viewed in _VIEWED):
        return pa.array(bounds, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([each.decode() for each in bounds], kind)
    return pa.array(bounds, kind)
