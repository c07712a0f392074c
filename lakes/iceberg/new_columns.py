"""New columns of an Iceberg table: one more schema, by a conditional change of the catalog as of a commit."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_name, sanitize_column_names
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
from pyiceberg.types import NestedField

from sluicegate.lakes.arrow import fits
from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.iceberg.catalog import Catalog, NoTable
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Metadata, NewSchema
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.writer import IcebergWriter
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.storage import Uncertain

_FIELD_ID: Final = "PARQUET:field_id"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_TOP: Final = -1
"""Parent of the columns in the library's changes of a name mapping."""
_RESERVED: Final = frozenset(
    (
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
        *("_last_updated_sequence_number", "_commit_snapshot_id", "_change_type", "_change_ordinal"),
    )
)
"""Names of the columns that readers of Iceberg add to the rows."""


def columns_of(metadata: Metadata, view: TableView) -> TableColumns:
    """Return the columns of the current schema. The content of a schema with an id never changes."""
    schema: pa.Schema = schema_to_pyarrow(view.schema, include_field_ids=False)
    version = f"{metadata.identity} {view.schema.schema_id} {_last_column_id(metadata, view)}"
    return TableColumns(schema, version)


def add_columns(catalog: Catalog, base: Metadata, view: TableView, columns: Sequence[pa.Field]) -> bool:
    """Commit a schema with the columns; return False if the table has changed since `base`.

    Raises as `EvolvesSchema.add_columns`.
    """
    change = _change(base, view, columns)
    _refuse_unsafe(base, view, change)
    try:
        return catalog.commit(base, change, {})
    except Uncertain as error:
        return _is_there(catalog, base, change, error)


def _is_there(catalog: Catalog, base: Metadata, change: NewSchema, error: Uncertain) -> bool:
    """Read back if an uncertain schema is there. Raises LakeUnavailable while it could still appear."""
    try:
        found = catalog.load()
    except NoTable:
        return False
    if found.identity != base.identity:
        return False
    if _parsed(change.schema) in [_parsed(each) for each in found.fields.get("schemas") or ()]:
        return True
    # A change that is still on its way is refused once another one has come first.
    if all(
        found.fields.get(name) == base.fields.get(name) for name in ("current-schema-id", "last-column-id")
    ):
        raise LakeUnavailable(str(error)) from error
    return False


def _parsed(schema: Mapping[str, Any]) -> Schema | None:
    try:
        return Schema.model_validate(schema)
    except ValueError:
        return None


def _change(base: Metadata, view: TableView, columns: Sequence[pa.Field]) -> NewSchema:
    """Return the next schema. All that this release does not know stays as it is."""
    numbers = count(_last_column_id(base, view) + 1)
    added = [_with_ids(column, numbers) for column in columns]
    raw = view.raw_schemas[view.schema.schema_id]
    fields = [*raw["fields"], *(json.loads(field.model_dump_json()) for field in added)]
    schema = {**raw, "schema-id": max(view.schemas) + 1, "fields": fields}
    _refuse_names(view, columns, schema)
    properties = _extended_mapping(base.properties, added)
    return NewSchema(schema, next(numbers) - 1, properties, time.time_ns() // 1_000_000)


def _last_column_id(metadata: Metadata, view: TableView) -> int:
    """Return the highest id that a column ever had. Ids of dropped columns are not used again."""
    return max(
        int(metadata.fields.get("last-column-id") or 0),
        *(schema.highest_field_id for schema in view.schemas.values()),
    )


def _with_ids(column: pa.Field, numbers: Iterator[int]) -> NestedField:
    """Return the column as the library's field. Raises SchemaMismatch for a type that Iceberg lacks."""
    try:
        # The types that only version 3 has cannot be written.
        schema = pyarrow_to_schema(pa.schema([_numbered(column, numbers)]), format_version=2)
        (back,) = schema_to_pyarrow(schema, include_field_ids=False)
        # A type that comes back as a narrower one would be added, and then take no rows.
        if fits(column.type, back.type):
            (field,) = schema.fields
            return field
    except (UnsupportedPyArrowTypeException, ValueError):
        pass
    raise SchemaMismatch(
        f"Iceberg has no type for the new column {column.name} ({column.type}); convert it to another type"
    )


def _numbered(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    metadata = {_FIELD_ID: str(next(numbers))}
    return pa.field(field.name, _numbered_type(field.type, numbers), field.nullable, metadata)


def _numbered_type(kind: pa.DataType, numbers: Iterator[int]) -> pa.DataType:
    types = pa.types
    if types.is_list(kind):
        return pa.list_(_numbered(kind.value_field, numbers))
    if types.is_map(kind):
        return pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    if types.is_struct(kind):
        if not kind.num_fields:
            raise ValueError("Parquet cannot store a group without fields")
        return pa.struct([_numbered(field, numbers) for field in kind])
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    return kind


def _refuse_names(view: TableView, columns: Sequence[pa.Field], schema: Mapping[str, Any]) -> None:
    """Raise SchemaMismatch for names with which readers could not open the table."""
    for column in columns:
        if not column.name or column.name in _RESERVED:
            raise SchemaMismatch(
                f"the new column {column.name!r} has no name, or one of Iceberg's own; give it another name"
            )
    try:
        parsed = Schema.model_validate(schema)
        names = index_by_name(parsed)
        unique = len({field.name for field in sanitize_column_names(parsed).fields}) == len(parsed.fields)
    except ValueError:
        unique = False
    if not unique:
        listed = ", ".join(column.name for column in columns)
        raise SchemaMismatch(
            f"the new columns ({listed}) make two names equal: a.b is also the field b of a column a, and in "
            "data files, signs are replaced by codes; give the new column another name"
        )
    known = set(index_by_name(view.schema))
    for field in (field for spec in view.specs.values() for field in spec.fields):
        if field.name in names and field.name not in known:
            raise SchemaMismatch(
                f"the new column {field.name} has the name of a partition field; give it another name"
            )


def _refuse_unsafe(base: Metadata, view: TableView, change: NewSchema) -> None:
    """Raise SchemaMismatch if the table would be out of scope with the columns."""
    try:
        later = TableView(base.after(change, base.next_location(change)))
        IcebergWriter(later, Files().folder(later.data_location), None, None)
    except TableRefused as error:
        raise SchemaMismatch(
            f"no column is added to {view.event_location}, which would be out of scope then: {error}. "
            "Convert the column to another type"
        ) from error


def _extended_mapping(properties: Mapping[str, str], added: Sequence[NestedField]) -> dict[str, str]:
    """Return the mapping of names to ids with the columns, if the table has one that can be read."""
    text = properties.get(_NAME_MAPPING)
    if text is None:
        return {}
    try:
        mapping = update_mapping(parse_mapping_from_json(text), {}, {_TOP: list(added)})
    except ValueError:
        # Iceberg's own libraries leave such a mapping as it is, too.
        return {}
    return {_NAME_MAPPING: mapping.model_dump_json()}
