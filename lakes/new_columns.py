"""Columns that rows have gained: the rule which of them a table of any format gets, and their addition.

A writer adds them before it opens a file. Many writers meet the same new column at once: the first one adds
it, the others find it.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sluicegate.lakes.arrow import differing_in_case, fits, looks_renamed, never_added, zone_problem
from sluicegate.lakes.capabilities import evolving
from sluicegate.lakes.port import Adapter, SchemaMismatch, TableRef

_log = logging.getLogger(__name__)

_SIGNED: Final = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}
"""By the width of an unsigned integer in bits, the type that has all its values."""


def evolve(adapter: Adapter, table: TableRef, rows: pa.Schema) -> None:
    """Add the columns that the table lacks, unless the rows differ from it in any other way too.

    Rows without new columns are not examined: their writer does that. Raises SchemaMismatch, TableRefused or
    LakeUnavailable. After each of them, a repetition is safe.
    """
    able = evolving(adapter)
    seen = able.read_columns(table)
    added = gained(rows, seen.schema)
    while added:
        if able.add_columns(table, added, seen):
            names = ", ".join(field.name for field in added)
            _log.info("columns were added to the table %s: %s", table.name, names)
            return
        # Another writer has changed the schema, perhaps by the same columns.
        seen = able.read_columns(table)
        added = still_missing(added, seen.schema)


def gained(rows: pa.Schema, table: pa.Schema) -> list[pa.Field]:
    """Return the columns that only the rows have, in their order, nullable and with types of `storable`.

    Raises SchemaMismatch with all reasons if there are such columns, and the schemas differ otherwise too.
    """
    known = [*table.names, *rows.names]
    added = _besides(rows, table)
    if not added:
        return []
    problems = [
        *_twice(rows),
        *_changed(rows, table),
        *_missing(rows, table, added),
        *(text for field in added for text in never_added(field, known)),
    ]
    if problems:
        raise SchemaMismatch(f"no column is added to the table ({_listed(added)}): " + "; ".join(problems))
    return [_column(field) for field in added]


def still_missing(added: Sequence[pa.Field], table: pa.Schema) -> list[pa.Field]:
    """Return those of the columns that the table still lacks, after another writer has changed its schema.

    Raises SchemaMismatch if that writer has added a column of the same name and another type.
    """
    found, known = pa.schema(added), table.names
    problems = [
        *_changed(found, table),
        *(text for field in added for text in differing_in_case(field, known)),
    ]
    if problems:
        raise SchemaMismatch("another writer has changed the table at the same time: " + "; ".join(problems))
    return _besides(found, table)


def _besides(columns: pa.Schema, others: pa.Schema) -> list[pa.Field]:
    """Return the columns whose names the others lack."""
    names = frozenset(others.names)
    return [field for field in columns if field.name not in names]


def storable(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column for values of this type; itself if it is no variant of another type.

    Variants are dictionaries, large and view types, unsigned integers, and half floats, at any depth.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return storable(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_unsigned_integer(kind):
        return _SIGNED.get(kind.bit_width, kind)
    if types.is_float16(kind):
        return pa.float32()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_part(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_part(kind.key_field), _part(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_part(field) for field in kind])
    return kind


def _part(field: pa.Field) -> pa.Field:
    """Return the field of a nested type. Its metadata is of the rows, not of the table."""
    return pa.field(field.name, storable(field.type), field.nullable)


def _column(field: pa.Field) -> pa.Field:
    return pa.field(field.name, storable(field.type))


def _twice(rows: pa.Schema) -> list[str]:
    twice = sorted(name for name, number in Counter(rows.names).items() if number > 1)
    return [f"the rows have the column {name} twice; leave one out" for name in twice]


def _changed(rows: pa.Schema, table: pa.Schema) -> list[str]:
    """Compare the types of the columns that both have."""
    names = frozenset(table.names)
    both = [(field, table.field(field.name)) for field in rows if field.name in names]
    zones = [zone_problem(field, there, rows.metadata) for field, there in both]
    return [text for text in zones if text is not None] + [
        f"the column {there.name} is {there.type} in the table, and {field.type} in the rows; convert these "
        f"to {there.type}, or change the column with the table's own tools"
        for field, there in both
        if not fits(field.type, there.type)
    ]


def _missing(rows: pa.Schema, table: pa.Schema, added: Sequence[pa.Field]) -> list[str]:
    """Refuse rows that have lost columns while they gained others: a renamed column looks like that."""
    missing = _besides(table, rows)
    return [looks_renamed([field.name for field in missing])] if missing else []


def _listed(fields: Sequence[pa.Field]) -> str:
    return ", ".join(field.name for field in fields)
