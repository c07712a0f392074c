"""Rows of each data file on their way to pypaimon's encoders, and the statistics that it makes of them.

The library's bounds leave NaN out, and take one of the two zeros. Java orders -0.0 before 0.0, and NaN last.
"""

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.common.file_io import FileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.write.writer.data_writer import DataWriter

from sluicegate.lakes.encodings import Dictionaries
from sluicegate.lakes.file_options import Compression, FileSettings
from sluicegate.lakes.floats import Counts, Floats
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
    ) -> None:
        """`compression` is that of the job, `unbounded` are columns without bounds in entries."""
        self._settings = settings
        self._level = compression.level if compression is not None else None
        self._unbounded = unbounded
        self._dictionaries = Dictionaries()
        self._counts: dict[str, Counts] = {}
        """By the name of the file."""
        for name in _FORMATS:
            setattr(files, f"write_{name}", self._looking(getattr(files, f"write_{name}"), name))

    def _looking(self, write: Any, name: str) -> Any:
        def looking(path: str, data: pa.Table, *arguments: Any, **options: Any) -> Any:
            if self._settings.sort:
                data = sorted_rows(data, self._settings.sort)
            floats = Floats(data.schema)
            counts = self._counts[path.rpartition("/")[2]] = floats.count(data)
            if name == "parquet":
                options |= self._parquet(data, floats, counts)
            return write(path, data, *arguments, **options)

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


def bounds_in_one_pass(store_write: Any) -> None:
    """Make the library's writers take both bounds of a column at once. Their values stay the same."""
    make = store_write._create_data_writer

    def made(*arguments: Any) -> Any:
        writer = make(*arguments)
        if writer._get_column_stats is DataWriter._get_column_stats:
            writer._get_column_stats = bounds_of
        return writer

    store_write._create_data_writer = made


def bounds_of(rows: pa.RecordBatch, name: str) -> dict[str, Any]:
    """Return what the library's `_get_column_stats` returns."""
    column = rows.column(name)
    bare = pa.types.is_nested(column.type) or pa.types.is_large_binary(column.type)
    if bare or column.null_count == len(column):
        return {"min_values": None, "max_values": None, "null_counts": column.null_count}
    both = pc.min_max(column)
    lowest, highest = both["min"].as_py(), both["max"].as_py()
    return {"min_values": lowest, "max_values": highest, "null_counts": column.null_count}
