"""Parquet files of the writers: the rows that go into each, its encodings, and its statistics.

Readers skip rows by statistics. So the rule of this module is that a bound is never narrower than the values;
it may be wider, or missing.
"""

import contextlib
import decimal
import json
import posixpath
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluicegate.events.models import (
    LONGEST_FIELD_NAME,
    LONGEST_PATH,
    MOST_PARTITION_FIELDS,
    MOST_PARTITION_VALUE,
    FileInfo,
)
from sluicegate.lakes.arrow import conform
from sluicegate.lakes.file_options import DEFAULT_ROW_GROUP, FileSettings, SortColumn
from sluicegate.lakes.port import BadFiles, SchemaMismatch, TableRefused
from sluicegate.lakes.storage import Storage, is_too_long, unwritable
from sluicegate.lakes.storage_local import make_inside

_SLACK: Final = 0.1
"""Share of the target that a file may be above it, or below it, without a further row group."""

_LEAST: Final = 64 << 10
"""Bytes in memory of the smallest row group that rows are divided into."""
HELD_BYTES: Final = 256 << 20
"""Bytes of open files that are kept in memory, if the table is in an object store."""

P = TypeVar("P")
"""A partition, as a format has it."""


class Rolling:
    """Number of the next rows that go into a file, by the sizes of all files of one writer before."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._rows = self._encoded = 0
        """Bytes of rows in memory, and in files."""

    def fitting(self, rows: pa.Table, size: int) -> int:
        """Return how many of the rows go into a file of this size: at least one."""
        room = max(self._target - size, 0)
        # Before any row group was written, rows count as in memory: that is too much, not too little.
        share = self._encoded / self._rows if self._rows else 1.0
        count, held = int(rows.num_rows), int(rows.nbytes)
        expected = held * share
        if expected <= room + self._target * _SLACK:
            return count
        return min(count, max(1, int(count * max(_LEAST / held, room / expected))))

    def is_full(self, size: int) -> bool:
        """Return True if a file of this size is complete."""
        return size >= self._target * (1 - _SLACK)

    def learn(self, rows: int, encoded: int) -> None:
        """Take the size of a row group into account: in memory, and in the file."""
        self._rows += rows
        self._encoded += encoded


def close_broken(writer: pq.ParquetWriter, sink: Any) -> None:
    """Close a file that nobody will read. No error of it hides the one for which its attempt was given up."""
    # The end of the file is not needed, but a writer that is left open would write it later.
    with contextlib.suppress(Exception):
        writer.close()
    # Else the collector of Python would try it again.
    writer.is_open = False
    with contextlib.suppress(Exception):
        sink.close()


class DataFile(Generic[P]):
    """A data file that is being written, of one partition."""

    def __init__(self, path: str, partition: P, sink: pa.NativeFile, parquet: pq.ParquetWriter) -> None:
        """`path` is relative to the folder of the data files."""
        self.path: Final = path
        self.partition: Final = partition
        self.sink: Final = sink
        self.parquet: Final = parquet
        self.counts: Final = Counts()
        self.times: tuple[int | None, int | None] = (None, None)
        """Event times in milliseconds."""

    @property
    def size(self) -> int:
        """Bytes that were written so far."""
        return int(self.sink.tell())

    def write(self, rows: pa.Table, counts: "Counts", event_times: pa.ChunkedArray | None) -> None:
        """Add one row group. Raises OSError."""
        self.counts.add(counts)
        if event_times is not None:
            found = [*zip(self.times, event_time_range(event_times), strict=True)]
            lowest, highest = ([time for time in both if time is not None] for both in found)
            self.times = min(lowest, default=None), max(highest, default=None)
        self.parquet.write_table(rows, rows.num_rows)


class RollingWriter(ABC, Generic[P]):
    """A writer half that makes Parquet files itself, with one open file for each partition at most.

    A file is closed at its target size, and before rows that would put NaN into a column with statistics. If
    too many files are open, the one that was written to longest ago is closed. A subclass has the table's
    partitions, paths and metadata.
    """

    def __init__(
        self,
        storage: Storage,
        location: str,
        columns: pa.Schema,
        parquet: pa.Schema,
        settings: FileSettings,
        event_time: str | None,
        options: Mapping[str, Any],
    ) -> None:
        """Prepare a writer for the folder of data files, which is `location` in events.

        `columns` are those of the table, `parquet` those of its files. `options` are further arguments of
        `pyarrow.parquet.ParquetWriter`. Raises TableRefused if there is no usable column of event times.
        """
        self.location = location
        self._storage = storage
        self._parquet = parquet
        self._options = {**options, **settings.compression.arguments()}
        self._event_time = event_time
        self._most_open = settings.open_partitions
        self._buffer = RowBuffer(location, columns, event_time, settings.row_group_size, settings.sort)
        self._floats = Floats(parquet)
        self._dictionaries = Dictionaries()
        self._rolling = Rolling(settings.target_size)
        self._open: dict[Hashable, DataFile[P]] = {}
        """By the key of the partition; the one that was written to last is the last."""
        self._infos: list[FileInfo] = []
        self._paths: list[str] = []
        """Of all files, also of those that could not be opened."""
        self._described = False

    @abstractmethod
    def _split(self, rows: pa.Table) -> Iterator[tuple[Hashable, P, pa.Table]]:
        """Yield the rows of each partition, with the key that only this partition has."""

    @abstractmethod
    def _data(self, rows: pa.Table) -> pa.Table:
        """Return rows of one partition with the columns of data files."""

    @abstractmethod
    def _new_path(self, partition: P) -> str:
        """Return the path of a new file. Raises SchemaMismatch for values that no event can have."""

    @abstractmethod
    def _event_partition(self, partition: P) -> Mapping[str, str | None]:
        """Return the values of a partition as events have them."""

    @abstractmethod
    def _metadata(self, file: DataFile[P], footer: pq.FileMetaData, size: int) -> bytes:
        """Return the table's metadata of a complete file."""

    def write(self, batch: pa.RecordBatch) -> None:
        if self._buffer.add(batch):
            self._flush()

    def finish(self) -> Iterator[FileInfo]:
        self._flush()
        with self._storage_failures():
            for key in list(self._open):
                self._close(key)
            self._settle()
        self._described = True
        return iter(self._infos)

    def abort(self) -> None:
        self._buffer.clear()
        if self._described:
            return
        for file in self._open.values():
            close_broken(file.parquet, file.sink)
        self._open.clear()
        # No event describes these files, so nothing can refer to them.
        self._storage.discard(".", self._paths)

    def _settle(self) -> None:
        """Make complete files durable. Raises LakeUnavailable."""
        self._storage.settle_files([info.path for info in self._infos])

    @contextlib.contextmanager
    def _storage_failures(self) -> Iterator[None]:
        """Raise SchemaMismatch for a path that is too long, LakeUnavailable for any other OSError."""
        try:
            yield
        except OSError as error:
            if is_too_long(error):
                raise too_long_path(self.location, error) from error
            raise unwritable(self.location, error) from error

    def _flush(self) -> None:
        rows = self._buffer.take()
        if rows is None:
            return
        with self._storage_failures():
            for key, partition, part in self._split(rows):
                self._write_part(key, partition, part)
            self._limit_memory()

    def _write_part(self, key: Hashable, partition: P, rows: pa.Table) -> None:
        data = self._data(rows)
        times = rows.column(self._event_time) if self._event_time is not None else None
        start = 0
        while start < data.num_rows:
            file = self._open.get(key)
            number = self._rolling.fitting(data.slice(start), file.size if file is not None else 0)
            part = times.slice(start, number) if times is not None else None
            self._write_group(key, partition, data.slice(start, number), part)
            start += number

    def _write_group(
        self, key: Hashable, partition: P, data: pa.Table, times: pa.ChunkedArray | None
    ) -> None:
        counts = self._floats.count(data)
        file = self._file(key, partition, data, counts)
        before = file.size
        file.write(data, counts, times)
        self._rolling.learn(data.nbytes, file.size - before)
        if self._rolling.is_full(file.size):
            self._close(key)

    def _file(self, key: Hashable, partition: P, rows: pa.Table, counts: "Counts") -> DataFile[P]:
        """Return a file for rows of a partition, now the last one in order."""
        if key in self._open and counts.spoils(self._open[key].counts):
            self._close(key)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) >= self._most_open:
                self._close(next(iter(self._open)))
            file = self._create(partition, rows, counts)
        self._open[key] = file
        return file

    def _create(self, partition: P, rows: pa.Table, counts: "Counts") -> DataFile[P]:
        """Open a new file. `rows` are its first ones, which decide on the dictionaries."""
        path = self._new_path(partition)
        refuse_long_path(self.location, path)
        self._paths.append(path)
        sink = self._sink(path)
        writer = pq.ParquetWriter(
            sink,
            self._parquet,
            use_dictionary=self._dictionaries.columns(self._floats.leaves, rows),
            write_statistics=self._floats.with_statistics(counts),
            **self._options,
        )
        return DataFile(path, partition, sink, writer)

    def _sink(self, path: str) -> pa.NativeFile:
        """Open a file. Where it is not local, its content is kept until it is complete. Raises OSError."""
        if not self._storage.local:
            return pa.BufferOutputStream()
        make_inside(self._storage.root, posixpath.dirname(path))
        return pa.OSFile(f"{self._storage.root}/{path}", "wb")

    def _limit_memory(self) -> None:
        """Upload the largest open files until the others may stay in memory."""
        if self._storage.local:
            return
        sizes = {key: file.size for key, file in self._open.items()}
        held = sum(sizes.values())
        for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if held <= HELD_BYTES:
                return
            held -= sizes[key]
            self._close(key)

    def _close(self, key: Hashable) -> None:
        """Complete a file and describe it. If that fails, it stays open, so that `abort` closes it."""
        file = self._open[key]
        file.parquet.close()
        footer, size = file.parquet.writer.metadata, file.size
        if not self._storage.local:
            folder, name = posixpath.split(file.path)
            self._storage.write(folder or ".", {name: file.sink.getvalue().to_pybytes()})
        else:
            file.sink.close()
        lowest, highest = file.times
        info = FileInfo(
            path=file.path,
            size=size,
            rows=footer.num_rows,
            partition=self._event_partition(file.partition),
            min_event_time=lowest,
            max_event_time=highest,
            metadata=self._metadata(file, footer, size),
        )
        del self._open[key]
        self._infos.append(info)


