"""Rows of each data file on their way to pypaimon's encoders, and the statistics that it makes of them.

The library's bounds leave NaN out, and take one of the two zeros. Java orders -0.0 before 0.0, and NaN last.
Its bounds also end at microseconds, and have texts of any length.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.common.file_io import FileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.write.writer.data_writer import DataWriter

from sluicegate.lakes.bounds import shortened_above, shortened_bytes_above
from sluicegate.lakes.encodings import Dictionaries
from sluicegate.lakes.event_time import event_time_range
from sluicegate.lakes.file_options import Compression, FileSettings
from sluicegate.lakes.floats import Counts, Floats
from sluicegate.lakes.port import SchemaMismatch
from sluicegate.lakes.row_buffer import BUFFER_ROWS
from sluicegate.lakes.sorting import sorted_rows

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
        for name in _FORMATS:
            setattr(files, f"write_{name}", self._looking(getattr(files, f"write_{name}"), name))

    def _looking(self, write: Any, name: str) -> Any:
        def looking(path: str, data: pa.Table, *arguments: Any, **options: Any) -> Any:
            if self._settings.sort:
                data = sorted_rows(data, self._settings.sort)
            floats = Floats(data.schema)
            file = path.rpartition("/")[2]
            counts = self._counts[file] = floats.count(data)
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
        """Correct the statistics of a file that was written, before they go into an entry."""
        counts = self._counts.pop(file.file_name)
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
