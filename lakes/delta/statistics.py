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

_Path = tuple[str, ...]
"""Physical names from the table's column down."""

_FIELDS: Final = frozenset({"numRecords", "minValues", "maxValues", "nullCount"})
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
    bounded: Collection[tuple[str, ...]],
    counted: Collection[tuple[str, ...]],
    nulls: Mapping[tuple[str, ...], int],
) -> dict[str, Any]:
    """Return the statistics of a file.

    `bounded` are the paths that get bounds, `counted` those whose nulls are counted. `nulls` has the nulls of
    columns of floats: with NaN, the footer has no statistics of them.
    """
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, leaf in enumerate(leaves(columns)):
        if not leaf.path or leaf.path not in counted:
            continue
        chunks = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        parts = [chunk.statistics for chunk in chunks]
        if any(part is None for part in parts):
            if leaf.path in nulls:
                _put(found["nullCount"], leaf.path, nulls[leaf.path])
            continue
        if all(part.has_null_count for part in parts):
            _put(found["nullCount"], leaf.path, sum(part.null_count for part in parts))
        bounds = _bounds(leaf.kind, parts) if leaf.path in bounded else None
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
    "boolean": Bounds,
    "float": _float_bounds,
    "double": _float_bounds,
    "string": _text_bounds,
    "date": _date_bounds,
    "timestamp": lambda lowest, highest: _time_bounds(lowest, highest, "Z"),
    "timestamp_ntz": lambda lowest, highest: _time_bounds(lowest, highest, ""),
}


class StatisticsCheck:
    """Check of the statistics of files with these columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._kinds = {leaf.path: _is_bound(leaf.kind) for leaf in leaves(columns) if leaf.path}
        self._required = {(each.physical,): each.name for each in columns if not each.nullable}

    def problem(self, found: Any, rows: int) -> str | None:
        """Return the first part that readers could not use, or that contradicts the rows.

        None if none does.
        """
        if not isinstance(found, dict) or found.keys() != _FIELDS:
            return "the statistics have other fields than numRecords, minValues, maxValues and nullCount"
        if found["numRecords"] != rows or not is_whole(found["numRecords"]):
            return f"the statistics count {found['numRecords']!r} rows instead of {rows}"
        trees: list[Mapping[_Path, Any]] = []
        for name in ("minValues", "maxValues", "nullCount"):
            flat = _flat(found[name])
            if not flat.keys() <= self._kinds.keys():
                strange = next(path for path in flat if path not in self._kinds)
                return f"the statistics have {name} of {'.'.join(strange)!r}, which is no column"
            trees.append(flat)
        lowest, highest, nulls = trees
        for path, count in nulls.items():
            if not is_whole(count) or not 0 <= count <= rows:
                return f"the statistics count {count!r} nulls in {'.'.join(path)} of {rows} rows"
            if count and path in self._required:
                return f"the column {self._required[path]} must not be null, but {count} values are"
            if count == rows and (path in lowest or path in highest):
                return f"the statistics have bounds of {'.'.join(path)}, but all its {rows} values are null"
        return self._problem_of_bounds(lowest, highest)

    def _problem_of_bounds(self, lowest: Mapping[_Path, Any], highest: Mapping[_Path, Any]) -> str | None:
        kinds = self._kinds
        wrong = [path for tree in (lowest, highest) for path, bound in tree.items() if not kinds[path](bound)]
        wrong = wrong or [path for path, bound in lowest.items() if path in highest and bound > highest[path]]
        if not wrong:
            return None
        bounds = [tree[wrong[0]] for tree in (lowest, highest) if wrong[0] in tree]
        return f"the statistics have bounds of {'.'.join(wrong[0])} that are none of its type: {bounds!r}"


def _flat(tree: Any) -> Mapping[_Path, Any]:
    """Return the values of nested maps by their paths, down to a depth that no column has."""
    if not isinstance(tree, dict):
        return {(): tree}
    flat: dict[_Path, Any] = {(name,): value for name, value in tree.items()}
    # Most tables have no columns inside of others.
    return dict(_leveled(tree, ())) if dict in map(type, flat.values()) else flat


def _leveled(tree: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    # A map without values stands for itself, since a column that is none could have it.
    if isinstance(tree, dict) and len(path) < _DEEPEST and (tree or not path):
        for name, value in tree.items():
            yield from _leveled(value, (*path, name))
    else:
        yield path, tree


def _is_bound(kind: str) -> Callable[[Any], bool]:
    """Return the check of a bound of a type. Values are as JSON has them."""
    if bits := _BITS.get(kind):
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        return lambda value: type(value) is int and least <= value <= most
    if kind in ("float", "double"):
        return lambda value: type(value) is float or is_whole(value)
    if _DECIMAL.fullmatch(kind):
        largest = 10**_EXACT
        return lambda value: (type(value) is float or is_whole(value)) and abs(value) < largest
    if kind == "date":
        return lambda value: type(value) is str and _is_time(_DAY, value)
    if kind in ("timestamp", "timestamp_ntz"):
        zoned = kind == "timestamp"
        return lambda value: type(value) is str and _is_time(_TIME, value) and value.endswith("Z") is zoned
    if kind == "boolean":
        return lambda value: type(value) is bool
    return lambda value: kind == "string" and type(value) is str


def _is_time(pattern: re.Pattern[str], text: str) -> bool:
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