# Rows in a sort order, as in Spark and Iceberg: NaN is above all numbers, nulls are first or last.


def sorted_rows(rows: pa.Table, order: Sequence[SortColumn]) -> pa.Table:
    """Return the rows in an order. Rows that are equal in it keep their places among each other."""
    keys: list[pa.ChunkedArray] = []
    directions: list[str] = []
    for each in order:
        column = rows.column(each.name)
        if column.null_count:
            # False is before true.
            keys.append(pc.is_valid(column) if each.nulls_first else pc.is_null(column))
            directions.append("ascending")
        if pa.types.is_floating(column.type):
            # Arrow alone puts NaN after the numbers in both directions.
            keys.append(pc.fill_null(pc.is_nan(column), fill_value=False))
            directions.append("descending" if each.descending else "ascending")
        keys.append(column)
        directions.append("descending" if each.descending else "ascending")
    if not keys:
        return rows
    names = [str(number) for number in range(len(keys))]
    found = pc.sort_indices(
        pa.Table.from_arrays(keys, names=names), sort_keys=list(zip(names, directions, strict=True))
    )
    return rows.take(found)


# Event times in milliseconds since the Unix epoch. Times without a zone count as UTC.

_LIMIT: Final = 1 << 63
"""Milliseconds. Only a time in seconds can be outside of it."""


