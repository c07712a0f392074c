"""Summaries of the partitions of a manifest, by which readers skip it.

A partition field with NaN is apart from its other values: no manifest of ours has both. The bounds leave NaN
out. DuckDB takes NaN for the highest number, so it would skip a manifest whose bounds are those of the other
values. It cannot have no bounds instead, because Iceberg's libraries take such a field for one without
numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.types import IcebergType, PrimitiveType

from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.values import is_nan, partition_bound, partition_order

Summary = Mapping[str, Any]


def summaries_of(layout: Layout, partitions: Iterable[Partition]) -> list[Summary]:
    """Return one summary for each partition field, of these distinct partitions."""
    columns = list(zip(*partitions, strict=True))
    fields = layout.partition_type.fields
    return [_summary(field.field_type, column) for field, column in zip(fields, columns, strict=True)]


def merged_summaries(layout: Layout, each: Sequence[Sequence[Summary]]) -> list[Summary]:
    """Return summaries that cover those of several manifests."""
    fields = layout.partition_type.fields
    return [
        _merged(field.field_type, parts) for field, parts in zip(fields, zip(*each, strict=True), strict=True)
    ]


def has_nan(summaries: Sequence[Summary]) -> tuple[bool | None, ...]:
    """Return for each partition field if it has NaN, None if that is unknown."""
    return tuple([summary["contains_nan"] for summary in summaries])


def _summary(kind: IcebergType, values: Sequence[Any]) -> Summary:
    known = [value for value in values if value is not None and not is_nan(value)]
    lower = min(known, key=lambda value: partition_order(kind, value), default=None)
    upper = max(known, key=lambda value: partition_order(kind, value), default=None)
    return {
        "contains_null": any(value is None for value in values),
        "contains_nan": any(is_nan(value) for value in values),
        "lower_bound": _bound(kind, lower, -0.0),
        "upper_bound": _bound(kind, upper, 0.0),
    }


def _merged(kind: IcebergType, parts: Sequence[Summary]) -> Summary:
    nan = [part["contains_nan"] for part in parts]
    return {
        "contains_null": any(part["contains_null"] for part in parts),
        "contains_nan": True if True in nan else (None if None in nan else False),
        "lower_bound": _extreme(kind, [part["lower_bound"] for part in parts], min),
        "upper_bound": _extreme(kind, [part["upper_bound"] for part in parts], max),
    }


def _extreme(kind: Any, bounds: Sequence[bytes | None], choose: Any) -> bytes | None:
    known = [bound for bound in bounds if bound is not None]
    found: bytes | None = choose(known, key=lambda bound: from_bytes(kind, bound), default=None)
    return found


def _bound(kind: IcebergType, value: Any, zero: float) -> bytes | None:
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    # Readers order the two zeros, so the bound is the one that covers both.
    return partition_bound(kind, zero if isinstance(value, float) and value == 0 else value)
