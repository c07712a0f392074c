"""Dictionaries in Parquet files, for the columns where they make a file smaller.

pyarrow encodes every column with a dictionary until the dictionary is full. For a column of distinct values,
the file then has both the dictionary and the references to it. Parquet's Java library drops a dictionary that
does not pay for its first page; the rule here is the same.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FIRST: Final = 2_000
"""Rows that decide about a column if its values clearly repeat."""
_SAMPLE: Final = 20_000
"""Rows that decide about the other columns: those of a page of Parquet's Java library."""
_CLEARLY: Final = 0.9
"""Size with a dictionary, as a share of that without one, at which the first rows are enough."""


class Dictionaries:
    """Choice of the columns with a dictionary, for the files of one writer.

    The rows of a whole sample decide about a column for all files that follow.
    """

    def __init__(self) -> None:
        self._settled: dict[str, bool] = {}

    def columns(self, leaves: Sequence[str], rows: pa.Table) -> list[str] | bool:
        """Return the columns with a dictionary, in the form of `ParquetWriter`.

        `leaves` are the paths of all columns of the file, `rows` the first rows of it. A column inside of a
        list, a map or a struct always has a dictionary.
        """
        bare = {name for name in rows.schema.names if not self._pays(name, rows.column(name))}
        return [path for path in leaves if path not in bare] if bare else True

    def _pays(self, name: str, column: pa.ChunkedArray) -> bool:
        if name in self._settled:
            return self._settled[name]
        pays = _pays(column)
        if len(column) >= _SAMPLE:
            self._settled[name] = pays
        return pays


def _pays(column: pa.ChunkedArray) -> bool:
    """Return True if a dictionary makes a column smaller."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return True
    share = _share(column.slice(0, _FIRST))
    if share > _CLEARLY and len(column) > _FIRST:
        share = _share(column.slice(0, _SAMPLE))
    return share < 1


def _share(column: pa.ChunkedArray) -> float:
    """Return the size of a column with a dictionary, as a share of that without one."""
    values = column.drop_null() if column.null_count else column
    if not len(values):
        return 0
    distinct, width = _distinct(values), _width(values)
    references = max(1, (distinct - 1).bit_length()) / 8
    return (distinct * width / len(values) + references) / width


def _distinct(values: pa.ChunkedArray) -> int:
    try:
        return int(pc.count_distinct(values).as_py())
    except pa.ArrowNotImplementedError:
        return 0


def _width(values: pa.ChunkedArray) -> float:
    """Return the bytes of a value in a file, on average."""
    kind = values.type
    if pa.types.is_primitive(kind):
        # Parquet has no numbers of fewer bits than 32.
        return max(4.0, int(kind.bit_width) / 8)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return float(kind.byte_width)
    return 4 + (pc.sum(pc.binary_length(values)).as_py() or 0) / max(1, len(values))