def event_time_range(column: pa.Array | pa.ChunkedArray) -> tuple[int | None, int | None]:
    """Return the lowest and highest event time of a column in milliseconds; None if it has no values.

    Integers are milliseconds; dates stand for their first moment. Raises SchemaMismatch for other types, and
    for times that have too many milliseconds.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_millisecond = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[kind.unit]
        factor = 1_000 if kind.unit == "s" else 1
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        per_millisecond = factor = 1
    elif pa.types.is_integer(kind):
        per_millisecond = factor = 1
    else:
        raise SchemaMismatch(f"an event time must be a timestamp, a date or milliseconds, not {kind}")
    found = pc.min_max(column).as_py()
    lowest, highest = found["min"], found["max"]
    both = [None if each is None else int(each) * factor // per_millisecond for each in (lowest, highest)]
    for time in both:
        if time is not None and not -_LIMIT <= time < _LIMIT:
            raise SchemaMismatch(f"an event time of {time} milliseconds is out of range. Correct the rows")
    return both[0], both[1]


# Rows that a writer keeps until they are worth a row group, whatever the size of the batches it is given.

BUFFER_ROWS: Final = 1 << 20


class RowBuffer:
    """Rows in the columns of a table."""

    def __init__(
        self,
        location: str,
        columns: pa.Schema,
        event_time: str | None,
        most_bytes: int = DEFAULT_ROW_GROUP,
        order: Sequence[SortColumn] = (),
    ) -> None:
        """Keep rows for the table at `location`; event times come from the column `event_time`.

        `take` returns the rows in the order, once they are `most_bytes` or BUFFER_ROWS.

        Raises TableRefused if the table has no such column, or if its values are no times.
        """
        self._columns = columns
        self._event_time = event_time
        self._most_bytes = most_bytes
        self._order = order
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        if event_time is None:
            return
        if event_time not in columns.names:
            raise TableRefused(f"{location} has no column {event_time} to take event times from")
        try:
            self._check_times(event_time, pa.nulls(0, columns.field(event_time).type))
        except SchemaMismatch as error:
            raise TableRefused(str(error)) from error

    def add(self, batch: pa.RecordBatch) -> bool:
        """Keep rows; return True if there are enough to be written. Raises SchemaMismatch."""
        if self._event_time is not None and self._event_time not in batch.schema.names:
            raise SchemaMismatch(
                f"the rows have no column {self._event_time}, which event times are to be taken from"
            )
        # An empty batch is checked, too, so that a wrong schema fails early.
        fitting = conform(batch, self._columns)
        if self._event_time is not None:
            # Before a file has the rows.
            self._check_times(self._event_time, fitting.column(self._event_time))
        if fitting.num_rows:
            self._batches.append(fitting)
            self._rows += fitting.num_rows
            self._bytes += fitting.nbytes
        return self._rows >= BUFFER_ROWS or self._bytes >= self._most_bytes

    def _check_times(self, name: str, column: pa.Array) -> None:
        """Raise SchemaMismatch for event times that no event can have."""
        try:
            event_time_range(column)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"the column {name}: {error}") from error

    def take(self) -> pa.Table | None:
        """Return all rows, and forget them; None if there are none."""
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches, schema=self._columns).combine_chunks()
        self.clear()
        return sorted_rows(rows, self._order) if self._order else rows

    def clear(self) -> None:
        """Forget all rows."""
        self._batches.clear()
        self._rows = self._bytes = 0


# Dictionaries in Parquet files, for the columns where they make a file smaller.
#
# pyarrow encodes every column with a dictionary until the dictionary is full. For a column of distinct
# values, the file then has both the dictionary and the references to it. Parquet's Java library drops a
# dictionary that does not pay for its first page; the rule here is the same.

_FIRST: Final = 2_000
"""Rows that decide about a column if its values clearly repeat."""
_SAMPLE: Final = 20_000
"""Rows that decide about the other columns: those of a page of Parquet's Java library."""
_CLEARLY: Final = 0.9
"""Size with a dictionary, as a share of that without one, at which the first rows are enough."""


