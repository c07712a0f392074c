"""Bounds of columns of floats, of files that pypaimon writes: without those that readers take for too narrow.

The library's bounds leave NaN out, and take one of the two zeros. Java orders -0.0 before 0.0, and NaN last.
"""

from typing import Any, Final

import pyarrow as pa
from pypaimon.common.file_io import FileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta

from sluicegate.lakes.floats import Counts, Floats

_FORMATS: Final = ("parquet", "orc", "avro")


class FloatBounds:
    """Looks at the rows of each data file that goes through an access to files."""

    def __init__(self, files: FileIO) -> None:
        self._counts: dict[str, Counts] = {}
        """By the name of the file."""
        for name in _FORMATS:
            setattr(files, f"write_{name}", self._looking(getattr(files, f"write_{name}"), name))

    def _looking(self, write: Any, name: str) -> Any:
        def looking(path: str, data: pa.Table, *arguments: Any, **options: Any) -> Any:
            floats = Floats(data.schema)
            counts = self._counts[path.rpartition("/")[2]] = floats.count(data)
            if name == "parquet":
                options["write_statistics"] = floats.with_statistics(counts)
            return write(path, data, *arguments, **options)

        return looking

    def correct(self, file: DataFileMeta) -> None:
        """Correct the statistics of a file that was written, before they go into an entry."""
        counts = self._counts.pop(file.file_name)
        lowest, highest = file.value_stats.min_values, file.value_stats.max_values
        for at, field in enumerate(lowest.fields):
            if (field.name,) not in counts.null:
                continue
            if counts.nan[field.name,]:
                lowest.values[at] = highest.values[at] = None
            if lowest.values[at] == 0:
                lowest.values[at] = -0.0
            if highest.values[at] == 0:
                highest.values[at] = 0.0
