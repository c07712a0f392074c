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
        self.others: Final = tuple(leaf.path for leaf in leaves if leaf.physical_type not in _FLOATS)
        """Paths of the columns that are no floats."""
        self.names: Final = tuple(_floats(pa.struct(schema), ()))
        """Names of each column of floats from the outside to the inside. None is in a list or a map."""
        self._paths: Final = tuple(leaf.path for leaf in leaves if leaf.physical_type in _FLOATS)

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
        if not self._paths:
            return True
        bare = self.without_statistics(counts)
        return [*self.others, *(path for path in self._paths if path not in bare)]

    def without_statistics(self, counts: "Counts") -> set[str]:
        """Return the columns of a file that get none: those with NaN, and all in lists and maps."""
        # The path of a column `a.b` is also that of a column `b` in `a`.
        bounded = {".".join(names) for names in self.names}
        strange = {".".join(names) for names in self.names if counts.nan[names]}
        return {path for path in self._paths if path not in bounded or path in strange}


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


def _floats(kind: pa.StructType, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in kind:
        names = (*before, field.name)
        if pa.types.is_struct(field.type):
            yield from _floats(field.type, names)
        elif pa.types.is_float32(field.type) or pa.types.is_float64(field.type):
            yield names
