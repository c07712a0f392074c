"""Conversion of Arrow record batches to a table's schema, if it is lossless.

Every value is looked at, since nobody does after a commit: readers fail at text that is not UTF-8, or find
null where the table promises a value. Arrow trusts the types of its arrays, and checks neither.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.port import SchemaMismatch
from sluicegate.texts import counted

_PANDAS_INDEX: Final = "__index_level_"
LOCAL_TIMES: Final = {b"sluicegate.times": b"local"}
"""Metadata of rows whose times without a zone are those of a zone that is not known here."""


class _Unfit(Exception):
    """Values of a column that cannot be stored; the text names the column, and the reason."""


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's columns, in the table's order and types.

    Nullable columns may be absent. Integers and floats are widened. Timestamps change their unit if no digit
    is lost. Timestamps without a zone count as UTC, also in a table whose column has no zone; rows with the
    metadata LOCAL_TIMES are refused in a column with one. Raises SchemaMismatch with the names of all columns
    that do not fit.
    """
    # Arrow makes the list of names anew each time: with thousands of columns, that is most of the work.
    named, known, metadata = Counter(batch.schema.names), frozenset(schema.names), batch.schema.metadata
    unknown = [field for field in batch.schema if field.name not in known]
    twice = sorted(name for name, number in named.items() if number > 1)
    problems = [f"the table has no column {field.name}" for field in unknown]
    problems += [f"the column {name} is there twice" for name in twice]
    arrays = []
    for field in schema:
        if named[field.name] == 1:
            array, problem = _fit(batch.column(field.name), field)
            problem = zone_problem(batch.schema.field(field.name), field, metadata) or problem
        else:
            array, problem = _absent(field, batch.num_rows)
        arrays.append(array)
        if problem is not None and field.name not in twice:
            problems.append(problem)
    if problems:
        missing = [field.name for field in schema if not named[field.name]]
        remedy = f". {_remedy(unknown, missing, schema.names)}" if unknown else ""
        raise SchemaMismatch("the rows do not fit the table: " + "; ".join(problems) + remedy)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def require_values(batch: pa.RecordBatch, defaults: Sequence[str], *, nulls: bool) -> None:
    """Check that rows have all columns with a default value, which no writer here computes.

    `nulls`: null is a value of these columns; other writers do not put the default in its place. Raises
    SchemaMismatch.
    """
    for name in defaults:
        at = batch.schema.get_all_field_indices(name)
        number = sum(batch.column(place).null_count for place in at)
        if at and (nulls or not number):
            continue
        problem = f"are null in {counted(number, 'row')}" if at else "are not in the rows"
        raise SchemaMismatch(
            f"values of the column {name} {problem}. The column has a default value in the table, which is "
            "not computed here. Write its values"
        )


def looks_renamed(missing: Sequence[str]) -> str:
    """Return the reason, with the way out, of rows that have columns of their own in place of the table's."""
    return (
        f"the rows lack the table's columns ({', '.join(missing)}), as if these had been renamed; give the "
        "columns of the rows the table's names, or rename those of the table with its own tools"
    )


def _remedy(unknown: Sequence[pa.Field], missing: Sequence[str], names: Sequence[str]) -> str:
    """Return the way out for columns that the table lacks. Only columns that can be added are to be added.

    `missing`: columns of the table that the rows lack. `names`: all of the table.
    """
    listed = ", ".join(dict.fromkeys(field.name for field in unknown))
    refused = [text for field in unknown for text in never_added(field, names)]
    if refused:
        return "; ".join(dict.fromkeys(refused))
    if missing:
        renamed = looks_renamed(missing)
        return renamed[0].upper() + renamed[1:]
    return f"Leave {listed} out of the rows, or set evolve to add-columns"


