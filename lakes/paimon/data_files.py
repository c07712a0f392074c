"""Rows of each data file on their way to pypaimon's encoders, and the statistics that it makes of them.

The library's bounds leave NaN out, and take one of the two zeros. Java orders -0.0 before 0.0, and NaN last.
Its bounds also end at microseconds, and have texts of any length.
"""

import io
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pypaimon.common.file_io import FileIO
from pypaimon.common.memory_size import MemorySize
from pypaimon.common.options import Options
from pypaimon.common.uri_reader import UriReaderFactory
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.write.writer.data_writer import DataWriter

from sluicegate.lakes.file_options import PREFIX, Compression, FileOptions, FileSettings
from sluicegate.lakes.paimon.upserts import deletions
from sluicegate.lakes.parquet import (
    BUFFER_ROWS,
    Counts,
    Dictionaries,
    Floats,
    event_time_range,
    shortened_above,
    shortened_bytes_above,
    sorted_rows,
)
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from sluicegate.lakes.storage import Storage

# Options of a table that the files of a writer depend on, and those that the library gets in their place.

HELD_BYTES: Final = 256 << 20
"""Rows in memory that have not reached a file, where the table has no `write-buffer-size`."""
_TARGET: Final = "target-file-size"
_ROW_GROUP: Final = "file.block-size"
_BUFFER: Final = "write-buffer-size"
_CODEC: Final = "file.compression"
_LEVEL: Final = "file.compression.zstd-level"
_STATS: Final = "metadata.stats-mode"
_UNBOUNDED: Final = ("none", "counts")
_ZSTD_LEVEL: Final = re.compile(r"[1-9]|1[0-9]|2[0-2]")
_CODECS: Final[Mapping[str, Mapping[str, str]]] = {
    "parquet": {
        **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "none")},
        # The name of Parquet for what Arrow writes as LZ4.
        "lz4_raw": "lz4",
        "uncompressed": "none",
    },
    "orc": {
        **{name: name for name in ("zstd", "snappy", "lz4", "zlib", "uncompressed")},
        "none": "uncompressed",
    },
    "avro": {
        **{name: name for name in ("zstd", "zstandard", "snappy", "deflate", "bzip2", "xz", "null")},
        "none": "null",
    },
}
"""By format of files, codecs of the library by their names in the option."""
_MODE: Final = re.compile(r"none|counts|full|truncate\(([1-9][0-9]{0,8})\)")
_LONGEST: Final = 128
"""Characters of a bound. Bounds travel in events, and in the manifests that every reader loads."""


def file_options(options: Mapping[str, str]) -> FileOptions:
    """Return the values of the table. Raises TableRefused for those that cannot be followed."""
    return FileOptions(target_size=_size(options, _TARGET), row_group_size=_size(options, _ROW_GROUP))


def held_bytes(options: Mapping[str, str], target: int) -> int:
    """Return the bytes of rows that may be in memory, for files of a target size. Raises TableRefused."""
    return _size(options, _BUFFER) or max(HELD_BYTES, target)


