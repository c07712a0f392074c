"""Rows in a sort order, as in Spark and Iceberg: NaN is above all numbers, nulls are first or last."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.file_options import SortColumn


def sorted_rows(rows: pa.Table, order: Sequence[SortColumn]) -> pa.Table:
    """Return the rows in an order. Rows that are equal in it keep their places among each other."""
    keys: list[pa.ChunkedArray] = []
    directions: list[str] = []
    for each in order:
        column = rows.column(each.name)
        if column.null_count:
            # False is before true.
            keys.append(pc.is_valid(column) if each.nulls_first else pc.is_null(column))
            directions.append("ascending")
        if pa.types.is_floating(column.type):
            # Arrow alone puts NaN after the numbers in both directions.
            keys.append(pc.fill_null(pc.is_nan(column), fill_value=False))
            directions.append("descending" if each.descending else "ascending")
        keys.append(column)
        directions.append("descending" if each.descending else "ascending")
    if not keys:
        return rows
    names = [str(number) for number in range(len(keys))]
    found = pc.sort_indices(
        pa.Table.from_arrays(keys, names=names), sort_keys=list(zip(names, directions, strict=True))
    )
    return rows.take(found)
