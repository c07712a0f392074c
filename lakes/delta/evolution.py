"""Changes of a table's schema between the writing of files and their commit."""

from collections.abc import Mapping
from typing import Final

from sluicegate.lakes.delta.schema import Array, Column, Kind, Map, Struct, TableSchema

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
