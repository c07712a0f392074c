"""Division of rows by the partitions of a spec."""

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform, VoidTransform
from pyiceberg.types import BinaryType, DecimalType, IcebergType, IntegerType, LongType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros
from pyiceberg.utils.decimal import decimal_required_bytes, decimal_to_bytes

from sluicegate.lakes.arrow import out_of_range
from sluicegate.lakes.iceberg.folders import folder_path
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.values import partition_key, partition_problem, partition_text
from sluicegate.lakes.port import SchemaMismatch

_VOID_TYPE: Final = pa.null()
_BITS: Final = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class Splitter:
    """Divider of tables with one schema by one spec."""

    def __init__(self, schema: Schema, layout: Layout) -> None:
        self._layout = layout
        fields = zip(layout.spec.fields, layout.partition_type.fields, strict=True)
        self._parts = [
            _Part(
                field.name,
                path_of(schema, field.source_id),
                _transform(field, schema.find_type(field.source_id)),
                typed.field_type,
            )
            for field, typed in fields
        ]
        self._texts: dict[Partition, dict[str, str | None]] = {}
        """By the key of the partition."""

    def split(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield the rows of each partition, in their order."""
        if not self._parts:
            yield (), rows
            return
        columns = []
        codes = np.zeros(rows.num_rows, np.int64)
        for part in self._parts:
            column = part.of(rows)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            columns.append(column)
            encoded = _comparable(column).dictionary_encode(null_encoding="encode")
            codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
            # Replace the combined codes by their ranks, so that the product with the next column cannot
            # overflow.
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        borders = np.searchsorted(codes[order], np.arange(len(first) + 1))
        for number, at in enumerate(first):
            values = tuple(
                [part.stored(column[int(at)]) for part, column in zip(self._parts, columns, strict=True)]
            )
            chosen = order[borders[number] : borders[number + 1]]
            yield values, rows.take(pa.array(chosen)).combine_chunks()

    def texts(self, partition: Partition) -> dict[str, str | None]:
        """Return the values of a partition as people read them, by field.

        Raises SchemaMismatch for a value that no file of the table can have.
        """
        key = partition_key(partition)
        known = self._texts.get(key)
        if known is None:
            fields = zip(self._layout.spec.fields, self._parts, partition, strict=True)
            known = self._texts[key] = {field.name: part.text(field, value) for field, part, value in fields}
        return dict(known)

    def folder(self, partition: Partition) -> str:
        """Return the folder of a partition, with a slash at its end; empty without partitions.

        Raises SchemaMismatch for a value that no file of the table can have.
        """
        return f"{folder_path(self.texts(partition))}/" if self._parts else ""


@dataclass(frozen=True)
class _Part:
    """A field of the partitions."""

    name: str
    path: Sequence[str]
    """Names that lead to its source, from the top."""
    transform: Callable[[pa.Array], pa.Array] | None
    """None: all its values are null."""
    kind: IcebergType

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the values of the field. Raises SchemaMismatch."""
        if self.transform is None:
            return pa.nulls(rows.num_rows)
        try:
            return self.transform(_column(rows, self.path))
        except OverflowError as error:
            raise self._out_of_range(error) from error

    def stored(self, value: pa.Scalar) -> Any:
        """Return a value of the field as Avro stores it. Raises SchemaMismatch."""
        try:
            return _stored(self.kind, value.as_py())
        except (OverflowError, ValueError) as error:
            raise self._out_of_range(error) from error

    def text(self, field: PartitionField, value: Any) -> str | None:
        """Return a value of the field as people read it, None for null. Raises SchemaMismatch."""
        problem = partition_problem(field, self.kind, value)
        if problem is not None:
            raise SchemaMismatch(
                f"the partition value {self.name} of the rows {problem}. Correct the rows, or partition the "
                "table by another field"
            )
        try:
            return partition_text(field, self.kind, value)
        except (OverflowError, ValueError) as error:
            raise self._out_of_range(error) from error

    def _out_of_range(self, error: Exception) -> SchemaMismatch:
        return out_of_range(f"{self.name} (column {'.'.join(self.path)})", error)


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column of partition values in a form whose values are equal only if they are the same."""
    if column.type == _VOID_TYPE:
        return column.cast(pa.int8())
    # By their bits: the two zeros are two values.
    bits = _BITS.get(column.type)
    return column if bits is None else column.view(bits)


def _transform(field: PartitionField, kind: IcebergType) -> Callable[[pa.Array], pa.Array] | None:
    """Return the transform of a column of this type, None if all its values are null."""
    transform: Any = field.transform
    if isinstance(transform, VoidTransform):
        return None
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        # The library cannot do it for columns with offsets of 64 bits.
        return partial(pc.binary_slice, start=0, stop=transform.width)
    prepared: Callable[[pa.Array], pa.Array] = transform.pyarrow_transform(kind)
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        return partial(_truncated, prepared)
    return prepared


def _truncated(transform: Callable[[pa.Array], pa.Array], column: pa.Array) -> pa.Array:
    """Truncate numbers. Raises OverflowError for those that have no number of their type below them."""
    found = transform(column)
    if pc.any(pc.greater(found, column)).as_py():
        raise OverflowError("a number is too low to be truncated")
    return found


def path_of(schema: Schema, source: int) -> list[str]:
    """Return the names that lead to a column, from the top."""
    parents = schema._lazy_id_to_parent
    names = [schema.find_field(source).name]
    while (parent := parents.get(source)) is not None:
        names.insert(0, schema.find_field(parent).name)
        source = parent
    return names


def _column(rows: pa.Table, path: Sequence[str]) -> pa.Array:
    column = rows.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _stored(kind: IcebergType, value: Any) -> Any:
    """Return a value as Avro stores it, without a logical type."""
    match value:
        case datetime.datetime():
            return datetime_to_micros(value)
        case datetime.date():
            return date_to_days(value)
        case datetime.time():
            return time_to_micros(value)
        case decimal.Decimal() if isinstance(kind, DecimalType):
            return decimal_to_bytes(value, decimal_required_bytes(kind.precision))
        case uuid.UUID():
            return value.bytes
        case _:
            return value
