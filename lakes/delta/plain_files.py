"""Entries of data files that other programs wrote, made from the footers of the files."""

import time
from typing import TYPE_CHECKING

from sluicegate.events.models import FileInfo
from sluicegate.lakes.delta.entries import encode, make_statistics
from sluicegate.lakes.delta.log import State
from sluicegate.lakes.delta.schema import TableSchema
from sluicegate.lakes.delta.writer import clustering_of, layout_of
from sluicegate.lakes.file_options import NO_OPTIONS
from sluicegate.lakes.parquet import FileColumns, unbounded
from sluicegate.lakes.port import BadFiles

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class Describer:
    """Maker of entries for files of one schema."""

    def __init__(self, state: State, schema: TableSchema) -> None:
        self._schema = schema
        layout = layout_of(state, schema, clustering_of(state), NO_OPTIONS, None)
        self._columns = FileColumns(layout.parquet, schema.id)
        self._bounded = layout.bounded

    def describe(self, file: FileInfo, footer: "pq.FileMetaData") -> bytes:
        """Return the line of a file. Raises BadFiles."""
        names = {column.name for column in self._schema.partitions}
        if file.partition.keys() != names:
            raise BadFiles(
                f"the event has the partition values {dict(file.partition)} of {file.path}. Give exactly "
                f"those of the columns {sorted(names)}"
            )
        self._columns.check(file.path, footer)
        bare = {path for path, _ in unbounded(footer)} | _decimals_in_integers(footer)
        bounded = {path for path in self._bounded if ".".join(path) not in bare}
        found = make_statistics(footer, self._schema.data, bounded, bounded, {})
        values = {column.physical: file.partition[column.name] for column in self._schema.partitions}
        return encode(file.path, values, file.size, time.time_ns() // 1_000_000, found)


def _decimals_in_integers(footer: "pq.FileMetaData") -> set[str]:
    """Return the columns whose bounds the library cannot read."""
    columns = [footer.schema.column(number) for number in range(footer.num_columns)]
    return {
        each.path
        for each in columns
        if each.logical_type.type == "DECIMAL" and each.physical_type in ("INT32", "INT64")
    }
