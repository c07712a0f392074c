"""New columns of a Delta table: the next version of its log, which is put only if its number is free."""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.delta.features import (
    TIMESTAMPS_WITHOUT_ZONE,
    keeps_changes,
    open_in_scope,
    out_of_scope,
    supports,
    tracks_rows,
)
from sluicegate.lakes.delta.log import FOLDER, Log, Metadata, State, commit_name, read_metadata
from sluicegate.lakes.delta.schema import MAPPED_ID, PHYSICAL_NAME, read_schema
from sluicegate.lakes.delta.versions import WRITER, in_commit_time
from sluicegate.lakes.delta.writer import PRIMITIVES, DeltaWriter, logical_schema
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain

_HIGHEST_ID: Final = "delta.columnMapping.maxColumnId"
_NAMES: Final = {kind: name for name, kind in PRIMITIVES.items()}
_MOST_DIGITS: Final = 38
_NOT_IN_FILES: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Spark refuses in the names of columns in data files."""
_OF_CHANGES: Final = ("_change_type", "_commit_version", "_commit_timestamp")
_OF_ROWS: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""Properties with the names of columns that rewritten files have."""


def read_columns(storage: Storage) -> TableColumns:
    """Return the newest columns. Raises TableRefused or LakeUnavailable."""
    state = open_in_scope(storage)
    # The process that put the newest version may have died before its name was durable.
    storage.settle(FOLDER)
    return TableColumns(logical_schema(read_schema(state.metadata).columns), _version(state))


def add_columns(storage: Storage, columns: Sequence[pa.Field], seen: TableColumns) -> bool:
    """Put the version that follows the newest one. Raises as `EvolvesSchema.add_columns`."""
    state = open_in_scope(storage)
    if _version(state) != seen.version:
        return False
    added = _Additions(state).fields(columns)
    metadata = read_metadata(_widened(state.metadata, added))
    _refuse_unsafe(storage, replace(state, metadata=metadata))
    number, content = state.version + 1, _render(state, metadata, added)
    try:
        put = storage.put_if_absent(commit_name(number), content)
    except Uncertain as error:
        put = _is_there(storage, number, content, error)
    except CannotPut as error:
        raise TableRefused(str(error)) from error
    # A number that clean-up has deleted is free again, but no reader uses its version.
    return put and Log(storage).follows(state)


def _version(state: State) -> str:
    """Return a text for everything that an addition depends on."""
    metadata, protocol = state.metadata, state.protocol
    said = [
        *(metadata.schema, metadata.partition_columns, sorted(metadata.configuration.items())),
        *(protocol.reader, protocol.writer),
        *(sorted(protocol.reader_features), sorted(protocol.writer_features)),
    ]
    return f"{metadata.id} {hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]}"


def _is_there(storage: Storage, number: int, content: bytes, error: Uncertain) -> bool:
    """Read back if an uncertain version is this one. Raises LakeUnavailable while no version is there."""
    there = storage.read(commit_name(number))
    if there is None:
        raise LakeUnavailable(str(error)) from error
    storage.settle(FOLDER)
    return there == content


def _refuse_unsafe(storage: Storage, after: State) -> None:
    """Raise SchemaMismatch if the table would be out of scope with the columns."""
    reason = out_of_scope(after.protocol, after.metadata)
    if reason is None:
        try:
            DeltaWriter(storage, after, None, None)
        except TableRefused as error:
            reason = str(error)
    if reason is not None:
        raise SchemaMismatch(
            f"no column is added to {storage.uri}, which would be out of scope then: {reason}. Convert the "
            "column to another type"
        )


def _widened(before: Metadata, added: "_Added") -> dict[str, Any]:
    """Return the action with the columns. All that this release does not know stays as it is."""
    schema = json.loads(before.schema)
    widened = {**schema, "fields": [*schema["fields"], *added.fields]}
    found = {key: value for key, value in before.fields.items() if value is not None}
    found["schemaString"] = json.dumps(widened, separators=(",", ":"), ensure_ascii=False)
    if added.highest is not None:
        found["configuration"] = {**(found.get("configuration") or {}), _HIGHEST_ID: str(added.highest)}
    return found


