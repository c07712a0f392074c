"""New columns of a Paimon table: the next schema file, which is put only if its number is free."""

import json
import time
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pypaimon.schema.data_types import AtomicInteger, PyarrowFieldParser, reassign_field_id
from pypaimon.schema.table_schema import TableSchema

from sluicegate.lakes.arrow import fits
from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.paimon.table import SchemaTable, Table, out_of_scope
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain

_BEFORE_PARTITION: Final = "add-column-before-partition"
_SYSTEM_NAMES: Final = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_ROW_ID", "_LEVEL", "rowkind")
_SYSTEM_PREFIX: Final = "_KEY_"


def read_columns(table: Table) -> TableColumns:
    """Return the columns of the newest schema. Raises TableRefused or LakeUnavailable."""
    newest = table.newest()
    schema = PyarrowFieldParser.from_paimon_schema(newest.fields).remove_metadata()
    return TableColumns(schema, f"{table.identity()} {newest.table_schema.id}")


def add_columns(storage: Storage, columns: Sequence[pa.Field], seen: TableColumns) -> bool:
    """Put the schema that follows the one that was seen. Raises as `EvolvesSchema.add_columns`."""
    table = Table(storage)
    newest = table.newest()
    before, number = newest.table_schema, int(newest.table_schema.id)
    if f"{table.identity()} {number}" != seen.version:
        return False
    content = storage.read(_file(number))
    if content is None:
        raise LakeUnavailable(f"{storage.uri}: schema {number} is gone")
    following = _following(json.loads(content), before, columns)
    reason = out_of_scope(SchemaTable(storage.root, TableSchema.from_json(following)))
    if reason is not None:
        raise SchemaMismatch(
            f"no column is added to {storage.uri}, which would be out of scope then: {reason}. Convert the "
            "column to another type"
        )
    try:
        return storage.put_if_absent(_file(number + 1), following.encode())
    except Uncertain as error:
        raise LakeUnavailable(str(error)) from error
    except CannotPut as error:
        raise TableRefused(str(error)) from error


def _file(number: int) -> str:
    return f"schema/schema-{number}"


def _following(raw: dict[str, Any], before: TableSchema, columns: Sequence[pa.Field]) -> str:
    """Return the next schema as JSON. All that this release does not know stays as it is."""
    highest = AtomicInteger(before.highest_field_id)
    added = [_field(column, highest) for column in columns]
    fields = list(raw["fields"])
    at = len(fields)
    if str(before.options.get(_BEFORE_PARTITION, "false")).lower() == "true":
        keys = [place for place, each in enumerate(fields) if each["name"] in before.partition_keys]
        at = min(keys, default=at)
    changed = {
        "id": before.id + 1,
        "fields": [*fields[:at], *added, *fields[at:]],
        "highestFieldId": highest.get(),
        "timeMillis": time.time_ns() // 1_000_000,
    }
    return json.dumps({**raw, **changed}, ensure_ascii=False, indent=2)


def _field(column: pa.Field, highest: AtomicInteger) -> dict[str, Any]:
    """Return a field with the next free ids. Raises SchemaMismatch if Paimon cannot take it."""
    if column.name in _SYSTEM_NAMES or column.name.startswith(_SYSTEM_PREFIX):
        raise SchemaMismatch(
            f"Paimon has a column {column.name} of its own; give the new column {column.name} another name"
        )
    try:
        kind = PyarrowFieldParser.to_paimon_type(column.type, True)
        back = PyarrowFieldParser.from_paimon_type(kind)
    except ValueError:
        back = None
    # A type that comes back as a narrower one would be added, and then take no rows.
    if back is None or not fits(column.type, back) or "VARIANT" in str(kind):
        raise SchemaMismatch(
            f"Paimon has no type for the new column {column.name} ({column.type}); convert it to another type"
        )
    number = highest.increment_and_get()
    return {"id": number, "name": column.name, "type": reassign_field_id(kind, highest).to_dict()}
