"""Arrow schemas of Delta tables, and rows by partition."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.arrow import out_of_range
from sluicegate.lakes.delta.schema import Array, Column, Kind, Struct

_FIELD_ID: Final = "PARQUET:field_id"
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Arrow's types by the names of Delta's, without decimals."""


def logical_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of rows, with the names that users know."""
    return pa.schema([pa.field(each.name, _type(each.kind), nullable=each.nullable) for each in columns])


def physical_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of data files: physical names, and ids of a table with column mapping."""
    return pa.schema([_physical_field(each) for each in columns])


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the schema of data files, without a copy."""
    columns = [
        column
        if column.type.equals(field.type)
        else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _physical_field(column: Column) -> pa.Field:
    metadata = None if column.field_id is None else {_FIELD_ID: str(column.field_id)}
    return pa.field(
        column.physical, _type(column.kind, physical=True), nullable=column.nullable, metadata=metadata
    )


def _type(kind: Kind, *, physical: bool = False) -> pa.DataType:
    if isinstance(kind, str):
        if match := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(match[1]), int(match[2]))
        return PRIMITIVES[kind]
    if isinstance(kind, Struct):
        if physical:
            return pa.struct([_physical_field(field) for field in kind.fields])
        return pa.struct(
            [pa.field(field.name, _type(field.kind), nullable=field.nullable) for field in kind.fields]
        )
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", _type(kind.element, physical=physical), nullable=kind.nullable))
    key, value = (_type(each, physical=physical) for each in (kind.key, kind.value))
    return pa.map_(key, pa.field("value", value, nullable=kind.nullable))


def by_partition(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each partition with its values, in the order of the rows within.

    Raises SchemaMismatch.
    """
    if not names:
        yield (), rows
        return
    codes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for name in names:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        # Codes are numbered again, so that many columns do not overflow them.
        codes = codes.dictionary_encode().indices.cast(pa.int64())
    order = pc.sort_indices(codes)
    ordered, start = rows.take(order), 0
    for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        part = ordered.slice(start, end - start)
        yield tuple([_value(part, name) for name in names]), part
        start = end


def _value(rows: pa.Table, name: str) -> Any:
    """Return the value of a partition column, the same in all rows. Raises SchemaMismatch."""
    try:
        return rows.column(name)[0].as_py()
    except (OverflowError, ValueError) as error:
        raise out_of_range(name, error) from error
