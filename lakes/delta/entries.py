"""Lines of the log that add data files. The writer half encodes them, the committer half checks and copies
them.

The committer half never encodes such a line, so no field can be lost. A line comes from outside: a bad one in
the log would make the table unreadable for everybody.
"""

import datetime
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.committer import refuse_other_metadata
from sluicegate.lakes.delta.log import is_whole
from sluicegate.lakes.delta.schema import (
    Array,
    Column,
    Kind,
    Map,
    Struct,
    TableSchema,
    is_partition_text,
    is_time,
    partition_folder,
)
from sluicegate.lakes.port import BadFiles
from sluicegate.texts import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq


# JSON with one text for each value.
#
# A line of the log is read by many parsers, which differ where JSON is ambiguous: keys that are there
# twice, numbers out of range, halves of characters. A text that equals the one made from its own value has
# none of it.

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def to_text(value: Any) -> str:
    """Return the text of a value. Raises ValueError for numbers that JSON does not have."""
    return _ENCODER.encode(value)


def to_bytes(value: Any) -> bytes:
    """Return the text of a value in UTF-8. Raises ValueError as `to_text` does, and for half characters."""
    return to_text(value).encode()


def from_text(text: str | bytes) -> Any:
    """Return the value of a text that `to_text` makes. Raises ValueError for any other text."""
    try:
        content = text if isinstance(text, str) else text.decode()
        value = json.loads(content)
        if to_text(value) != content:
            raise ValueError("it is ambiguous: its keys, numbers or characters have another, plain form")
        content.encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


# Statistics of data files: made from Parquet footers, and checked when others send them.
#
# A bound may be wider than the values. It is left out where readers could take it for narrower than they
# are.

_Path = tuple[str, ...]
"""Physical names from the table's column down."""

_STATISTICS: Final = frozenset({"numRecords", "minValues", "maxValues", "nullCount"})
_LONGEST_BOUND: Final = 32
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
    if len(highest) <= _LONGEST_BOUND:
        return Bounds(lowest[:_LONGEST_BOUND], highest)
    # The shortened text with the highest character is above all others with that beginning, except this one.
    over = highest[:_LONGEST_BOUND] + _LAST if highest[_LONGEST_BOUND] != _LAST else None
    return Bounds(lowest[:_LONGEST_BOUND], over)


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
        if not isinstance(found, dict) or found.keys() != _STATISTICS:
            return "the statistics have other fields than numRecords, minValues, maxValues and nullCount"
        if found["numRecords"] != rows or not is_whole(found["numRecords"]):
            return f"the statistics count rows as {found['numRecords']!r} instead of {rows}"
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
                return (
                    f"the statistics count nulls in {'.'.join(path)} as {count!r}, of {counted(rows, 'row')}"
                )
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
        return lambda value: type(value) is str and is_time(_DAY, value)
    if kind in ("timestamp", "timestamp_ntz"):
        zoned = kind == "timestamp"
        return lambda value: type(value) is str and is_time(_TIME, value) and value.endswith("Z") is zoned
    if kind == "boolean":
        return lambda value: type(value) is bool
    return lambda value: kind == "string" and type(value) is str


FORMAT: Final = "delta"
FORMAT_VERSION: Final = 1
"""Version of the metadata blobs. 1: a line `{"add":{...}}` without its end, as `encode` makes it."""