def never_added(field: pa.Field, names: Sequence[str]) -> list[str]:
    """Return the reasons why a column of rows can be added to no table with columns of these names."""
    found = differing_in_case(field, names)
    if field.name.startswith(_PANDAS_INDEX):
        found.append(
            f"the column {field.name} is the index of a data frame of pandas; leave it out with "
            "reset_index(drop=True), or give the index a name to keep it"
        )
    if _has_variant(field.type):
        found.append(
            f"the column {field.name} is a VARIANT, which no format here gets as a new column; convert it, "
            "such as with to_json, or leave it out"
        )
    if not field.nullable:
        found.append(
            f"the new column {field.name} is not nullable, but older rows have no value; make it nullable in "
            "the rows, or add it to the table with the table's own tools"
        )
    if _has_untyped(field.type):
        found.append(f"the new column {field.name} has no type ({field.type}); convert it to one")
    return found


def differing_in_case(field: pa.Field, names: Sequence[str]) -> list[str]:
    """Compare names without their case, as most engines do."""
    return [
        f"the new column {field.name} differs from the column {name} only in its case; give it another name, "
        f"or the name {name}"
        for name in names
        if name != field.name and name.casefold() == field.name.casefold()
    ]


def out_of_range(field: str, error: Exception) -> SchemaMismatch:
    """Return the error of rows whose partition has a value that no text can name."""
    return SchemaMismatch(
        f"the rows have a value of the partition field {field} that is out of range: {error}. Dates and "
        "times of partitions are from the year 1 to 9999. Correct the rows, or partition by another field"
    )


def _has_variant(kind: pa.DataType) -> bool:
    """True for values of Spark's VARIANT, which arrive as structs with a mark."""
    return any(
        part.name == "metadata" and (part.metadata or {}).get(b"variant") == b"true" for part in _parts(kind)
    ) or any(_has_variant(part.type) for part in _parts(kind))


def _has_untyped(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind)) or any(_has_untyped(part.type) for part in _parts(kind))


def zone_problem(field: pa.Field, in_table: pa.Field, metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return the reason why times of rows with this metadata do not fit a column; None if there is none."""
    if not metadata or not LOCAL_TIMES.items() <= metadata.items():
        return None
    if not _gets_a_zone(field.type, in_table.type):
        return None
    return (
        f"the column {field.name} has times without a zone (TIMESTAMP_NTZ), and the table's has one: Spark "
        "casts them by the time zone of the session, which its tasks do not see. Cast them in the query: "
        f"CAST({field.name} AS TIMESTAMP)"
    )


def _gets_a_zone(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return source.tz is None and target.tz is not None
    inside = zip(_parts(source), _parts(target), strict=False)
    return any(_gets_a_zone(one.type, other.type) for one, other in inside)


def _absent(field: pa.Field, rows: int) -> tuple[pa.Array, str | None]:
    if not field.nullable:
        return None, f"the column {field.name} must not be null, but is missing"
    return _nulls(field.type, rows), None


def _fit(column: pa.Array, field: pa.Field) -> tuple[pa.Array, str | None]:
    if not fits(column.type, field.type):
        return None, f"the column {field.name} is {field.type} in the table, and {column.type} in the rows"
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return None, (
            f"the column {field.name} has values that are none of its type {column.type}, at which readers "
            f"would fail: {error}. Correct the values, or make them null"
        )
    try:
        found = _converted(column, field.type, field.name)
        _refuse_nulls(found, field, field.name, None)
    except _Unfit as error:
        return None, str(error)
    except (pa.ArrowException, OverflowError) as error:
        return None, f"the column {field.name} cannot be stored as {field.type}: {error}"
    return found, None


def _refuse_nulls(column: pa.Array, field: pa.Field, path: str, parents: pa.Array | None) -> None:
    """Raise _Unfit for nulls of a required field, except in rows whose parent is null."""
    if field.nullable or not column.null_count:
        return
    missing = column.is_null()
    count = pc.sum(missing if parents is None else pc.and_(missing, parents.is_valid())).as_py() or 0
    if count:
        raise _Unfit(f"the column {path} must not be null, but {count} values are")


def _converted(column: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return an array of the target type, whose required fields have values wherever their parents do."""
    source, types = column.type, pa.types
    if types.is_null(source):
        return _nulls(target, len(column))
    if types.is_dictionary(source):
        # Not every type of values has a kernel that decodes, so they are converted first.
        values = _converted(column.dictionary, target, path)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if source.equals(target) and not _has_required(target):
        return column
    if types.is_struct(target) and target.num_fields:
        return _struct(column, target, path)
    if types.is_map(target):
        return _map(column, target, path)
    if _is_list(target):
        offsets, values = _elements(column)
        element = target.value_field
        values = _filled(_part(values, element, f"{path}.{element.name}", None), element)
        return _list_class(target).from_arrays(offsets, values, type=target, mask=_mask(column))
    if types.is_timestamp(source) and types.is_timestamp(target) and source.tz != target.tz:
        # The cast goes through plain integers, so that adding or removing a zone never shifts the time.
        column = column.cast(pa.int64()).cast(pa.timestamp(source.unit)).cast(pa.timestamp(target.unit))
        return column.cast(pa.int64()).cast(target)
    return column.cast(target, safe=True)


def _struct(column: pa.Array, target: pa.StructType, path: str) -> pa.Array:
    parts = []
    # In flattened fields, a row is null below a null parent, whatever bytes the producer has left there.
    for inner, field in zip(column.flatten(), target, strict=True):
        parts.append(_filled(_part(inner, field, f"{path}.{field.name}", column), field))
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=_mask(column))