def library_options(files: FileOptions, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the library gets beside those of the table.

    Raises TableRefused for options of Parquet files, if the table has others.
    """
    found = {}
    if files.target_size is not None:
        found[_TARGET] = f"{files.target_size} b"
    if files.compression is not None or files.row_group_size is not None:
        _require_parquet(files, options)
    wanted = files.compression
    if wanted is not None:
        found[_CODEC] = "none" if wanted.codec == "uncompressed" else wanted.codec
    else:
        codec = _codec(options)
        if codec != options.get(_CODEC, "zstd"):
            found[_CODEC] = codec
        if not _has_level(options):
            wanted = Compression(codec)
    if wanted is not None and wanted.codec == "zstd":
        found[_LEVEL] = str(wanted.arguments()["compression_level"])
    # The statistics of a file contain its range of event times. `none` is an explicit choice of the user.
    if options.get(_STATS, "full") != "none" or files.statistics is not None:
        found[_STATS] = "full"
    return found


def unbounded(
    files: FileOptions, options: Mapping[str, str], columns: Collection[str], event_time: str | None
) -> frozenset[str]:
    """Return the columns that get no bounds. The column of the event time always has some."""
    bounded = files.bounded(columns, event_time)
    if bounded is not None:
        return frozenset(columns) - bounded
    modes = {name: _mode(options, name)[0] for name in columns}
    return frozenset(name for name, mode in modes.items() if mode in _UNBOUNDED and name != event_time)


def bound_lengths(options: Mapping[str, str], columns: Collection[str]) -> dict[str, int]:
    """Return how many characters or bytes a bound of each column has, at most. Raises TableRefused."""
    modes = {name: _mode(options, name) for name in columns}
    return {name: min(int(mode[1] or _LONGEST), _LONGEST) for name, mode in modes.items()}


def _mode(options: Mapping[str, str], column: str) -> re.Match[str]:
    """Return the mode of the statistics of a column. Raises TableRefused for one that Paimon lacks."""
    own = f"fields.{column}.stats-mode"
    name = own if own in options else _STATS
    text = options.get(name, "full")
    found = _MODE.fullmatch(text.strip().lower())
    if found is None:
        raise TableRefused(
            f"the option {name} = {text} of the table is no mode of statistics. Set it to none, counts, full "
            "or truncate(16)"
        )
    return found


def _codec(options: Mapping[str, str]) -> str:
    """Return the table's codec as the library names it. Raises TableRefused for one that it cannot write."""
    text, kind = options.get(_CODEC, "zstd"), options.get("file.format", "parquet").lower()
    codecs = _CODECS[kind]
    found = codecs.get(text.strip().lower())
    if found is None:
        raise TableRefused(
            f"the option {_CODEC} = {text} of the table is not supported for {kind} files. Set it to one of "
            f"{', '.join(codecs)}"
        )
    return found


def _has_level(options: Mapping[str, str]) -> bool:
    """Return True if the table has a level of zstd. Raises TableRefused for one that there is not."""
    text = options.get(_LEVEL)
    if text is None:
        return False
    if not _ZSTD_LEVEL.fullmatch(text.strip()):
        raise TableRefused(
            f"the option {_LEVEL} = {text} of the table is no level of zstd. Set it to a number from 1 to 22"
        )
    return True


def _require_parquet(files: FileOptions, options: Mapping[str, str]) -> None:
    file_format = options.get("file.format", "parquet").lower()
    if file_format != "parquet":
        named = "compression" if files.compression is not None else "row.group.size"
        raise TableRefused(
            f"the option {PREFIX}{named} is for Parquet, but the table has the option file.format = "
            f"{file_format}. Leave the option out, and set file.compression in the table"
        )


def _size(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return int(MemorySize.parse(text).get_bytes())
    except (ValueError, ArithmeticError) as error:
        raise TableRefused(
            f"the option {name} = {text} of the table is no size: {error}. Correct it, such as 128 mb"
        ) from error


# Bound on the rows that pypaimon keeps: it collects the rows of a file in memory, and writes it at once.


class _Held(NamedTuple):
    """Rows of a partition in memory."""

    size: int
    """Bytes."""
    rows: int


class OpenPartitions:
    """Partitions with rows in memory, the one that was written to last at the end."""

    def __init__(self, store_write: Any, most: int, most_bytes: int) -> None:
        """Watch the library's writer. It keeps rows of `most` partitions, and about `most_bytes` of them."""
        self._write = store_write.write
        self._writers: dict[Any, Any] = store_write.data_writers
        self._most = most
        self._most_bytes = most_bytes
        self._held: dict[Any, _Held] = {}
        """By partition and bucket."""
        store_write.write = self._watched

    def _watched(self, partition: tuple[Any, ...], bucket: int, data: Any, total_buckets: Any = None) -> None:
        self._write(partition, bucket, data, total_buckets)
        key = (partition, bucket)
        before = self._held.pop(key, _Held(0, 0))
        size, rows = before.size + data.nbytes, before.rows + data.num_rows
        # The library may have written full files meanwhile.
        left = int(self._writers[key].pending_row_count)
        self._held[key] = _Held(size * left // max(1, rows), left)
        while len(self._held) > self._most:
            self._close(next(iter(self._held)))
        if self._total() > self._most_bytes:
            self._relieve()

    def _total(self) -> int:
        return sum(each.size for each in self._held.values())

    def _relieve(self) -> None:
        """Write the largest partitions to files until the others may stay in memory."""
        total = self._total()
        for key in sorted(self._held, key=lambda each: self._held[each].size, reverse=True):
            if total <= self._most_bytes:
                return
            total -= self._held[key].size
            self._close(key)

    def _close(self, key: Any) -> None:
        """Write the rows of a partition to a file. Later rows of it begin another one."""
        del self._held[key]
        # The writer keeps the description of the file for the end of the attempt, or deletes it.
        self._writers[key].prepare_commit()


_FORMATS: Final = ("parquet", "orc", "avro")


class DataFiles:
    """Looks at the rows of each data file that goes through an access to files."""

    def __init__(
        self,
        files: FileIO,
        settings: FileSettings,
        compression: Compression | None,
        unbounded: Collection[str],
        event_time: str | None,
    ) -> None:
        """`compression` is that of the job, `unbounded` are columns without bounds in entries."""
        self._settings = settings
        self._event_time = event_time
        self._level = compression.level if compression is not None else None
        self._unbounded = unbounded
        self._dictionaries = Dictionaries()
        self._counts: dict[str, Counts] = {}
        """By the name of the file."""
        self._times: dict[str, tuple[int | None, int | None]] = {}
        """Event times in milliseconds, by the name of the file."""
        self._deletions: dict[str, int | None] = {}
        """By the name of the file; None: the table has no keys."""
        for name in _FORMATS:
            setattr(files, f"write_{name}", self._looking(getattr(files, f"write_{name}"), name))

    def _looking(self, write: Any, name: str) -> Any:
        def looking(path: str, data: pa.Table, *arguments: Any, **options: Any) -> Any:
            if self._settings.sort:
                data = sorted_rows(data, self._settings.sort)
            floats = Floats(data.schema)
            file = path.rpartition("/")[2]
            counts = self._counts[file] = floats.count(data)
            self._deletions[file] = deletions(data)
            if self._event_time is not None:
                self._times[file] = event_time_range(data.column(self._event_time))
            if name == "parquet":
                options |= self._parquet(data, floats, counts)
            elif name == "orc":
                _refuse_distant(data)
            try:
                return write(path, data, *arguments, **options)
            except (OverflowError, ValueError) as error:
                column = _unpythonic(data) if name == "avro" else None
                if column is None:
                    raise
                raise SchemaMismatch(
                    f"the column {column} has a value that Python cannot write to an Avro file: {error}. "
                    "Correct it, or use a table with the option file.format = parquet"
                ) from error

        return looking

    def _parquet(self, data: pa.Table, floats: Floats, counts: Counts) -> dict[str, Any]:
        """Return the arguments of `pyarrow.parquet.write_table` beside those of the library."""
        rows = int(data.num_rows * self._settings.row_group_size / max(1, data.nbytes))
        found = {
            "row_group_size": max(1, min(rows, BUFFER_ROWS)),
            "use_dictionary": self._dictionaries.columns(floats.leaves, data),
            "write_statistics": floats.with_statistics(counts),
        }
        # The library itself passes the level of zstd alone.
        return found if self._level is None else {**found, "compression_level": self._level}

    def event_times(self, file: DataFileMeta) -> tuple[int | None, int | None]:
        """Return the lowest and the highest event time of a file that was written."""
        return self._times.pop(file.file_name, (None, None))

    def correct(self, file: DataFileMeta) -> None:
        """Correct statistics and deletions of a file that was written, before they go into an entry."""
        counts, deleted = self._counts.pop(file.file_name), self._deletions.pop(file.file_name)
        if deleted is not None:
            file.delete_row_count = deleted
        lowest, highest = file.value_stats.min_values, file.value_stats.max_values
        for at, field in enumerate(lowest.fields):
            if field.name in self._unbounded or counts.nan[field.name,]:
                lowest.values[at] = highest.values[at] = None
            if (field.name,) not in counts.null:
                continue
            if lowest.values[at] == 0:
                lowest.values[at] = -0.0
            if highest.values[at] == 0:
                highest.values[at] = 0.0


def _refuse_distant(rows: pa.Table) -> None:
    """Raise SchemaMismatch for a time that Arrow, with which Python reads ORC files, takes for another one.

    It reads all times of ORC as nanoseconds of 64 bits, and lets larger ones overflow.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for chunk in column.chunks:
            for path, times in _times_in(chunk, name):
                try:
                    times.cast(pa.timestamp("ns", times.type.tz))
                except pa.ArrowInvalid as error:
                    raise SchemaMismatch(
                        f"the column {path} has a time outside of the years 1677 to 2262, which Python reads "
                        f"wrongly from ORC files: {error}. Correct it, or use a table with the option "
                        "file.format = parquet"
                    ) from error


def _times_in(column: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the timestamps in a column, also in nested ones, with the path of each."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        yield path, column
    elif pa.types.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            yield from _times_in(part, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _times_in(column.keys, f"{path}.key")
        yield from _times_in(column.items, f"{path}.value")
    elif pa.types.is_list(kind):
        yield from _times_in(column.flatten(), f"{path}.element")


def _unpythonic(rows: pa.Table) -> str | None:
    """Return the first column with a value that Python has no object for."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.to_pylist()
        except (OverflowError, ValueError):
            return str(name)
    return None


def take_bounds(store_write: Any, lengths: Mapping[str, int]) -> None:
    """Make the library's writers take bounds that hide no value, both at once.

    Its own ones have microseconds at most, and texts of any length. `lengths` are those of bounds, by column.
    """
    make = store_write._create_data_writer

    def bounds(rows: pa.RecordBatch, name: str) -> dict[str, Any]:
        return bounds_of(rows, name, lengths[name])

    def made(*arguments: Any) -> Any:
        writer = make(*arguments)
        if writer._get_column_stats is DataWriter._get_column_stats:
            writer._get_column_stats = bounds
        return writer

    store_write._create_data_writer = made


def bounds_of(rows: pa.RecordBatch, name: str, length: int) -> dict[str, Any]:
    """Return what the library's `_get_column_stats` returns, with bounds of texts of so many characters."""
    column = rows.column(name)
    lowest, highest = _bounds(column, length) if column.null_count < len(column) else (None, None)
    if lowest is None or highest is None:
        # Readers use one bound only beside the other.
        lowest = highest = None
    return {"min_values": lowest, "max_values": highest, "null_counts": column.null_count}


def _bounds(column: pa.ChunkedArray, length: int) -> tuple[Any, Any]:
    """Return the bounds as the library's rows have them; None for one that it cannot write."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_large_binary(kind):
        return None, None
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _of_nanoseconds(column)
    both = pc.min_max(column)
    try:
        lowest, highest = both["min"].as_py(), both["max"].as_py()
    except (OverflowError, ValueError):
        # A time or a date that Python does not have.
        return None, None
    if isinstance(highest, str):
        return lowest[:length], shortened_above(highest, length)
    if isinstance(highest, bytes):
        return lowest[:length], shortened_bytes_above(highest, length)
    return lowest, highest


def _of_nanoseconds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the bounds in microseconds, the upper one rounded up: the library's rows have no more digits."""
    both = pc.min_max(column.cast(pa.int64())).as_py()
    micros = pa.array([both["min"] // 1_000, -(-both["max"] // 1_000)]).view(
        pa.timestamp("us", column.type.tz)
    )
    lowest, highest = micros.to_pylist()
    return lowest, highest


# pypaimon's access to files that are not on a local file system, through the storage of the table.


class StoredFiles(PyArrowFileIO):  # type: ignore[misc]
    """Files of one table. Its encoders of data files are the library's own.

    pypaimon's own access would need credentials in the table's options, and repeats uploads by other rules.
    """

    def __init__(self, storage: Storage) -> None:
        # The constructor of the library would open a client of its own.
        self.properties = Options({})
        self.logger = logging.getLogger(__name__)
        self.uri_reader_factory = UriReaderFactory(self.properties)
        self._storage = storage

    def new_input_stream(self, path: str) -> Any:
        content = self._storage.read(self._name(path))
        if content is None:
            raise FileNotFoundError(f"there is no file {path}")
        return pa.BufferReader(content)

    def new_output_stream(self, path: str) -> "_Upload":
        folder, _, name = self._name(path).rpartition("/")
        return _Upload(lambda content: self._storage.write(folder or ".", {name: content}))

    def get_file_status(self, path: str) -> pafs.FileInfo:
        size = self._storage.size(self._name(path))
        if size is None:
            raise FileNotFoundError(f"there is no file {path}")
        return pafs.FileInfo(path, pafs.FileType.File, size=size)

    def list_status(self, path: str) -> list[pafs.FileInfo]:
        names = self._storage.names(self._name(path))
        return [pafs.FileInfo(f"{path}/{name}", pafs.FileType.Unknown) for name in sorted(names)]

    def exists(self, path: str) -> bool:
        name = self._name(path)
        return self._storage.size(name) is not None or bool(self._storage.names(name))

    def exists_batch(self, paths: list[str]) -> dict[str, bool]:
        return {path: self.exists(path) for path in paths}

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Delete a file; folders stay."""
        return self._storage.remove(self._name(path))

    def mkdirs(self, path: str) -> bool:
        """Do nothing: the storage makes folders with files."""
        return True

    def rename(self, src: str, dst: str) -> bool:
        raise NotImplementedError("a storage has no rename")

    def to_filesystem_path(self, path: str) -> str:
        return path

    def _name(self, path: str) -> str:
        return path.removeprefix(self._storage.root).strip("/") or "."


class _Upload(io.BytesIO):
    """A file that is sent when its context ends without an error."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._send(self.getvalue())
        self.close()
