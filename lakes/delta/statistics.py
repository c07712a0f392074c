"""Statistics of data files: made from Parquet footers, and checked when others send them.

A bound may be wider than the values. It is left out where readers could take it for narrower than they are.
"""

import datetime
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sluicegate.lakes.delta.actions import is_whole
from sluicegate.lakes.delta.schema import Array, Column, Kind, Map, Struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_LONGEST: Final = 32
"""Characters of a text in a bound."""
_LAST: Final = "\U0010ffff"
"""The highest character: a shortened upper bound ends with it."""
_EXACT: Final = 15
"""Digits that a JSON number holds in every reader."""
_DEEPEST: Final = 60
"""Levels of statistics that are read. They come from outside."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
_BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}(Z?)")


class Leaf(NamedTuple):
    """A column of a Parquet file."""

    path: tuple[str, ...]
    """Physical names from the table's column down; empty inside of a list or a map."""
    kind: str


class Bounds(NamedTuple):
    """Lowest and highest value as the log has them; None: left out."""

    lowest: Any
    highest: Any


def leaves(columns: Sequence[Column]) -> Iterator[Leaf]:
    """Yield the columns of a Parquet file of these columns, in its order."""
    for column in columns:
        yield from _leaves_of(column.kind, (column.physical,))


def _leaves_of(kind: Kind, path: tuple[str, ...]) -> Iterator[Leaf]:
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from _leaves_of(field.kind, (*path, field.physical) if path else ())
    elif isinstance(kind, Array):
        yield from _leaves_of(kind.element, ())
    elif isinstance(kind, Map):
        yield from _leaves_of(kind.key, ())
        yield from _leaves_of(kind.value, ())
    else:
        yield Leaf(path, kind)


def make_statistics(
    footer: "pq.FileMetaData",
    columns: Sequence[Column],
    indexed: Collection[tuple[str, ...]],
    nulls: Mapping[tuple[str, ...], int],
) -> dict[str, Any]:
    """Return the statistics of a file.

    `indexed` are the paths that get any. `nulls` has the nulls of columns of floats: with NaN, the footer has
    no statistics of them.
    """
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, leaf in enumerate(leaves(columns)):
        if not leaf.path or leaf.path not in indexed:
            continue
        chunks = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        parts = [chunk.statistics for chunk in chunks]
        if any(part is None for part in parts):
            if leaf.path in nulls:
                _put(found["nullCount"], leaf.path, nulls[leaf.path])
            continue
        if all(part.has_null_count for part in parts):
            _put(found["nullCount"], leaf.path, sum(part.null_count for part in parts))
        bounds = _bounds(leaf.kind, parts)
        if bounds is not None and bounds.lowest is not None:
            _put(found["minValues"], leaf.path, bounds.lowest)
        if bounds is not None and bounds.highest is not None:
            _put(found["maxValues"], leaf.path, bounds.highest)
    return found


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _bounds(kind: str, parts: Sequence[Any]) -> Bounds | None:
    """Return the bounds over all row groups, None if one of them has none."""
    convert = _converter(kind)
    # A group of nulls alone has no bounds and limits nothing.
    filled = [part for part in parts if part.has_min_max or part.num_values]
    if convert is None or not filled or not all(part.has_min_max for part in filled):
        return None
    raw = kind in ("date", "timestamp", "timestamp_ntz")
    try:
        lowest = min(part.min_raw if raw else part.min for part in filled)
        highest = max(part.max_raw if raw else part.max for part in filled)
        return convert(lowest, highest)
    except (ValueError, OverflowError, TypeError):
        # A value that Python does not have, such as a year above 9999.
        return None


def _converter(kind: str) -> Callable[[Any, Any], Bounds] | None:
    if kind in _BITS:
        return lambda lowest, highest: Bounds(int(lowest), int(highest))
    if (match := _DECIMAL.fullmatch(kind)) and int(match[1]) <= _EXACT:
        return _decimal_bounds
    return _CONVERTERS.get(kind)


def _decimal_bounds(lowest: Decimal, highest: Decimal) -> Bounds:
    whole = lowest == lowest.to_integral_value() and highest == highest.to_integral_value()
    kind = int if whole else float
    return Bounds(kind(lowest), kind(highest))


def _float_bounds(lowest: float, highest: float) -> Bounds:
    return Bounds(lowest if math.isfinite(lowest) else None, highest if math.isfinite(highest) else None)