def _map(column: pa.Array, target: pa.MapType, path: str) -> pa.Array:
    source = column.type
    entries = pa.struct([pa.field("key", source.key_type), pa.field("value", source.item_type)])
    offsets, found = _elements(column.view(pa.list_(entries)))
    keys = _part(found.field(0), target.key_field, f"{path}.key", None)
    items = _filled(_part(found.field(1), target.item_field, f"{path}.value", None), target.item_field)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_mask(column))


def _part(column: pa.Array, field: pa.Field, path: str, parents: pa.Array | None) -> pa.Array:
    found = _converted(column, field.type, path)
    _refuse_nulls(found, field, path, parents)
    return found


def _elements(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets and the values of lists, without those that a null or a slice hides."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return offsets.cast(pa.int32()), column.flatten()


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _filled(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a required field without nulls: below a null parent, Parquet's writer wants some value too."""
    if field.nullable or not column.null_count:
        return column
    places = pa.array(range(len(column)), pa.int64())
    places = pc.if_else(column.is_valid(), places, len(column))
    return pa.concat_arrays([column, _zeros(field.type, 1)]).take(places)


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Return nulls of a type; structs among them have values in their required fields."""
    if not pa.types.is_struct(kind) or not _has_required(kind):
        return pa.nulls(rows, kind)
    parts = [_nulls(field.type, rows) if field.nullable else _zeros(field.type, rows) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([True] * rows, pa.bool_()))


def _zeros(kind: pa.DataType, rows: int) -> pa.Array:
    """Return values whose bytes are zero: 0, an empty text, an empty list."""
    types = pa.types
    if types.is_struct(kind):
        return pa.StructArray.from_arrays([_zeros(field.type, rows) for field in kind], fields=list(kind))
    if types.is_nested(kind):
        return pa.array([[]] * rows, kind)
    if types.is_string(kind) or types.is_binary(kind):
        return pa.array([b""] * rows, pa.binary()).cast(kind)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return pa.array([b""] * rows, pa.large_binary()).cast(kind)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(rows * max(8, kind.bit_width)))])


def _has_required(kind: pa.DataType) -> bool:
    """True if a part of a type must not be null. Keys of maps never are."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _has_required(kind.key_type) or _has_required(kind.item_type)
    return any(not part.nullable or _has_required(part.type) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if every value of the source type can be represented in the target type."""
    types = pa.types
    if source.equals(target) or types.is_null(source):
        return True
    if types.is_dictionary(source):
        return fits(source.value_type, target)
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
        return same and all(fits(one.type, other.type) for one, other in zip(source, target, strict=True))
    if types.is_map(source) and types.is_map(target):
        return fits(source.key_type, target.key_type) and fits(source.item_type, target.item_type)
    if _is_list(source) and _is_list(target):
        return fits(source.value_type, target.value_type)
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _list_class(kind: pa.DataType) -> Any:
    return pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    fixed = types.is_fixed_size_binary(kind)
    return bool(fixed or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))
