"""Writer half of the adapter: rows become Parquet files, and files become lines of the log."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sluicegate.events.models import FileInfo
from sluicegate.lakes.arrow import require_values
from sluicegate.lakes.delta.arrow import by_partition, logical_schema
from sluicegate.lakes.delta.evolution import has_default
from sluicegate.lakes.delta.files import DataFile, columns_of, layout_of
from sluicegate.lakes.delta.log import State
from sluicegate.lakes.delta.partitions import partition_text
from sluicegate.lakes.delta.schema import read_schema
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions
from sluicegate.lakes.floats import Counts
from sluicegate.lakes.partition_layout import refuse_long_names, refuse_long_values, too_long_path
from sluicegate.lakes.port import SchemaMismatch
from sluicegate.lakes.rolling import Rolling
from sluicegate.lakes.row_buffer import RowBuffer
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_errors import is_too_long, unwritable

HELD_BYTES: Final = 256 << 20
"""Bytes of open files that are kept in memory, if the table is in an object store."""
_CLUSTERING: Final = "delta.clustering"


class DeltaWriter:
    """Writer of one attempt of one task."""

    def __init__(
        self,
        storage: Storage,
        state: State,
        event_time_column: str | None,
        digest: str | None,
        files: FileOptions = NO_OPTIONS,
    ) -> None:
        """Prepare a writer. Raises TableRefused for wrong options."""
        schema = read_schema(state.metadata)
        self.location = storage.uri
        refuse_long_names(self.location, [column.name for column in schema.partitions])
        self.schema_id = schema.id
        self.spec_id = 0
        self.table_identity = state.metadata.id
        self.schema_digest = ""
        self._storage = storage
        columns = logical_schema(schema.columns)
        files.check_columns(self.location, columns)
        self._layout = layout_of(state, schema, clustering_of(state), files, event_time_column)
        settings = self._layout.settings
        self._rolling = Rolling(settings.target_size)
        self._defaults = [column.name for column in schema.columns if has_default(column)]
        self._event_time = event_time_column
        self._digest = digest
        self._buffer = RowBuffer(
            self.location, columns, event_time_column, settings.row_group_size, settings.sort
        )
        self._open: dict[tuple[Any, ...], DataFile] = {}
        """By partition; the one that was written to last is the last."""
        self._infos: list[FileInfo] = []
        self._described = False

    def write(self, batch: pa.RecordBatch) -> None:
        require_values(batch, self._defaults, nulls=True)
        if self._buffer.add(batch):
            self._flush()

    def finish(self) -> Iterator[FileInfo]:
        self._flush()
        while self._open:
            self._close(next(iter(self._open)))
        self._storage.settle_files([info.path for info in self._infos])
        self._described = True
        return iter(self._infos)

    def abort(self) -> None:
        self._buffer.clear()
        if self._described:
            return
        for file in self._open.values():
            file.abort()
        # No event describes these files, so nothing can refer to them.
        self._storage.discard(".", [info.path for info in self._infos])
        self._open.clear()

    def _flush(self) -> None:
        rows = self._buffer.take()
        if rows is None:
            return
        for values, part in by_partition(rows, self._layout.schema.partition_names):
            self._write_part(values, part)
        self._relieve()

    def _write_part(self, values: tuple[Any, ...], rows: pa.Table) -> None:
        data = columns_of(rows, self._layout)
        times = rows.column(self._event_time) if self._event_time is not None else None
        start = 0
        while start < data.num_rows:
            open_file = self._open.get(values)
            number = self._rolling.fitting(data.slice(start), open_file.size if open_file is not None else 0)
            part = times.slice(start, number) if times is not None else None
            self._write_group(values, data.slice(start, number), part)
            start += number

    def _write_group(self, values: tuple[Any, ...], data: pa.Table, times: pa.ChunkedArray | None) -> None:
        """Write one row group."""
        counts = self._layout.floats.count(data)
        file = self._file(values, data, counts)
        before = file.size
        try:
            file.write(data, counts, times)
        except OSError as error:
            raise unwritable(self.location, error) from error
        self._rolling.learn(data.nbytes, file.size - before)
        if self._rolling.is_full(file.size):
            self._close(values)

    def _relieve(self) -> None:
        """Upload the largest open files until the others may stay in memory."""
        if not self._storage.object_store:
            return
        sizes = {values: file.size for values, file in self._open.items()}
        held = sum(sizes.values())
        for values in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if held <= HELD_BYTES:
                return
            held -= sizes[values]
            self._close(values)

    def _file(self, values: tuple[Any, ...], rows: pa.Table, counts: Counts) -> DataFile:
        """Return a file for rows of a partition, now the last one in order. Raises LakeUnavailable."""
        if values in self._open and not self._open[values].takes(counts):
            self._close(values)
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= self._layout.settings.open_partitions:
                self._close(next(iter(self._open)))
            file = self._created(values, rows, counts)
        self._open[values] = file
        return file

    def _created(self, values: tuple[Any, ...], rows: pa.Table, counts: Counts) -> DataFile:
        texts = {}
        for column, value in zip(self._layout.schema.partitions, values, strict=True):
            texts[column.physical] = text = partition_text(str(column.kind), value)
            if text is None and not column.nullable:
                raise SchemaMismatch(
                    f"the partition column {column.name} must not be null. In Delta, an empty text is null"
                )
        refuse_long_values(texts)
        try:
            return DataFile(self._storage, self._layout, texts, self._digest, rows, counts)
        except OSError as error:
            if is_too_long(error):
                raise too_long_path(self.location, error) from error
            raise unwritable(self.location, error) from error

    def _close(self, values: tuple[Any, ...]) -> None:
        # A file that cannot be finished stays open, so that `abort` removes it.
        try:
            info = self._open[values].finish()
        except OSError as error:
            raise unwritable(self.location, error) from error
        del self._open[values]
        self._infos.append(info)


def clustering_of(state: State) -> list[tuple[str, ...]]:
    """Return the paths of the columns that the table clusters by."""
    try:
        parsed = json.loads(state.domains.get(_CLUSTERING) or "null")
    except (ValueError, RecursionError):
        return []
    columns = parsed.get("clusteringColumns") if isinstance(parsed, dict) else None
    found = []
    for column in columns if isinstance(columns, list) else []:
        names = [column] if isinstance(column, str) else column
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found.append(tuple(names))
    return found