def _text_bounds(lowest: str, highest: str) -> Bounds:
    if len(highest) <= _LONGEST:
        return Bounds(lowest[:_LONGEST], highest)
    # The shortened text with the highest character is above all others with that beginning, except this one.
    over = highest[:_LONGEST] + _LAST if highest[_LONGEST] != _LAST else None
    return Bounds(lowest[:_LONGEST], over)


def _date_bounds(lowest: int, highest: int) -> Bounds:
    first = _EPOCH.date()
    low, high = (first + datetime.timedelta(days=days) for days in (lowest, highest))
    return Bounds(low.isoformat(), high.isoformat())


def _time_bounds(lowest: int, highest: int, ending: str) -> Bounds:
    # Bounds have milliseconds, data has microseconds: the upper one is rounded up.
    low = _EPOCH + datetime.timedelta(milliseconds=lowest // 1_000)
    high = _EPOCH + datetime.timedelta(milliseconds=-(-highest // 1_000))
    return Bounds(*(f"{each.isoformat(timespec='milliseconds')}{ending}" for each in (low, high)))


_CONVERTERS: Final[Mapping[str, Callable[[Any, Any], Bounds]]] = {
    "float": _float_bounds,
    "double": _float_bounds,
    "string": _text_bounds,
    "date": _date_bounds,
    "timestamp": lambda lowest, highest: _time_bounds(lowest, highest, "Z"),
    "timestamp_ntz": lambda lowest, highest: _time_bounds(lowest, highest, ""),
}


def problem_of_statistics(found: Any, columns: Sequence[Column], rows: int) -> str | None:
    """Return the first part that readers could not use, or that contradicts the rows; None if none does."""
    if not isinstance(found, dict) or found.keys() != {"numRecords", "minValues", "maxValues", "nullCount"}:
        return "the statistics have other fields than numRecords, minValues, maxValues and nullCount"
    if found["numRecords"] != rows or not is_whole(found["numRecords"]):
        return f"the statistics count {found['numRecords']!r} rows instead of {rows}"
    paths = {leaf.path: leaf.kind for leaf in leaves(columns) if leaf.path}
    trees: list[dict[tuple[str, ...], Any]] = []
    for name in ("minValues", "maxValues", "nullCount"):
        flat = dict(_flat(found[name], ()))
        strange = next((path for path in flat if path not in paths), None)
        if strange is not None:
            return f"the statistics have {name} of {'.'.join(strange)!r}, which is no column"
        trees.append(flat)
    lowest, highest, nulls = trees
    for path, count in nulls.items():
        if not is_whole(count) or not 0 <= count <= rows:
            return f"the statistics count {count!r} nulls in {'.'.join(path)} of {rows} rows"
    for path in lowest.keys() | highest.keys():
        bounds = [tree[path] for tree in (lowest, highest) if path in tree]
        if not all(_is_bound(paths[path], bound) for bound in bounds) or bounds != sorted(bounds):
            return f"the statistics have bounds of {'.'.join(path)} that are none of its type: {bounds!r}"
    return _problem_of_nulls(columns, nulls)


def _problem_of_nulls(columns: Sequence[Column], nulls: Mapping[tuple[str, ...], int]) -> str | None:
    for column in columns:
        if not column.nullable and nulls.get((column.physical,)):
            return f"the column {column.name} must not be null, but {nulls[column.physical,]} values are"
    return None


def _flat(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested maps with their paths, down to a depth that no column has."""
    if isinstance(tree, dict) and len(path) < _DEEPEST:
        for name, value in tree.items():
            yield from _flat(value, (*path, name))
    else:
        yield path, tree


def _is_bound(kind: str, value: Any) -> bool:
    if bits := _BITS.get(kind):
        return is_whole(value) and -(1 << bits - 1) <= value < 1 << bits - 1
    if kind in ("float", "double"):
        return is_whole(value) or isinstance(value, float)
    if _DECIMAL.fullmatch(kind):
        return (is_whole(value) or isinstance(value, float)) and abs(value) < 10**_EXACT
    if not isinstance(value, str):
        return False
    if kind == "date":
        return _is_time(_DAY, value)
    if kind in ("timestamp", "timestamp_ntz"):
        return _is_time(_TIME, value) and value.endswith("Z") is (kind == "timestamp")
    return kind == "string"


def _is_time(pattern: re.Pattern[str], text: str) -> bool:
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
