"""Partitions of an Iceberg table: their fields and folders."""

from collections.abc import Iterator
from typing import Final

from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)
from pyiceberg.types import TimestamptzNanoType, TimestamptzType

from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.folders import folder_path
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.partition_layout import FieldKind, PartitionField, PartitionLayout

_TRANSFORMS: Final[tuple[tuple[type, FieldKind], ...]] = (
    (IdentityTransform, "identity"),
    (YearTransform, "year"),
    (MonthTransform, "month"),
    (DayTransform, "day"),
    (HourTransform, "hour"),
)
_PROVIDERS: Final = ("write.location-provider.impl", "write.py-location-provider.impl")


def partition_layout(view: TableView, files: Files) -> PartitionLayout:
    """Return the layout of a table."""
    fields: dict[str, PartitionField] = {}
    for field in _fields(view):
        fields.setdefault(field.name, _described(view.schema, field))
    return PartitionLayout(
        tuple(fields.values()),
        files.folder(view.data_location),
        _no_folder(view),
        lambda values: f"{view.data_prefix}{folder_path(values)}",
    )


def _fields(view: TableView) -> Iterator[SpecField]:
    """Yield the fields of all specs, those of the current one first."""
    yield from view.spec.fields
    for spec in view.specs.values():
        yield from spec.fields


def _described(schema: Schema, field: SpecField) -> PartitionField:
    kinds = [name for transform, name in _TRANSFORMS if isinstance(field.transform, transform)]
    kind: FieldKind = kinds[0] if kinds else "opaque"
    try:
        source = schema.find_type(field.source_id)
    except ValueError:
        # The column of an earlier spec was dropped.
        return PartitionField(field.name, kind)
    return PartitionField(field.name, kind, isinstance(source, TimestamptzType | TimestamptzNanoType))


def _no_folder(view: TableView) -> str | None:
    hidden = [field.name for field in view.spec.fields if not isinstance(field.transform, IdentityTransform)]
    if hidden:
        return f"its partition field {hidden[0]} is a hidden transform, whose folders mean nothing to readers"
    if view.properties.get("write.object-storage.enabled", "").strip().lower() == "true":
        return "its property write.object-storage.enabled is true, which spreads a partition's files"
    if named := next((key for key in _PROVIDERS if view.properties.get(key, "").strip()), None):
        return f"its property {named} names a provider of locations, which may use other folders"
    return None