class Dictionaries:
    """Choice of the columns with a dictionary, for the files of one writer.

    The rows of a whole sample decide about a column for all files that follow.
    """

    def __init__(self) -> None:
        self._settled: dict[str, bool] = {}

    def columns(self, leaves: Sequence[str], rows: pa.Table) -> list[str] | bool:
        """Return the columns with a dictionary, in the form of `ParquetWriter`.

        `leaves` are the paths of all columns of the file, `rows` the first rows of it. A column inside of a
        list, a map or a struct always has a dictionary.
        """
        bare = {name for name in rows.schema.names if not self._pays(name, rows.column(name))}
        return [path for path in leaves if path not in bare] if bare else True

    def _pays(self, name: str, column: pa.ChunkedArray) -> bool:
        if name in self._settled:
            return self._settled[name]
        pays = _pays(column)
        if len(column) >= _SAMPLE:
            self._settled[name] = pays
        return pays


def _pays(column: pa.ChunkedArray) -> bool:
    """Return True if a dictionary makes a column smaller."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return True
    share = _share(column.slice(0, _FIRST))
    if share > _CLEARLY and len(column) > _FIRST:
        share = _share(column.slice(0, _SAMPLE))
    return share < 1


def _share(column: pa.ChunkedArray) -> float:
    """Return the size of a column with a dictionary, as a share of that without one."""
    values = column.drop_null() if column.null_count else column
    if not len(values):
        return 0
    distinct, width = _distinct(values), _bytes_of_value(values)
    references = max(1, (distinct - 1).bit_length()) / 8
    return (distinct * width / len(values) + references) / width


def _distinct(values: pa.ChunkedArray) -> int:
    try:
        return int(pc.count_distinct(values).as_py())
    except pa.ArrowNotImplementedError:
        return 0


def _bytes_of_value(values: pa.ChunkedArray) -> float:
    """Return the bytes of a value in a file, on average."""
    kind = values.type
    if pa.types.is_primitive(kind):
        # Parquet has no numbers of fewer bits than 32.
        return max(4.0, int(kind.bit_width) / 8)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return float(kind.byte_width)
    return 4 + (pc.sum(pc.binary_length(values)).as_py() or 0) / max(1, len(values))


# Bounds of long texts and bytes, shortened so that they are never narrower than the values.
#
# Readers skip a file by its bounds. A lower bound may be cut; an upper one must be moved up when it is cut.

_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_HIGHEST: Final = b"\xff"


def shortened_above(text: str, length: int) -> str | None:
    """Return a text of so many characters, at most, that is not below another one; None if there is none."""
    if len(text) <= length:
        return text
    start = text[:length].rstrip(chr(_LAST))
    if not start:
        return None
    following = ord(start[-1]) + 1
    # They are no characters, so no text in UTF-8 has one.
    return start[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def shortened_bytes_above(value: bytes, length: int) -> bytes | None:
    """Return so many bytes, at most, that are not below others; None if there are none."""
    if len(value) <= length:
        return value
    start = value[:length].rstrip(_HIGHEST)
    return start[:-1] + bytes([start[-1] + 1]) if start else None


# Lowest and highest values of the columns of Parquet files, from their footers, as the files store them.
#
# A bound that a footer has may be wider than the values. Where it could be narrower, there is none:
#
# - Columns of floats have none, unless the caller knows that they have no NaN. Writers leave NaN out of
#   bounds, and readers take NaN for the highest number.
# - A column has none if a row group with values has none.
# - An empty text is no upper bound: the library gives one where a footer has only a lower bound.

_FLOATS: Final = ("FLOAT", "DOUBLE")
_UNORDERED: Final = "INT96"
_VIEWED: Final = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_time)


class Extremes(NamedTuple):
    """Bounds of a column over all row groups, and the number of its nulls."""

    lowest: Any
    """As the file stores it; None: no bound."""
    highest: Any
    nulls: int | None
    """None: unknown. In columns with lists or maps around them, also empty ones count."""

    @property
    def bounded(self) -> bool:
        return self.lowest is not None


def extremes_of(footer: pq.FileMetaData, number: int, *, without_nan: bool = False) -> Extremes:
    """Return the extremes of a column, by its number in the file. Raises any error for malformed bytes.

    `without_nan`: statistics of floats are those of columns without NaN.
    """
    leaf = footer.schema.column(number)
    chunks = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
    parts = [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]
    nulls: int | None = 0
    for chunk, part in zip(chunks, parts, strict=True):
        found = part.null_count if part is not None and part.has_null_count else None
        if found is not None and not 0 <= found <= chunk.num_values:
            raise ValueError(f"{found} of {chunk.num_values} values of {leaf.path} are null")
        nulls = nulls + found if nulls is not None and found is not None else None
    if leaf.physical_type == _UNORDERED or (leaf.physical_type in _FLOATS and not without_nan):
        return Extremes(None, None, nulls)
    bounds = []
    for chunk, part in zip(chunks, parts, strict=True):
        if part is None or not part.has_min_max:
            if part is not None and part.has_null_count and part.null_count == chunk.num_values:
                continue
            return Extremes(None, None, nulls)
        if part.max_raw == b"":
            return Extremes(None, None, nulls)
        bounds.append((_ordered(leaf, part.min_raw), _ordered(leaf, part.max_raw)))
    if not bounds or any(low > high for low, high in bounds):
        return Extremes(None, None, nulls)
    return Extremes(min(low for low, _ in bounds), max(high for _, high in bounds), nulls)


def _ordered(leaf: Any, raw: Any) -> Any:
    """Return a raw bound in a form that compares as the column's values do."""
    if isinstance(raw, bytes) and json.loads(leaf.logical_type.to_json())["Type"] == "Decimal":
        return int.from_bytes(raw, "big", signed=True)
    return raw