def _render(state: State, metadata: Metadata, added: "_Added") -> bytes:
    """Return the content of the version. Raises TableRefused if the log lacks something that it needs."""
    now_ms = time.time_ns() // 1_000_000
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": "ADD COLUMNS",
        "operationParameters": {"columns": json.dumps([{"column": field} for field in added.fields])},
        "readVersion": state.version,
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": WRITER,
        "txnId": str(uuid.uuid4()),
    }
    if tracks_rows(state.protocol, state.metadata):
        info["tags"] = {"delta.rowTracking.preserved": "true"}
    actions = [{"commitInfo": info | in_commit_time(state, now_ms)}, {"metaData": metadata.fields}]
    lines = [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in actions]
    return "".join(f"{line}\n" for line in lines).encode()


class _Added(NamedTuple):
    """New columns in the form of a schema."""

    fields: Sequence[Mapping[str, Any]]
    highest: int | None
    """The highest id of a column; None without column mapping."""


class _Additions:
    """Conversion of new columns for one state of a table."""

    def __init__(self, state: State) -> None:
        """Read how the table names columns. Raises TableRefused if it lacks the highest id."""
        self._state = state
        self._mapped = read_schema(state.metadata).mode != "none"
        self._highest = _highest_id(state.metadata) if self._mapped else None

    def fields(self, columns: Sequence[pa.Field]) -> _Added:
        """Return the columns as fields. Raises SchemaMismatch for a name or type that does not fit."""
        configuration = self._state.metadata.configuration
        taken = {configuration.get(name, "").lower() for name in _OF_ROWS} - {""}
        if keeps_changes(self._state.metadata):
            taken.update(_OF_CHANGES)
        for column in columns:
            if column.name.lower() in taken:
                raise SchemaMismatch(
                    f"the table has a hidden column {column.name} for its changes; give the new column "
                    f"{column.name} another name"
                )
        return _Added([self._field(column, column) for column in columns], self._highest)

    def _field(self, field: pa.Field, column: pa.Field) -> dict[str, Any]:
        """Return a field of a new column, or the column itself. All parts are nullable, as Spark has them."""
        if not field.name or (not self._mapped and _NOT_IN_FILES.search(field.name)):
            raise SchemaMismatch(
                f"the new column {column.name} has the name {field.name!r}, which is empty or has a space or "
                "one of ,;{}()=. Without column mapping, Delta takes no such name; give it another name"
            )
        said: dict[str, Any] = {}
        if self._highest is not None:
            self._highest += 1
            said = {MAPPED_ID: self._highest, PHYSICAL_NAME: f"col-{uuid.uuid4()}"}
        return {
            "name": field.name,
            "type": self._type(field.type, column),
            "nullable": True,
            "metadata": said,
        }

    def _type(self, kind: pa.DataType, column: pa.Field) -> Any:
        types = pa.types
        if types.is_list(kind):
            element = self._type(kind.value_type, column)
            return {"type": "array", "elementType": element, "containsNull": True}
        if types.is_map(kind):
            key, value = self._type(kind.key_type, column), self._type(kind.item_type, column)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if types.is_struct(kind) and _differ([field.name for field in kind]):
            return {"type": "struct", "fields": [self._field(field, column) for field in kind]}
        name = _primitive(kind)
        if name is None:
            raise SchemaMismatch(
                f"Delta has no type for the new column {column.name} ({column.type}); convert it to another "
                "type"
            )
        if name == "timestamp_ntz" and not supports(self._state.protocol, TIMESTAMPS_WITHOUT_ZONE):
            raise SchemaMismatch(
                f"the new column {column.name} has times without a zone ({column.type}), and the table lacks "
                f"the feature {TIMESTAMPS_WITHOUT_ZONE}; give the times a zone, or add the feature to the "
                "table with Spark"
            )
        return name


def _primitive(kind: pa.DataType) -> str | None:
    """Return Delta's type that has all values of a type without parts, None if there is none."""
    types = pa.types
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        fits = 0 <= kind.scale <= kind.precision <= _MOST_DIGITS
        return f"decimal({kind.precision},{kind.scale})" if fits else None
    if types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return "binary" if types.is_fixed_size_binary(kind) else _NAMES.get(kind)


def _differ(names: Sequence[str]) -> bool:
    """Return True if there are names, and no two differ only in their case."""
    return 0 < len(names) == len({name.casefold() for name in names})


def _highest_id(metadata: Metadata) -> int:
    text = metadata.configuration.get(_HIGHEST_ID, "")
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise TableRefused(
            f"the table maps its columns, but its property {_HIGHEST_ID} = {text!r} is no number, so new "
            "columns get no ids. Add the columns to the table with Spark, and set evolve to never"
        )
    return max(int(text), *(column.field_id or 0 for column in read_schema(metadata).all_columns()))
