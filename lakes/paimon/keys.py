"""Tables with keys: which of them are in scope, and what their schema says about rows.

Rows with one key are merged when they are read. A writer only adds files of level 0, so it never has to read.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pypaimon.schema.table_schema import TableSchema

DEDUPLICATE: Final = "deduplicate"
PARTIAL_UPDATE: Final = "partial-update"
AGGREGATION: Final = "aggregation"
ENGINE: Final = "merge-engine"
SEQUENCE_FIELD: Final = "sequence.field"
KIND_FIELD: Final = "rowkind.field"

KEY_TYPES: Final = re.compile(
    r"STRING|(VAR)?CHAR\b.*|BOOLEAN|TINYINT|SMALLINT|INT|INTEGER|BIGINT|DATE|DECIMAL\b.*|TIMESTAMP\([0-6]\)"
)
"""Types of keys that Paimon's Java library and pypaimon hash and compare alike. Not so NaN and -0.0."""
_ORDER_TYPES: Final = re.compile(
    r"STRING|(VAR)?CHAR\b.*|TINYINT|SMALLINT|INT|INTEGER|BIGINT|DATE|DECIMAL\b.*|TIMESTAMP\b(?!.*LOCAL).*"
)
"""Types of columns that decide which row is newer."""
_FUNCTIONS: Final = frozenset(
    {
        *("sum", "product", "max", "min", "bool_and", "bool_or"),
        *("last_value", "last_non_null_value", "first_value", "first_non_null_value"),
    }
)
"""Functions of the engine aggregation that both libraries compute alike, also of rows that were merged."""
_DEFAULT_FUNCTION: Final = "fields.default-aggregate-function"
_FUNCTION: Final = re.compile(r"fields\.(.+)\.aggregate-function")
_GROUP: Final = re.compile(r"fields\..+\.sequence-group")
_DELETES: Final = re.compile(
    r"(.+\.)?ignore-delete|ignore-update-before|fields\..+\.ignore-retract|"
    r"(partial-update|aggregation)\.remove-record-on-.*"
)
"""Options that change what a deletion does. Writers and readers would have to agree on each of them."""
_REFUSED: Final = re.compile(r"data-file\.thin-mode|primary-key\.nullable|(fields\..+\.)?pk-.+")
"""Options by which files have other columns, or index files beside them."""
_SEQUENCE_OPTIONS: Final = frozenset({SEQUENCE_FIELD, "sequence.field.sort-order"})


def key_columns(schema: TableSchema) -> list[str]:
    """Return the columns of the key within a partition: the primary key without the partition columns."""
    return [name for name in schema.primary_keys if name not in schema.partition_keys]


def engine_of(options: Mapping[str, Any]) -> str:
    """Return the merge engine of a table."""
    return str(options.get(ENGINE, DEDUPLICATE)).strip().lower()


def sequence_fields(options: Mapping[str, Any]) -> list[str]:
    """Return the columns that decide which of two rows with one key is the newer one."""
    return [name.strip() for name in str(options.get(SEQUENCE_FIELD) or "").split(",") if name.strip()]


def refusal_of_keys(schema: TableSchema) -> str | None:
    """Return the first property of a table with keys that is not supported, None if there is none."""
    options = {name: str(value) for name, value in schema.options.items()}
    return (
        _refusal_of_buckets(options)
        or _refusal_of_columns(schema)
        or _refusal_of_engine(options)
        or _refusal_of_order(schema, options)
        or _refusal_of_options(options)
    )


def _refusal_of_buckets(options: Mapping[str, str]) -> str | None:
    if options.get("bucket", "-1") == "-1":
        return (
            "it has a primary key and dynamic buckets (bucket = -1): which bucket has a key is known to one "
            "writer alone, so two writers would put a key into two buckets. Make a table with a fixed number "
            "of buckets, such as bucket = 16, and copy the rows there"
        )
    if options["bucket"] == "-2":
        return (
            "it has a primary key and postponed buckets (bucket = -2): no reader sees its rows before "
            "another job has moved them. Make a table with a fixed number of buckets, such as bucket = 16, "
            "and copy the rows there"
        )
    return None