def unbounded(footer: pq.FileMetaData) -> Iterator[tuple[str, Extremes]]:
    """Yield the columns without bounds that readers may use, or without a number of nulls, by their path."""
    for number in range(footer.num_columns):
        found = extremes_of(footer, number)
        if not found.bounded or found.nulls is None:
            yield footer.schema.column(number).path, found


def extreme_values(footer: pq.FileMetaData, number: int, kind: pa.DataType) -> pa.Array | None:
    """Return the lowest and the highest value of a column, of its type; one null if all are.

    None if they are unknown, or if values and nulls are mixed. Raises any error for malformed bytes.
    """
    found, rows = extremes_of(footer, number), footer.num_rows
    if found.nulls == rows:
        return pa.nulls(1, kind)
    if found.nulls != 0 or not found.bounded:
        return None
    bounds = [found.lowest, found.highest]
    if pa.types.is_decimal(kind):
        scaled = [decimal.Decimal(each).scaleb(-kind.scale, decimal.Context(prec=80)) for each in bounds]
        return pa.array(scaled, kind)
    if any(is_viewed(kind) for is_viewed in _VIEWED):
        return pa.array(bounds, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([each.decode() for each in bounds], kind)
    return pa.array(bounds, kind)


# Columns of floats: Parquet files get no statistics of those with NaN.
#
# Parquet writers leave NaN out of their bounds. DuckDB and Spark take NaN for the highest number, so by
# such bounds they would skip rows that a filter must find. Zeros are no problem: Parquet writes the bounds
# -0.0 and +0.0.


class Floats:
    """Columns of floats of one schema of files, also inside of structs."""

    def __init__(self, schema: pa.Schema) -> None:
        made = pq.ParquetWriter(pa.BufferOutputStream(), schema, store_schema=False)
        made.close()
        parquet = made.writer.metadata.schema
        leaves = [parquet.column(number) for number in range(len(parquet))]
        self.leaves: Final = tuple(leaf.path for leaf in leaves)
        """Paths of all columns, as Parquet names them."""
        paths = [leaf.path for leaf in leaves if leaf.physical_type in _FLOATS]
        self._floats: Final = tuple(zip(paths, _floats(schema), strict=True))
        """Path and names of each column of floats. Two columns may have one path."""
        self.names: Final = tuple(names for _, names in self._floats if names is not None)
        """Names of each column of floats from the outside to the inside. None is in a list or a map."""

    def count(self, rows: pa.Table) -> "Counts":
        """Count NaN and null in all columns of floats. `rows` have the names of the schema."""
        counts = Counts()
        for names in self.names:
            column = rows.column(names[0])
            if len(names) > 1:
                # A list, since Arrow parses a single name: `.a` would be `a`.
                column = pc.struct_field(column, list(names[1:]))
            counts.nan[names] = pc.sum(pc.is_nan(column)).as_py() or 0
            counts.null[names] = column.null_count
        return counts

    def with_statistics(self, counts: "Counts") -> bool | list[str]:
        """Return the columns of a file that get statistics, in the form of `ParquetWriter`.

        `counts` are those of the first rows. Later rows must fit them (`Counts.spoils`).
        """
        bare = self.without_statistics(counts)
        return [path for path in self.leaves if path not in bare] if bare else True

    def without_statistics(self, counts: "Counts") -> set[str]:
        """Return the columns of a file that get none: those with NaN, and all floats in lists and maps.

        A path may be that of another column, too: the column `a.b`, and the column `b` in `a`. Then neither
        gets statistics.
        """
        return {path for path, names in self._floats if names is None or counts.nan[names]}


class Counts:
    """Numbers of NaN and null in the columns of floats of one file, by `Floats.names`."""

    def __init__(self) -> None:
        self.nan: Counter[tuple[str, ...]] = Counter()
        self.null: Counter[tuple[str, ...]] = Counter()

    def spoils(self, other: "Counts") -> bool:
        """True if rows with these counts must not follow rows with the other ones.

        Their NaN would come into a column that has statistics.
        """
        return any(count and not other.nan[names] for names, count in self.nan.items())

    def add(self, other: "Counts") -> None:
        """Add the counts of more rows of the file."""
        self.nan.update(other.nan)
        self.null.update(other.null)


def _floats(schema: pa.Schema) -> Iterator[tuple[str, ...] | None]:
    """Yield the names of each column of floats, in the order of a Parquet file; None in a list or a map."""
    for field in schema:
        yield from _floats_in(field.type, (field.name,))


def _floats_in(kind: pa.DataType, names: tuple[str, ...] | None) -> Iterator[tuple[str, ...] | None]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _floats_in(field.type, None if names is None else (*names, field.name))
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _floats_in(kind.field(number).type, None)
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        yield names


# Columns of Parquet files that other programs wrote, compared with those that a table's files must have.

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
            if sorted(names) == sorted(self.paths):
                return f"it has the columns in the order {list(names)}"
            return f"it lacks the columns {lacking}, and has {strange} instead"
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


def refuse_long_values(values: Mapping[str, str | None]) -> None:
    """Check the values of a partition, by field, before a file of it is written. Raises SchemaMismatch."""
    for name, value in values.items():
        if value is not None and len(value) > MOST_PARTITION_VALUE:
            raise SchemaMismatch(
                f"the value of the partition field {name} has {len(value)} characters, and an event at most "
                f"{MOST_PARTITION_VALUE}. Partition the table by a shorter column, or by a part of this one"
            )


def refuse_long_names(location: str, names: Sequence[str]) -> None:
    """Check the names of a table's partition fields before a file is written. Raises TableRefused."""
    if len(names) > MOST_PARTITION_FIELDS:
        raise TableRefused(
            f"{location} has {len(names)} partition fields, and an event at most {MOST_PARTITION_FIELDS}. "
            "Partition the table by fewer fields"
        )
    for name in names:
        if len(name) > LONGEST_FIELD_NAME:
            raise TableRefused(
                f"the partition field {name} of {location} has a name of {len(name)} characters, and an "
                f"event at most {LONGEST_FIELD_NAME}. Rename the field"
            )


def refuse_long_path(location: str, path: str) -> None:
    """Check the path of a file before it is written. Raises SchemaMismatch."""
    if len(path) > LONGEST_PATH:
        raise too_long_path(
            location, f"{path[:100]}... has {len(path)} characters, and an event at most {LONGEST_PATH}"
        )


def too_long_path(location: str, reason: object) -> SchemaMismatch:
    """Return the error of a partition whose folder no file can be in."""
    return SchemaMismatch(
        f"a partition of the rows has a folder whose path is too long for {location}: {reason}. Partition "
        "the table by fewer fields, or move it to a shorter path"
    )