_FIELDS: Final = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats")
_LONGEST_LINE: Final = 1 << 20
"""Bytes of a line."""
_LONGEST_TEXT: Final = 600
"""Characters of an error."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,200}\.parquet")
"""Names that are the same in a path, in a URI, and for every reader."""
_AFTER_SIZE: Final = re.compile(rb',"modificationTime":(0|[1-9][0-9]{0,17}),"dataChange":true,"stats":"')
_END: Final = b'"}}'


def encode(
    path: str, values: Mapping[str, str | None], size: int, time_ms: int, statistics: Mapping[str, Any]
) -> bytes:
    """Return the line of a file. `values` are the partition's, by physical name.

    `path` is relative to the table, and not encoded. `time_ms` is the file's, since the Unix epoch.
    """
    fields = (encoded(path), dict(values), size, time_ms, True, to_text(statistics))
    return to_bytes({"add": dict(zip(_FIELDS, fields, strict=True))})


def with_row_ids(line: bytes, first: int, version: int) -> bytes:
    """Return a checked line with the id of its first row, and the version that it is added in."""
    return b'%b,"baseRowId":%d,"defaultRowCommitVersion":%d}}' % (line[:-2], first, version)


def encoded(path: str) -> str:
    """Return a path as the log has it: a relative URI, without a colon that could end a scheme."""
    return quote(path, safe="/=")


class Entries(NamedTuple):
    """The entries of an event that was examined, as they are published."""

    lines: bytes
    """One for each file, with a line feed between them."""
    rows: tuple[int, ...]
    """Of each file."""


class _Place(NamedTuple):
    """A partition whose files have been examined."""

    folder: str
    """Of its files, with a slash at its end; empty for a table without partitions."""
    start: bytes
    """Beginning of the lines of its files, up to their names."""
    middle: bytes
    """Bytes after the name, up to the size."""


class Examiner:
    """Validator of events against one schema of one table. It caches the folders of partitions."""

    def __init__(self, schema: TableSchema, location: str) -> None:
        self._schema = schema
        self._statistics = StatisticsCheck(schema.data)
        self._places: dict[tuple[tuple[str, str | None], ...], _Place] = {}
        """By the partition, in the order of the event."""
        self._location = location
        self._names = [(column.name, column.physical) for column in schema.partitions]
        self._folders: dict[tuple[str | None, ...], str] = {}

    def examine(self, event: FilesWritten) -> Entries:
        """Check all properties that the event itself can prove. Raises BadFiles with the first problem."""
        if event.location != self._location:
            raise BadFiles(f"the files are in {event.location}, but the table is in {self._location}")
        refuse_other_metadata(event, FORMAT, FORMAT_VERSION)
        for file in event.files:
            try:
                self._examine(file)
            except BadFiles as error:
                # The text shows what was sent, which may be long.
                raise BadFiles(str(error)[:_LONGEST_TEXT]) from error
        lines = b"\n".join([file.metadata for file in event.files])
        return Entries(lines, tuple(file.rows for file in event.files))

    def _examine(self, file: FileInfo) -> None:
        statistics = self._plain_statistics(file)
        if statistics is None:
            statistics = self._parsed_statistics(file)
        problem = self._statistics.problem(statistics, file.rows)
        if problem is not None:
            raise BadFiles(f"the entry of {file.path}: {problem}")

    def _plain_statistics(self, file: FileInfo) -> Any:
        """Return the statistics of a line whose other fields are as expected, in their one form.

        None if it is not of a known partition, or if something differs: parsing it shows what is wrong.
        """
        line, place = file.metadata, self._places.get(tuple(file.partition.items()))
        if place is None or not file.path.startswith(place.folder) or len(line) > _LONGEST_LINE:
            return None
        name = _NAME.fullmatch(file.path, len(place.folder))
        if name is None:
            return None
        start = b"%b%b%b%d" % (place.start, name[0].encode(), place.middle, file.size)
        found = _AFTER_SIZE.match(line, len(start)) if line.startswith(start) else None
        if found is None or not line.endswith(_END, found.end()):
            return None
        try:
            quoted = line[found.end() : -len(_END)].decode()
            text = quoted.replace('\\"', '"')
            # Without other escapes, and with no quote outside of one, it is the one form of the text.
            if "\\" in text or text.replace('"', '\\"') != quoted:
                return None
            return from_text(text)
        except ValueError:
            return None

    def _parsed_statistics(self, file: FileInfo) -> Any:
        """Return the statistics of a line, after checks of its other fields. Raises BadFiles."""
        added = _decode(file)
        self._examine_place(file, added["partitionValues"])
        claims: Sequence[tuple[str, object, object]] = (
            ("the path", added["path"], encoded(file.path)),
            ("the size", added["size"], file.size),
            ("dataChange", added["dataChange"], True),
        )
        for what, found, expected in claims:
            if found != expected or type(found) is not type(expected):
                raise BadFiles(
                    f"the entry of {file.path} has {what} {found!r} where {expected!r} is expected"
                )
        if not is_whole(added["modificationTime"]) or added["modificationTime"] < 0:
            raise BadFiles(f"the entry of {file.path} has no time: {added['modificationTime']!r}")
        try:
            statistics = from_text(added["stats"]) if isinstance(added["stats"], str) else None
        except ValueError as error:
            raise BadFiles(f"the statistics in the entry of {file.path} cannot be read: {error}") from error
        self._learn(file, added["partitionValues"])
        return statistics

    def _learn(self, file: FileInfo, values: Mapping[str, str | None]) -> None:
        folder = file.path[: file.path.rfind("/") + 1]
        self._places[tuple(file.partition.items())] = _Place(
            folder,
            b'{"add":{"path":"%b' % encoded(folder).encode(),
            b'","partitionValues":%b,"size":' % to_bytes(values),
        )

    def _examine_place(self, file: FileInfo, values: Any) -> None:
        """Check partition and path, which depend on each other."""
        expected = {physical for _, physical in self._names}
        if not isinstance(values, dict) or values.keys() != expected:
            raise BadFiles(f"the entry of {file.path} has the partition {values!r}, not one of {expected}")
        logical = {name: values[physical] for name, physical in self._names}
        if file.partition != logical:
            raise BadFiles(f"{file.path} is in the partition {logical}, not in {file.partition}")
        folder = self._folder(file, values)
        name = file.path.removeprefix(f"{folder}/" if folder else "")
        if (name == file.path and folder) or not _NAME.fullmatch(name):
            raise BadFiles(f"the path {file.path} is no data file in the folder {folder!r} of its partition")

    def _folder(self, file: FileInfo, values: Mapping[str, str | None]) -> str:
        key = tuple(values[physical] for _, physical in self._names)
        try:
            known = self._folders.get(key)
        except TypeError:
            raise BadFiles(f"the entry of {file.path} has the partition {values!r}, not texts") from None
        if known is None:
            for column in self._schema.partitions:
                text = values[column.physical]
                if not isinstance(text, str | None) or not is_partition_text(column, text):
                    raise BadFiles(
                        f"the entry of {file.path} has {text!r} for the partition column {column.name}, "
                        "which is no value of its type"
                    )
            known = self._folders[key] = partition_folder(self._schema.partitions, values)
        return known


def _decode(file: FileInfo) -> dict[str, Any]:
    """Return the fields of the entry. Raises BadFiles unless it is a single line that adds one file."""
    if len(file.metadata) > _LONGEST_LINE:
        raise BadFiles(f"the entry of {file.path} has {len(file.metadata)} bytes, more than {_LONGEST_LINE}")
    try:
        parsed = from_text(file.metadata)
    except ValueError as error:
        raise BadFiles(f"the entry of {file.path} cannot be read: {error}") from error
    added = parsed.get("add") if isinstance(parsed, dict) and len(parsed) == 1 else None
    if not isinstance(added, dict) or tuple(added) != _FIELDS:
        raise BadFiles(f"the entry of {file.path} is not one action that adds a file with {_FIELDS}")
    return added
