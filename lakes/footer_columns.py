"""Columns of Parquet files that other programs wrote, compared with those that a table's files must have."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.lakes.extremes import extremes_of
from sluicegate.lakes.port import BadFiles

FIELD_ID: Final = b"PARQUET:field_id"
_FIXED: Final = "FIXED_LEN_BYTE_ARRAY"
_OF_DECIMALS: Final = ("INT32", "INT64", _FIXED)
_HOW_IT_WAS_WRITTEN: Final = ("is_from_converted_type", "force_set_converted_type")
_PLAIN: Final = {"INT32": 32, "INT64": 64}
"""Physical types of integers that need no annotation, with their bits."""


class _Leaf(NamedTuple):
    """A column of a Parquet file, without its name."""

    physical: str
    logical: str
    length: int
    """Bytes of a value of a fixed length; 0 for other types, and for all decimals, which may have several."""
    repetition: int
    """Lists and maps around it."""


class FileColumns:
    """The columns of a table's files, as of one schema. A file must have exactly these, in their order."""

    def __init__(self, schema: pa.Schema, schema_id: int) -> None:
        """`schema` is that of the files. Where its fields have field ids, files must have the same ones."""
        made = pq.ParquetWriter(pa.BufferOutputStream(), schema, store_schema=False)
        made.close()
        parquet = made.writer.metadata.schema
        columns = [parquet.column(number) for number in range(made.writer.metadata.num_columns)]
        self.paths: Final = tuple(each.path for each in columns)
        """Of the columns of the Parquet files, with dots between their parts."""
        self.schema: Final = schema
        self._leaves = [_leaf(each) for each in columns]
        self._definitions = [each.max_definition_level for each in columns]
        self._shape = _shape(pa.struct(schema))
        self._nested = [each for each in schema if pa.types.is_nested(each.type)]
        self._ids = dict(_ids(pa.struct(schema), ()))
        self._schema_id = schema_id

    def check(self, path: str, footer: pq.FileMetaData) -> None:
        """Raise BadFiles if a file has other columns, or nulls where none may be."""
        try:
            problem = self._problem(footer)
        except Exception as error:  # malformed bytes may raise any error in the parser
            raise BadFiles(f"the columns of {path} cannot be read: {error}") from error
        if problem is not None:
            raise BadFiles(
                f"the file {path} does not fit schema {self._schema_id} of the table: {problem}. Write it "
                "with the columns of the schema that the event names, in their order"
            )

    def _problem(self, footer: pq.FileMetaData) -> str | None:
        columns = [footer.schema.column(number) for number in range(footer.num_columns)]
        names = tuple(each.path for each in columns)
        if len({*self.paths}) < len(self.paths):
            return "columns whose names have dots cannot be told apart here"
        if names != self.paths:
            lacking = [name for name in self.paths if name not in names]
            strange = [name for name in names if name not in self.paths]
            return f"it lacks the columns {lacking}, has {strange} instead, or has another order"
        for name, column, wanted in zip(names, columns, self._leaves, strict=True):
            found = _leaf(column)
            if found != wanted and not _is_same_decimal(found, wanted):
                return f"the column {name} is {_text(found)}, not {_text(wanted)}"
        # Lists and maps are annotations of groups, which no leaf shows.
        schema = footer.schema.to_arrow_schema()
        if _shape(pa.struct(schema)) != self._shape:
            return f"its columns are nested otherwise: {schema.remove_metadata()}"
        found_ids = dict(_ids(pa.struct(schema), ()))
        wrong = [".".join(each) for each, number in self._ids.items() if found_ids.get(each) != number]
        if wrong:
            return f"the columns {wrong} lack the field ids of the table, or have others"
        return self._problem_of_nulls(footer, columns)

    def _problem_of_nulls(self, footer: pq.FileMetaData, columns: list[Any]) -> str | None:
        """Return the first column that may have nulls where the table allows none."""
        for number, column in enumerate(columns):
            if column.max_definition_level <= self._definitions[number]:
                continue
            if "." not in column.path and extremes_of(footer, number).nulls == 0:
                continue
            return f"the column {column.path} must not be null, and the file may have nulls"
        found = footer.schema.to_arrow_schema()
        for wanted in self._nested:
            loose = next(_loosened(found.field(wanted.name), wanted, wanted.name), None)
            if loose is not None:
                return f"the column {loose} must not be null, and the file allows nulls there"
        return None


def _loosened(found: pa.Field, wanted: pa.Field, path: str) -> Iterator[str]:
    """Yield the paths of fields that may be null in a file, and not in the table. Both have one shape."""
    if found.nullable and not wanted.nullable:
        yield path
    for inner, needed in zip(_fields(found.type), _fields(wanted.type), strict=True):
        yield from _loosened(inner, needed, f"{path}.{needed.name}")


def _leaf(column: Any) -> _Leaf:
    physical: str = column.physical_type
    logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    for key in _HOW_IT_WAS_WRITTEN:
        logical.pop(key, None)
    bits = _PLAIN.get(physical)
    if logical.get("Type") == "Int" and (logical.get("bitWidth"), logical.get("isSigned")) == (bits, True):
        logical = {"Type": "None"}
    # Writers may state a length for any type. Readers take it for FIXED_LEN_BYTE_ARRAY alone.
    is_fixed = physical == _FIXED and logical.get("Type") != "Decimal"
    length = column.length if is_fixed else 0
    return _Leaf(physical, json.dumps(logical, sort_keys=True), length, column.max_repetition_level)


def _is_same_decimal(found: _Leaf, wanted: _Leaf) -> bool:
    """Return True for a decimal that is stored as another physical type."""
    same = found._replace(physical=wanted.physical) == wanted
    return same and json.loads(wanted.logical)["Type"] == "Decimal" and found.physical in _OF_DECIMALS


def _text(leaf: _Leaf) -> str:
    logical = json.loads(leaf.logical)
    kind = logical.pop("Type")
    parts = ", ".join(f"{key}={value}" for key, value in logical.items())
    physical = f"{leaf.physical}({leaf.length})" if leaf.length else leaf.physical
    text = physical if kind == "None" else f"{physical} {kind}({parts})"
    return f"{text} in {leaf.repetition} lists or maps" if leaf.repetition else text


def _shape(kind: pa.DataType) -> Any:
    """Return the nesting of a type, down to its leaves."""
    if pa.types.is_struct(kind):
        return "struct", tuple((field.name, _shape(field.type)) for field in kind)
    if pa.types.is_map(kind):
        return "map", _shape(kind.key_type), _shape(kind.item_type)
    if _is_list(kind):
        return "list", _shape(kind.value_type)
    return "leaf"


def _is_list(kind: pa.DataType) -> bool:
    kinds: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
    )
    return any(each(kind) for each in kinds)


def _ids(kind: pa.DataType, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the field ids of all fields that have one, by their names from the outside to the inside."""
    for field in _fields(kind):
        names = (*before, field.name)
        number = (field.metadata or {}).get(FIELD_ID)
        if number is not None:
            yield names, int(number)
        yield from _ids(field.type, names)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if _is_list(kind) else []
