"""Columns of floats: Parquet files get no statistics of those with NaN.

Parquet writers leave NaN out of their bounds. DuckDB and Spark take NaN for the highest number, so by such
bounds they would skip rows that a filter must find. Zeros are no problem: Parquet writes the bounds -0.0 and
+0.0.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_FLOATS: Final = ("FLOAT", "DOUBLE")


class Floats:
    """Columns of floats of one schema of files, also inside of structs."""

    def __init__(self, schema: pa.Schema) -> None:
        made = pq.ParquetWriter(pa.BufferOutputStream(), schema, store_schema=False)
        made.close()
        leaves = [made.writer.metadata.schema.column(number) for number in range(_width(made))]
        self.leaves: Final = tuple(leaf.path for leaf in leaves)
        """Paths of all columns, as Parquet names them."""
        paths = [leaf.path for leaf in leaves if leaf.physical_type in _FLOATS]
        self._floats: Final = tuple(zip(paths, _floats(schema), strict=True))
        """Path and names of each column of floats. Two columns may have one path."""
        self.names: Final = tuple(names for _, names in self._floats if names is not None)
        """Names of each column of floats from the outside to the inside. None is in a list or a map."""

    def count(self, rows: pa.Table) -> "Counts":
        """Count NaN and null in all columns of floats. `rows` have the names of the schema."""
        counts = Counts()
        for names in self.names:
            column = rows.column(names[0])
            if len(names) > 1:
                # A list, since Arrow parses a single name: `.a` would be `a`.
                column = pc.struct_field(column, list(names[1:]))
            counts.nan[names] = pc.sum(pc.is_nan(column)).as_py() or 0
            counts.null[names] = column.null_count
        return counts

    def with_statistics(self, counts: "Counts") -> bool | list[str]:
        """Return the columns of a file that get statistics, in the form of `ParquetWriter`.

        `counts` are those of the first rows. Later rows must fit them (`Counts.spoils`).
        """
        bare = self.without_statistics(counts)
        return [path for path in self.leaves if path not in bare] if bare else True

    def without_statistics(self, counts: "Counts") -> set[str]:
        """Return the columns of a file that get none: those with NaN, and all floats in lists and maps.

        A path may be that of another column, too: the column `a.b`, and the column `b` in `a`. Then neither
        gets statistics.
        """
        return {path for path, names in self._floats if names is None or counts.nan[names]}


class Counts:
    """Numbers of NaN and null in the columns of floats of one file, by `Floats.names`."""

    def __init__(self) -> None:
        self.nan: Counter[tuple[str, ...]] = Counter()
        self.null: Counter[tuple[str, ...]] = Counter()

    def spoils(self, other: "Counts") -> bool:
        """True if rows with these counts must not follow rows with the other ones.

        Their NaN would come into a column that has statistics.
        """
        return any(count and not other.nan[names] for names, count in self.nan.items())

    def add(self, other: "Counts") -> None:
        """Add the counts of more rows of the file."""
        self.nan.update(other.nan)
        self.null.update(other.null)


def _width(made: pq.ParquetWriter) -> int:
    return len(made.writer.metadata.schema)


def _floats(schema: pa.Schema) -> Iterator[tuple[str, ...] | None]:
    """Yield the names of each column of floats, in the order of a Parquet file; None in a list or a map."""
    for field in schema:
        yield from _floats_in(field.type, (field.name,))


def _floats_in(kind: pa.DataType, names: tuple[str, ...] | None) -> Iterator[tuple[str, ...] | None]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _floats_in(field.type, None if names is None else (*names, field.name))
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _floats_in(kind.field(number).type, None)
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        yield names
