"""Schemas of Delta tables: columns with their physical names, from the JSON of the table's metadata."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from sluicegate.lakes.delta.actions import Malformed, Metadata

MODE: Final = "delta.columnMapping.mode"
MAPPED_ID: Final = "delta.columnMapping.id"
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_DEEPEST: Final = 50
"""Levels of nested columns. The schema comes from outside, and is walked by recursion."""

Kind: TypeAlias = "str | Struct | Array | Map"
"""Type of a column: the name of a primitive one, or a nested one."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a nested one."""

    name: str
    physical: str
    """Name in data files, statistics and partition values."""
    field_id: int | None
    """Id in data files, for a table with column mapping."""
    kind: Kind
    nullable: bool
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Struct:
    """A group of fields."""

    fields: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list."""

    element: Kind
    nullable: bool


@dataclass(frozen=True, slots=True)
class Map:
    """A map."""

    key: Kind
    value: Kind
    nullable: bool
    """True if values may be null."""


@dataclass(frozen=True)
class TableSchema:
    """Columns of a table, and its partition columns."""

    columns: tuple[Column, ...]
    partition_names: tuple[str, ...]
    mode: str
    """Of column mapping: none, name or id."""

    @cached_property
    def partitions(self) -> tuple[Column, ...]:
        """The partition columns, in the order of the partitioning."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.partition_names)

    @cached_property
    def data(self) -> tuple[Column, ...]:
        """The columns of data files."""
        return tuple(column for column in self.columns if column.name not in self.partition_names)

    @cached_property
    def id(self) -> int:
        """A number of everything that a file depends on. Delta itself numbers no schemas."""
        said = [self.mode, [column.physical for column in self.partitions], _described(self.columns)]
        text = json.dumps(said, separators=(",", ":"))
        # JSON readers of other languages hold integers of 53 bits.
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 12

    def all_columns(self) -> Iterator[Column]:
        """Yield all columns, with the fields of nested ones."""
        for column in self.columns:
            yield from _with_nested(column)


def read_schema(metadata: Metadata) -> TableSchema:
    """Return the schema of a table. Raises Malformed."""
    mode = metadata.configuration.get(MODE, "none").lower()
    try:
        parsed = json.loads(metadata.schema)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the schema of the table is no JSON: {error}") from error
    schema = _kind(parsed, 0, mapped=mode != "none")
    if not isinstance(schema, Struct):
        raise Malformed("the schema of the table is no struct")
    names = [column.name for column in schema.fields]
    if len({name.lower() for name in names}) < len(names):
        raise Malformed("the schema of the table has two columns of one name")
    missing = [name for name in metadata.partition_columns if name not in names]
    if missing:
        raise Malformed(f"the schema of the table lacks the partition columns {missing}")
    return TableSchema(schema.fields, metadata.partition_columns, mode)


def _kind(parsed: Any, depth: int, *, mapped: bool) -> Kind:
    if isinstance(parsed, str):
        return parsed
    if not isinstance(parsed, dict) or depth > _DEEPEST:
        raise Malformed(
            "the schema of the table has something that is no type of a column, or nests too deeply"
        )
    match parsed.get("type"):
        case "struct" if isinstance(fields := parsed.get("fields"), list):
            return Struct(tuple(_column(each, depth + 1, mapped=mapped) for each in fields))
        case "array":
            element = _kind(parsed.get("elementType"), depth + 1, mapped=mapped)
            return Array(element, parsed.get("containsNull") is not False)
        case "map":
            key, value = (
                _kind(parsed.get(each), depth + 1, mapped=mapped) for each in ("keyType", "valueType")
            )
            return Map(key, value, parsed.get("valueContainsNull") is not False)
        case other:
            raise Malformed(f"{other!r} is no type of a column")


def _column(parsed: Any, depth: int, *, mapped: bool) -> Column:
    name = parsed.get("name") if isinstance(parsed, dict) else None
    if not isinstance(name, str):
        raise Malformed("the schema of the table has a column without a name")
    metadata = parsed.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    physical, field_id = metadata.get(PHYSICAL_NAME, name), metadata.get(MAPPED_ID)
    if mapped and not (isinstance(physical, str) and isinstance(field_id, int)):
        raise Malformed(f"the column {name} lacks its physical name or its id")
    return Column(
        name,
        physical if mapped else name,
        field_id if mapped else None,
        _kind(parsed.get("type"), depth, mapped=mapped),
        parsed.get("nullable") is not False,
        metadata,
    )


def _with_nested(column: Column) -> Iterator[Column]:
    yield column
    for field in _fields(column.kind):
        yield from _with_nested(field)


def _fields(kind: Kind) -> Iterator[Column]:
    if isinstance(kind, Struct):
        yield from kind.fields
    elif isinstance(kind, Array):
        yield from _fields(kind.element)
    elif isinstance(kind, Map):
        yield from _fields(kind.key)
        yield from _fields(kind.value)


def _described(columns: tuple[Column, ...]) -> list[object]:
    return [
        [column.physical, column.field_id, column.nullable, _description(column.kind)] for column in columns
    ]


def _description(kind: Kind) -> object:
    if isinstance(kind, Struct):
        return _described(kind.fields)
    if isinstance(kind, Array):
        return ["array", kind.nullable, _description(kind.element)]
    if isinstance(kind, Map):
        return ["map", kind.nullable, _description(kind.key), _description(kind.value)]
    return kind