def _refusal_of_columns(schema: TableSchema) -> str | None:
    missing = [name for name in schema.partition_keys if name not in schema.primary_keys]
    if missing:
        return (
            f"its primary key lacks the partition column {missing[0]}, so a row could move to another "
            "partition, and both would have the key. Make a table whose primary key has all partition columns"
        )
    names = key_columns(schema)
    if not names:
        return "all columns of its primary key are partition columns, so each partition has one row"
    types = {field.name: type_of(field) for field in schema.fields}
    for name in names:
        if not KEY_TYPES.fullmatch(types.get(name, "")):
            kind = types.get(name)
            return f"its primary key has the column {name}, and keys of the type {kind} are not supported"
    return None


def _refusal_of_engine(options: Mapping[str, str]) -> str | None:
    engine = engine_of(options)
    if engine not in (DEDUPLICATE, PARTIAL_UPDATE, AGGREGATION):
        return (
            f"the option {ENGINE} = {engine} is not supported; {DEDUPLICATE}, {PARTIAL_UPDATE} and "
            f"{AGGREGATION} are"
        )
    for name, value in options.items():
        if _GROUP.fullmatch(name):
            return f"the option {name} = {value} (a sequence group) is not supported; {SEQUENCE_FIELD} is"
        if name != _DEFAULT_FUNCTION and not _FUNCTION.fullmatch(name):
            continue
        if engine != AGGREGATION:
            return f"the option {name} = {value} is supported with {ENGINE} = {AGGREGATION} alone"
        if value.strip().lower() not in _FUNCTIONS:
            return f"the option {name} = {value} is not supported; {', '.join(sorted(_FUNCTIONS))} are"
    return None


def _refusal_of_order(schema: TableSchema, options: Mapping[str, str]) -> str | None:
    types = {field.name: type_of(field) for field in schema.fields}
    for name in (fields := sequence_fields(options)):
        if name not in types:
            return f"the option {SEQUENCE_FIELD} names the column {name}, which it does not have"
        if not _ORDER_TYPES.fullmatch(types[name]):
            kind = types[name]
            return f"the option {SEQUENCE_FIELD} names {name}, and order by the type {kind} is not supported"
        if f"fields.{name}.aggregate-function" in options:
            return f"the option fields.{name}.aggregate-function is for a column of {SEQUENCE_FIELD}"
    if len({*fields}) < len(fields):
        return f"the option {SEQUENCE_FIELD} = {options[SEQUENCE_FIELD]} names a column twice"
    of_kinds = options.get(KIND_FIELD)
    if of_kinds in schema.primary_keys:
        return (
            f"the option {KIND_FIELD} names {of_kinds}, a column of its primary key, so a deletion would "
            "have another key than its row"
        )
    if of_kinds is not None and not re.fullmatch(r"STRING|VARCHAR\b.*", types.get(of_kinds, "")):
        return f"the option {KIND_FIELD} names {of_kinds}, which is no column of texts"
    return None


def _refusal_of_options(options: Mapping[str, str]) -> str | None:
    for name, value in options.items():
        is_on = value.strip().lower() not in ("", "false", "none")
        unknown_order = name.startswith("sequence.") and name not in _SEQUENCE_OPTIONS
        if is_on and (_DELETES.fullmatch(name) or _REFUSED.fullmatch(name) or unknown_order):
            return f"the option {name} = {value} is not supported for tables with keys"
    file_format = options.get("file.format", "parquet").lower()
    if file_format != "parquet":
        return f"the option file.format = {file_format} is not supported for tables with keys; parquet is"
    return None


def type_of(field: Any) -> str:
    """Return the type of a field without its nullability."""
    return str(field.type).upper().removesuffix(" NOT NULL")
