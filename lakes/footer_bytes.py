"""Checks of the bytes of a Parquet footer, before the Parquet library reads them.

Some footers end the process of the library. They have bounds of another length than the type of their column,
or one bound without the other. They have histograms of levels that do not fit the nesting of their column, a
codec that Parquet lacks, or a very deep schema. A footer comes from outside, and must not end a coordinator.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from sluicegate.lakes.thrift import STRUCT, Reader, Typed

_I32: Final = 5
_I64: Final = 6
_BINARY: Final = 8
_LIST: Final = 9

_SCHEMA, _GROUPS, _ORDERS, _ENCRYPTION = 2, 4, 7, 8
"""Fields of a footer."""
_TYPE, _TYPE_LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
"""Fields of an element of the schema."""
_COLUMNS: Final = 1
_META_DATA: Final = 3
_CHUNK_TYPE, _CODEC, _STATISTICS, _SIZES = 1, 4, 12, 16
_PAIRS: Final = ((1, 2), (5, 6))
"""Fields of the upper and the lower bound in statistics: of older writers, and of others."""
_UNENCODED: Final = 1
_HISTOGRAMS: Final = ((2, "repetition"), (3, "definition"))
"""Fields of the statistics of sizes: the bytes of texts without their encoding, and values by level."""

_LENGTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by physical type, of boolean, int32, int64, int96, float and double."""
_BYTE_ARRAY, _FIXED = 6, 7
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_CODECS: Final = range(8)
"""From UNCOMPRESSED to LZ4_RAW."""
_DEEPEST: Final = 100
"""Levels of a schema. The library follows them on its stack."""

_Struct = Mapping[int, Typed]


class _Leaf(NamedTuple):
    """A column, as the schema describes it."""

    kind: int
    """Physical type."""
    length: int
    """Bytes of a value; 0 for texts and bytes."""
    repetition: int
    definition: int
    """Highest levels of its values."""


def check_footer(footer: bytes) -> None:
    """Raise ValueError for a footer that the Parquet library must not see."""
    found = Reader(footer).message(_ENCRYPTION)
    if _ENCRYPTION in found:
        # The footer itself is readable. A signature follows it.
        raise ValueError("columns of the file are encrypted. Write it without encryption")
    leaves = list(_leaves(found))
    for group in _structs(found, _GROUPS):
        columns = list(_structs(group, _COLUMNS))
        if len(columns) != len(leaves):
            raise ValueError(f"a row group has {len(columns)} columns, and the schema has {len(leaves)}")
        for column, leaf in zip(columns, leaves, strict=True):
            described = _field(column, _META_DATA, STRUCT)
            if described is None or _field(described, _CHUNK_TYPE, _I32) != leaf.kind:
                raise ValueError("a chunk has another type than its column")
            if _field(described, _CODEC, _I32) not in _CODECS:
                raise ValueError("a chunk has no compression codec that Parquet has")
            statistics = _field(described, _STATISTICS, STRUCT)
            if statistics is not None:
                _check_statistics(statistics, leaf.kind, leaf.length)
                _check_order(statistics, leaf.kind, has_orders=_ORDERS in found)
            sizes = _field(described, _SIZES, STRUCT)
            if sizes is not None:
                _check_sizes(sizes, leaf)


def _check_sizes(sizes: _Struct, leaf: _Leaf) -> None:
    """Raise ValueError for statistics of sizes that do not fit the type or the nesting of their column."""
    if _field(sizes, _UNENCODED, _I64) is not None and leaf.kind != _BYTE_ARRAY:
        raise ValueError("a column without texts or bytes has the size of its texts")
    for (field, name), highest in zip(_HISTOGRAMS, (leaf.repetition, leaf.definition), strict=True):
        histogram = _field(sizes, field, _LIST)
        # Writers may leave a histogram out, or empty.
        if not histogram:
            continue
        if any(each.kind != _I64 for each in histogram):
            raise ValueError(f"a histogram of {name} levels has no numbers")
        if len(histogram) != highest + 1:
            raise ValueError(
                f"a histogram of {name} levels has {len(histogram)} entries instead of {highest + 1}. Write "
                "the statistics of sizes as Parquet defines them, or none"
            )


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


def _leaves(footer: _Struct) -> Iterator[_Leaf]:
    """Yield the columns of the schema, whose elements come depth first."""
    elements = list(_structs(footer, _SCHEMA))
    if not elements:
        raise ValueError("it has no schema")
    # Of each open group: the children to come, and the levels of its values.
    groups = [(_field(elements[0], _CHILDREN, _I32) or 0, 0, 0)]
    for element in elements[1:]:
        while groups and not groups[-1][0]:
            groups.pop()
        if not groups:
            raise ValueError("the schema has more elements than its groups have children")
        left, repetition, definition = groups[-1]
        groups[-1] = left - 1, repetition, definition
        repeats = _field(element, _REPETITION, _I32)
        if repeats not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise ValueError("an element of the schema has no repetition that Parquet has")
        repetition += repeats == _REPEATED
        definition += repeats != _REQUIRED
        children = _field(element, _CHILDREN, _I32)
        if not children:
            yield _leaf(element, repetition, definition)
            continue
        if len(groups) >= _DEEPEST:
            raise ValueError(f"its columns are nested in more than {_DEEPEST} levels")
        groups.append((children, repetition, definition))
    if any(left for left, _, _ in groups):
        raise ValueError("a group of the schema lacks children")


def _leaf(element: _Struct, repetition: int, definition: int) -> _Leaf:
    kind = _field(element, _TYPE, _I32)
    if kind not in (*_LENGTHS, _BYTE_ARRAY, _FIXED):
        raise ValueError("a column has no type that Parquet has")
    length = _field(element, _TYPE_LENGTH, _I32) or 0
    return _Leaf(kind, length if kind == _FIXED else _LENGTHS.get(kind, 0), repetition, definition)


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
