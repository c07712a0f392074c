"""Checks of the bytes of a Parquet footer, before the Parquet library reads them.

The library ends the process if the statistics of a column have another length than its type, or if one of two
bounds is absent. A footer comes from outside, and must not end a coordinator.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.lakes.thrift import STRUCT, Reader, Typed

_I32: Final = 5
_BINARY: Final = 8
_LIST: Final = 9

_SCHEMA, _GROUPS, _ORDERS = 2, 4, 7
"""Fields of a footer."""
_TYPE, _TYPE_LENGTH, _CHILDREN = 1, 2, 5
"""Fields of an element of the schema."""
_COLUMNS: Final = 1
_META_DATA: Final = 3
_CHUNK_TYPE, _STATISTICS = 1, 12
_PAIRS: Final = ((1, 2), (5, 6))
"""Fields of the upper and the lower bound in statistics: of older writers, and of others."""

_LENGTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by physical type, of boolean, int32, int64, int96, float and double."""
_BYTE_ARRAY, _FIXED = 6, 7

_Struct = Mapping[int, Typed]


def check_footer(footer: bytes) -> None:
    """Raise ValueError for a footer that the Parquet library must not see."""
    found = Reader(footer).message()
    leaves = list(_leaves(found))
    for group in _structs(found, _GROUPS):
        columns = list(_structs(group, _COLUMNS))
        if len(columns) != len(leaves):
            raise ValueError(f"a row group has {len(columns)} columns, and the schema has {len(leaves)}")
        for column, (kind, length) in zip(columns, leaves, strict=True):
            described = _field(column, _META_DATA, STRUCT)
            if described is None or _field(described, _CHUNK_TYPE, _I32) != kind:
                raise ValueError("a chunk has another type than its column")
            statistics = _field(described, _STATISTICS, STRUCT)
            if statistics is not None:
                _check_statistics(statistics, kind, length)
                _check_order(statistics, kind, has_orders=_ORDERS in found)


def _check_order(statistics: _Struct, kind: int, *, has_orders: bool) -> None:
    """Raise ValueError for bounds of texts or bytes in the old form, which do not state their order.

    Some writers compared bytes as signed numbers. The Parquet library believes such bounds, for some of them.
    """
    old, new = _PAIRS
    if kind not in (_BYTE_ARRAY, _FIXED) or not any(field in statistics for field in old):
        return
    if not has_orders or not all(field in statistics for field in new):
        raise ValueError(
            "a column of texts or bytes has only bounds of the old form (min, max). Write min_value and "
            "max_value with column orders, or no bounds"
        )


def _check_statistics(statistics: _Struct, kind: int, length: int) -> None:
    for fields in _PAIRS:
        bounds = [_field(statistics, field, _BINARY) for field in fields]
        present = [bound for bound in bounds if bound is not None]
        if not present or kind == _BYTE_ARRAY:
            continue
        if len(present) < len(bounds) or any(len(bound) != length for bound in present):
            raise ValueError("the statistics of a column have no bounds of its type")


def _leaves(footer: _Struct) -> Iterator[tuple[int, int]]:
    """Yield the physical type of each column, with the bytes of a value."""
    for element in list(_structs(footer, _SCHEMA))[1:]:
        if _field(element, _CHILDREN, _I32):
            continue
        kind = _field(element, _TYPE, _I32)
        if kind not in (*_LENGTHS, _BYTE_ARRAY, _FIXED):
            raise ValueError("a column has no type that Parquet has")
        length = _field(element, _TYPE_LENGTH, _I32) or 0
        yield kind, length if kind == _FIXED else _LENGTHS.get(kind, 0)


def _structs(of: _Struct, field: int) -> Iterator[_Struct]:
    for each in _field(of, field, _LIST) or ():
        if each.kind != STRUCT:
            raise ValueError("a list has no structs")
        yield each.value


def _field(of: _Struct, field: int, kind: int) -> Any:
    """Return the value of a field, None if it is absent. Raises ValueError for another type."""
    found = of.get(field)
    if found is None:
        return None
    if found.kind != kind:
        raise ValueError(f"a field has the type {found.kind} instead of {kind}")
    return found.value
