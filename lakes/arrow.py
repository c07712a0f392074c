"""Conversion of Arrow record batches to a table's schema, if it is lossless."""

import pyarrow as pa

from sluicegate.lakes.port import SchemaMismatch


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's columns, in the table's order and types.

    Nullable columns may be absent. Integers and floats are widened. Timestamps change their unit if no digit
    is lost. Timestamps without a zone count as UTC, also in a table whose column has no zone. Raises
    SchemaMismatch with the names of all columns that do not fit.
    """
    if batch.schema.equals(schema) and all(
        field.nullable or not column.null_count for field, column in zip(schema, batch.columns, strict=True)
    ):
        return batch
    names = batch.schema.names
    unknown = [name for name in names if name not in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [f"the table has no column {name}" for name in unknown]
    problems += [f"the column {name} is there twice" for name in twice]
    arrays = []
    for field in schema:
        if names.count(field.name) == 1:
            array, problem = _fit(batch.column(field.name), field)
        else:
            array, problem = _absent(field, batch.num_rows)
        arrays.append(array)
        if problem is not None and field.name not in twice:
            problems.append(problem)
    if problems:
        raise SchemaMismatch("the rows do not fit the table: " + "; ".join(problems))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _absent(field: pa.Field, rows: int) -> tuple[pa.Array, str | None]:
    if not field.nullable:
        return None, f"the column {field.name} must not be null, but is missing"
    return pa.nulls(rows, field.type), None


def _fit(column: pa.Array, field: pa.Field) -> tuple[pa.Array, str | None]:
    if not field.nullable and column.null_count:
        return None, f"the column {field.name} must not be null, but {column.null_count} values are"
    if column.type.equals(field.type):
        return column, None
    if not _fits(column.type, field.type):
        return None, f"the column {field.name} is {field.type} in the table, not {column.type}"
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return _cast(column, field.type), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return None, f"the column {field.name} cannot be stored as {field.type}: {error}"


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    source = column.type
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and source.tz != target.tz:
        # The cast goes through plain integers, so that adding or removing a zone never shifts the time.
        column = column.cast(pa.int64()).cast(pa.timestamp(source.unit)).cast(pa.timestamp(target.unit))
        return column.cast(pa.int64()).cast(target)
    return column.cast(target, safe=True)


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if every value of the source type can be represented in the target type."""
    types = pa.types
    if source.equals(target) or types.is_null(source):
        return True
    if types.is_dictionary(source):
        return _fits(source.value_type, target)
    if types.is_integer(source) or types.is_floating(source):
        return _widens(source, target)
    # A target without a zone stores UTC, so a source with another zone is refused.
    if types.is_timestamp(source) and types.is_timestamp(target):
        return target.tz is not None or source.tz in (None, "UTC", "Etc/UTC", "+00:00")
    if types.is_decimal(source) and types.is_decimal(target):
        digits = target.precision - target.scale
        return bool(source.scale <= target.scale and source.precision - source.scale <= digits)
    if _is_text(source) or _is_binary(source):
        return _is_text(target) if _is_text(source) else _is_binary(target)
    return _nested_fits(source, target)


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(source) and types.is_signed_integer(target):
        room = target.bit_width - (0 if types.is_signed_integer(source) else 1)
        return bool(source.bit_width <= room)
    both = types.is_floating(source) and types.is_floating(target)
    return bool(both and source.bit_width <= target.bit_width)


def _nested_fits(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(source) and types.is_struct(target):
        same = [field.name for field in source] == [field.name for field in target]
        return same and all(_fits(one.type, other.type) for one, other in zip(source, target, strict=True))
    if types.is_map(source) and types.is_map(target):
        return _fits(source.key_type, target.key_type) and _fits(source.item_type, target.item_type)
    lists = (types.is_list, types.is_large_list)
    if any(is_list(source) for is_list in lists) and any(is_list(target) for is_list in lists):
        return _fits(source.value_type, target.value_type)
    return False


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    fixed = types.is_fixed_size_binary(kind)
    return bool(fixed or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))
