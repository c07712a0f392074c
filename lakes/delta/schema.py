"""Schemas of Delta tables: columns, partition values, and files of an older schema."""

import datetime
import decimal
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from sluicegate.lakes.delta.log import Malformed, Metadata

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


# Values of partition columns: their text in the log, and the folders of data files.

_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME: Final = 255
"""Bytes of the name of a folder, which most file systems allow."""
_LONGEST_FOLDER: Final = 768
"""Bytes of the path of a partition, so that object stores take the paths of its files."""
_DIGEST: Final = 32
"""Characters of a digest."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_LOCAL_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def can_partition(kind: str) -> bool:
    """Return True if values of a type have one text, which all readers parse alike."""
    return kind in _CHECKS or kind in _BITS or _DECIMAL.fullmatch(kind) is not None


def partition_text(kind: str, value: Any) -> str | None:
    """Return the text of a value, None for null. Delta has no empty text: it is null, too.

    Raises ValueError for a value without a text.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return _time_text(kind, value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    return str(value)


def _time_text(kind: str, value: datetime.datetime) -> str:
    if kind == "timestamp_ntz":
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    in_utc = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
    return in_utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def is_partition_text(column: Column, text: str | None) -> bool:
    """Return True if a text is that of a value of the column, in the form of `partition_text`."""
    kind = column.kind
    if text is None:
        return column.nullable
    if not text or not isinstance(kind, str):
        return False
    if bits := _BITS.get(kind):
        return _WHOLE.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    if match := _DECIMAL.fullmatch(kind):
        return _fits(text, int(match[1]), int(match[2]))
    check = _CHECKS.get(kind)
    return check is not None and check(text)


def partition_folder(columns: Sequence[Column], values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, relative to the table; empty for a table without partitions.

    `values` are texts by physical name. By the protocol, readers take values from the log alone, but polars
    takes them from the folder. So a value is named by a digest only where its own name would be too long.
    """
    pairs = [(_column_name(column.physical), values[column.physical]) for column in columns]
    folder = "/".join(_folder_name(name, text, _LONGEST_NAME) for name, text in pairs)
    if len(folder) > _LONGEST_FOLDER:
        folder = "/".join(_folder_name(name, text, len(name) + 1 + _DIGEST) for name, text in pairs)
    return folder


def _column_name(physical: str) -> str:
    """Return the name of a column as folders have it, with room for a digest of the value."""
    escaped = _escaped(physical)
    return escaped if len(escaped) + 1 + _DIGEST <= _LONGEST_NAME else _digest(physical)


def _folder_name(name: str, text: str | None, longest: int) -> str:
    if text is None:
        return f"{name}={_NULL_FOLDER}"
    value = _escaped(text)
    # The folder of null is not that of the same text.
    if len(name) + 1 + len(value) > longest or text == _NULL_FOLDER:
        value = _digest(text)
    return f"{name}={value}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _escaped(text: str) -> str:
    return quote(text, safe=" ")


def _fits(text: str, precision: int, scale: int) -> bool:
    if not _PLAIN_DECIMAL.fullmatch(text):
        return False
    whole, _, fraction = text.lstrip("-").partition(".")
    return len(fraction) == scale and len(whole.lstrip("0")) <= precision - scale


def is_time(pattern: re.Pattern[str], text: str) -> bool:
    """Return True for a time or a date that exists, in the form of a pattern."""
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "string": bool,
    "boolean": lambda text: text in ("true", "false"),
    "date": lambda text: is_time(_DAY, text),
    "timestamp": lambda text: is_time(_TIME, text),
    "timestamp_ntz": lambda text: is_time(_LOCAL_TIME, text),
}


# Changes of a table's schema between the writing of files and their commit.

_DEFAULT: Final = "CURRENT_DEFAULT"
_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "byte": frozenset({"short", "integer", "long"}),
    "short": frozenset({"integer", "long"}),
    "integer": frozenset({"long"}),
    "float": frozenset({"double"}),
}
"""Types that readers convert values of a type to, in a table with type widening."""


def has_default(column: Column) -> bool:
    """Return True if rows without a value of the column get one that is not null."""
    return column.metadata.get(_DEFAULT) not in (None, "")


def problem_of_older(old: TableSchema, new: TableSchema, *, widening: bool) -> str | None:
    """Return why files of an older schema cannot be added under the newer one, None if they can.

    `widening`: the table has the feature type widening.
    """
    if [each.physical for each in old.partitions] != [each.physical for each in new.partitions]:
        return "the table has other partition columns now"
    if old.mode != new.mode and "none" in (old.mode, new.mode):
        return "the table has another column mapping now"
    return _of_fields(old.columns, new.columns, dropped=new.mode != "none", widening=widening)


def _of_fields(
    old: tuple[Column, ...], new: tuple[Column, ...], *, dropped: bool, widening: bool
) -> str | None:
    """Compare columns by physical name. `dropped`: files may have columns that the table lacks."""
    before = {column.physical: column for column in old}
    after = {column.physical: column for column in new}
    for physical, column in after.items():
        written = before.get(physical)
        if written is None and (not column.nullable or has_default(column)):
            return f"the table has the new column {column.name}, which these files cannot have as null"
        if written is not None and written.nullable and not column.nullable:
            return f"the column {column.name} must not be null now"
        if written is not None and (problem := _of_kinds(written.kind, column.kind, widening=widening)):
            return f"the column {column.name} {problem}"
    gone = next((column.name for physical, column in before.items() if physical not in after), None)
    return None if gone is None or dropped else f"the table has no column {gone} any more"


def _of_kinds(old: Kind, new: Kind, *, widening: bool) -> str | None:
    if old == new:
        return None
    if isinstance(old, str) and isinstance(new, str):
        wider = widening and new in _WIDER.get(old, ())
        return None if wider else f"is {new} now instead of {old}"
    if isinstance(old, Struct) and isinstance(new, Struct):
        same = _of_fields(old.fields, new.fields, dropped=False, widening=widening)
        return None if same is None else f"has changed: {same}"
    if isinstance(old, Array) and isinstance(new, Array) and (new.nullable or not old.nullable):
        return _of_kinds(old.element, new.element, widening=widening)
    if isinstance(old, Map) and isinstance(new, Map) and (new.nullable or not old.nullable):
        keys = _of_kinds(old.key, new.key, widening=widening)
        return keys or _of_kinds(old.value, new.value, widening=widening)
    return "has another type now"
