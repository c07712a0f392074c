"""Rules for the metrics in the records of files. Readers skip files by them, so they must fit each other."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, StructType

COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


class Counts(NamedTuple):
    """Numbers of a file by column, none of them negative."""

    sizes: Mapping[int, int]
    """In bytes."""
    values: Mapping[int, int]
    nulls: Mapping[int, int]
    nans: Mapping[int, int]


class MetricRules:
    """Rules for the files of one schema."""

    def __init__(self, schema: Schema) -> None:
        fields = index_by_id(schema)
        self.floats: Final = frozenset(
            column for column, each in fields.items() if isinstance(each.field_type, FloatType | DoubleType)
        )
        """Columns that can have NaN."""
        self._repeated = frozenset(_repeated(schema.fields, inside=False))

    def problem(self, counts: Counts, bounded: Collection[int], rows: int, size: int) -> str | None:
        """Return the first contradiction in the metrics of a file; None if there is none.

        `bounded` are the columns with a bound, `rows` and `size` are those of the file.
        """
        wrong = [column for column, number in counts.sizes.items() if number > size]
        if wrong:
            return f"has column_sizes above the size of the file for the columns {wrong}"
        wrong = [
            column
            for column, number in counts.values.items()
            if number != rows and column not in self._repeated
        ]
        if wrong:
            return f"has other value_counts than {rows} rows for the columns {wrong}"
        if not counts.nans.keys() <= self.floats:
            return f"has nan_value_counts for the columns {sorted(counts.nans.keys() - self.floats)}"
        left = {
            column: (counts.values.get(column) if column in self._repeated else rows)
            for column in (*counts.nulls, *counts.nans, *bounded)
        }
        others = {
            column: number - counts.nulls.get(column, 0) - counts.nans.get(column, 0)
            for column, number in left.items()
            if number is not None
        }
        wrong = [column for column, number in others.items() if number < 0]
        if wrong:
            return f"counts more nulls and NaN than values for the columns {wrong}"
        wrong = [column for column in bounded if not others.get(column, 1)]
        return f"has bounds without values for the columns {wrong}" if wrong else None


def _repeated(fields: Sequence[NestedField], inside: bool) -> Iterator[int]:
    """Yield the columns in lists and maps: a row may have any number of their values."""
    for field in fields:
        if inside:
            yield field.field_id
        kind = field.field_type
        yield from _repeated(parts_of_type(kind), inside or isinstance(kind, ListType | MapType))


def parts_of_type(kind: IcebergType) -> Sequence[NestedField]:
    """Return the columns directly inside of one of a type."""
    if isinstance(kind, MapType):
        return kind.key_field, kind.value_field
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return kind.fields if isinstance(kind, StructType) else ()
