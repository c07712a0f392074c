"""Writer half of the adapter: Parquet files, and the records that describe them."""

import errno
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_id, sanitize_column_names
from pyiceberg.types import (
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)

from sluicegate.events.models import FileInfo
from sluicegate.lakes.durable import make_inside
from sluicegate.lakes.encodings import Dictionaries
from sluicegate.lakes.event_time import event_time_range
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions, require_short
from sluicegate.lakes.floats import Counts, Floats
from sluicegate.lakes.iceberg.files import local_of
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.metrics import Metrics
from sluicegate.lakes.iceberg.partitioning import Splitter
from sluicegate.lakes.iceberg.properties import file_options, page_options
from sluicegate.lakes.iceberg.table import TableView, schema_digest
from sluicegate.lakes.iceberg.values import partition_key
from sluicegate.lakes.partition_layout import (
    refuse_long_names,
    refuse_long_path,
    refuse_long_values,
    too_long_path,
)
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.rolling import Rolling, close_broken
from sluicegate.lakes.row_buffer import RowBuffer
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_errors import unwritable

_FEWER: Final = "set the property write.metadata.metrics.default to counts or none"
HELD_BYTES: Final = 256 << 20
"""Bytes of open files that are kept in memory, if the table is in an object store."""
_UNSORTED: Final = 0
_REFUSED_TYPES: Final = (TimestampNanoType, TimestamptzNanoType, UUIDType)
"""Types that the library cannot write, or not in a way that all engines read."""

Range = tuple[int | None, int | None]


@dataclass(slots=True)
class _OpenFile:
    """A data file that is being written."""

    path: str
    """Relative to the location of the data."""
    partition: Partition
    sink: Any
    parquet: pq.ParquetWriter
    counts: Counts = field(default_factory=Counts)
    range: Range = (None, None)
    """Event times in milliseconds."""


@dataclass(frozen=True, slots=True)
class _Closed:
    """A complete data file."""

    path: str
    partition: Partition
    size: int
    metadata: Any
    counts: Counts
    range: Range


class IcebergWriter:
    """Writer of one attempt of one task, with the current schema and partition spec."""

    def __init__(
        self,
        table: TableView,
        storage: Storage,
        event_time_column: str | None,
        digest: str | None,
        files: FileOptions = NO_OPTIONS,
    ) -> None:
        """Prepare a writer for the folder of data. Raises TableRefused, also for wrong options."""
        refuse_types(table)
        self.location = table.event_location
        refuse_long_names(self.location, [field.name for field in table.spec.fields])
        self.schema_id = table.schema.schema_id
        self.spec_id = table.spec.spec_id
        self.table_identity = table.premises.table
        self.schema_digest = schema_digest(table.raw_schemas[self.schema_id])
        self._table = table
        self._storage = storage
        self._layout = Layout(table.schema, table.spec, table.version)
        self._file_schema = file_schema(table)
        self._floats = Floats(self._file_schema)
        self._dictionaries = Dictionaries()
        self._splitter = Splitter(table.schema, self._layout)
        self._event_time = event_time_column
        columns = schema_to_pyarrow(table.schema, include_field_ids=False)
        files.check_columns(self.location, columns)
        settings = files.settings(file_options(table, columns))
        self._buffer = RowBuffer(
            self.location, columns, event_time_column, settings.row_group_size, settings.sort
        )
        self._prefix = f"data-{digest}-" if digest is not None else "data-"
        self._options = {**page_options(table), **settings.compression.arguments()}
        self._rolling = Rolling(settings.target_size)
        self._most_open = settings.open_partitions
        bounded = files.bounded(columns.names, event_time_column)
        self._metrics = Metrics(table, bounded)
        self._open: dict[Partition, _OpenFile] = {}
        """By the key of the partition; the one that was written to last is the last."""
        self._closed: list[_Closed] = []
        self._paths: list[str] = []
        self._described = False

    def write(self, batch: pa.RecordBatch) -> None:
        if self._buffer.add(batch):
            self._flush()

    def finish(self) -> Iterator[FileInfo]:
        self._flush()
        try:
            for key in list(self._open):
                self._close(key)
            self._check_sizes()
            infos = [self._describe(closed) for closed in self._closed]
            self._storage.settle_files(self._paths)
        except OSError as error:
            raise unwritable(self.location, error) from error
        self._described = True
        return iter(infos)

    def abort(self) -> None:
        self._buffer.clear()
        if self._described:
            return
        for opened in self._open.values():
            close_broken(opened.parquet, opened.sink)
        self._open.clear()
        # No event describes these files, so nothing can refer to them.
        self._storage.discard(".", self._paths)

    def _flush(self) -> None:
        rows = self._buffer.take()
        if rows is None:
            return
        try:
            for partition, part in self._splitter.split(rows):
                self._write_part(partition, part)
            self._relieve()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise too_long_path(self.location, error) from error
            raise unwritable(self.location, error) from error

    def _write_part(self, partition: Partition, rows: pa.Table) -> None:
        # Only the names may differ, since Parquet files have the names that Avro allows.
        data = pa.Table.from_arrays(rows.columns, schema=self._file_schema)
        times = rows.column(self._event_time) if self._event_time is not None else None
        key = partition_key(partition)
        start = 0
        while start < data.num_rows:
            opened = self._open.get(key)
            number = self._rolling.fitting(data.slice(start), opened.sink.tell() if opened is not None else 0)
            part = times.slice(start, number) if times is not None else None
            self._write_group(key, partition, data.slice(start, number), part)
            start += number

    def _write_group(
        self, key: Partition, partition: Partition, data: pa.Table, times: pa.ChunkedArray | None
    ) -> None:
        """Write one row group."""
        counts = self._floats.count(data)
        opened = self._opened(key, partition, data, counts)
        if times is not None:
            opened.range = _joined(opened.range, event_time_range(times))
        opened.counts.add(counts)
        before = opened.sink.tell()
        opened.parquet.write_table(data, data.num_rows)
        size = opened.sink.tell()
        self._rolling.learn(data.nbytes, size - before)
        if self._rolling.is_full(size):
            self._close(key)

    def _opened(self, key: Partition, partition: Partition, data: pa.Table, counts: Counts) -> _OpenFile:
        """Return a file for rows of a partition, now the last one in order."""
        if key in self._open and counts.spoils(self._open[key].counts):
            self._close(key)
        opened = self._open.pop(key, None)
        if opened is None:
            if len(self._open) >= self._most_open:
                self._close(next(iter(self._open)))
            opened = self._create(partition, data, counts)
        self._open[key] = opened
        return opened

    def _create(self, partition: Partition, data: pa.Table, counts: Counts) -> _OpenFile:
        refuse_long_values(self._splitter.texts(partition))
        path = self._path(partition)
        refuse_long_path(self.location, path)
        self._paths.append(path)
        sink = self._sink(path)
        writer = pq.ParquetWriter(
            sink,
            self._file_schema,
            store_decimal_as_integer=True,
            use_dictionary=self._dictionaries.columns(self._floats.leaves, data),
            write_statistics=self._floats.with_statistics(counts),
            **self._options,
        )
        return _OpenFile(path, partition, sink, writer)

    def _sink(self, path: str) -> Any:
        """Open a file; of an object store, its content is kept until it is complete. Raises OSError."""
        if self._storage.object_store:
            return pa.BufferOutputStream()
        root = local_of(self._table.data_location)
        make_inside(root, posixpath.dirname(path))
        return pa.OSFile(f"{root}/{path}", "wb")

    def _relieve(self) -> None:
        """Upload the largest open files until the others may stay in memory."""
        if not self._storage.object_store:
            return
        sizes = {key: opened.sink.tell() for key, opened in self._open.items()}
        held = sum(sizes.values())
        for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if held <= HELD_BYTES:
                return
            held -= sizes[key]
            self._close(key)

    def _path(self, partition: Partition) -> str:
        """Return a new path for a file of a partition."""
        name = f"{self._prefix}{uuid.uuid4().hex}-{len(self._paths):05d}.parquet"
        return f"{self._table.data_prefix}{self._splitter.folder(partition)}{name}"

    def _close(self, key: Partition) -> None:
        opened = self._open.pop(key)
        opened.parquet.close()
        metadata, size = opened.parquet.writer.metadata, opened.sink.tell()
        if self._storage.object_store:
            folder, name = posixpath.split(opened.path)
            self._storage.write(folder or ".", {name: opened.sink.getvalue().to_pybytes()})
        else:
            opened.sink.close()
        self._closed.append(
            _Closed(opened.path, opened.partition, size, metadata, opened.counts, opened.range)
        )

    def _check_sizes(self) -> None:
        """Check that the files are whole in their storage. Raises LakeUnavailable."""
        found = self._storage.sizes([closed.path for closed in self._closed])
        for closed, size in zip(self._closed, found, strict=True):
            if size != closed.size:
                raise LakeUnavailable(
                    f"the file {closed.path} of {self.location} has {size or 0} bytes instead of "
                    f"{closed.size} after it was written. Another program has changed it, or the storage has "
                    "lost it"
                )

    def _describe(self, closed: _Closed) -> FileInfo:
        record = {
            "content": 0,
            "file_path": f"{self._table.data_location}/{closed.path}",
            "file_format": "PARQUET",
            "partition": closed.partition,
            "record_count": closed.metadata.num_rows,
            "file_size_in_bytes": closed.size,
            **self._metrics.of(closed.metadata, closed.counts),
            "key_metadata": None,
            "equality_ids": None,
            "sort_order_id": _UNSORTED,
        }
        lowest, highest = closed.range
        return FileInfo(
            path=closed.path,
            size=closed.size,
            rows=closed.metadata.num_rows,
            partition=self._splitter.texts(closed.partition),
            min_event_time=lowest,
            max_event_time=highest,
            metadata=require_short(self._layout.encode(record), self.location, _FEWER),
        )


def refuse_types(table: TableView) -> None:
    for column in index_by_id(table.schema).values():
        if isinstance(column.field_type, _REFUSED_TYPES):
            raise TableRefused(
                f"the column {column.name} of {table.event_location} has the type {column.field_type}, which "
                "this release cannot write. Give the stream a table without it"
            )


def file_schema(table: TableView) -> pa.Schema:
    """Return the Arrow schema of the files, with field ids and the names that Parquet files have."""
    _refuse_names(table)
    named = sanitize_column_names(table.schema)
    for before, after in zip(_nested(table.schema), _nested(named), strict=True):
        if before.name != after.name:
            raise TableRefused(
                f"the nested column {before.name} of {table.event_location} has a name that this release "
                "cannot write. Rename it"
            )
    schema: pa.Schema = schema_to_pyarrow(named, include_field_ids=True)
    return schema


def _refuse_names(table: TableView) -> None:
    if not all(column.name for column in index_by_id(table.schema).values()):
        raise TableRefused(f"a column of {table.event_location} has no name. Rename it")
    named: dict[str, str] = {}
    for column in table.schema.fields:
        (inside,) = sanitize_column_names(Schema(column)).fields
        other = named.setdefault(inside.name, column.name)
        if other != column.name:
            raise TableRefused(
                f"the columns {other!r} and {column.name!r} of {table.event_location} have the same name "
                f"{inside.name} in Parquet files. Rename one"
            )


def _nested(schema: Schema) -> Sequence[NestedField]:
    """Return the fields of structs, in the order of their ids."""
    top = {column.field_id for column in schema.fields}
    fields = index_by_id(schema)
    kinds = [each.field_type for each in fields.values()]
    ids = {part.field_id for kind in kinds if isinstance(kind, StructType) for part in kind.fields}
    return [fields[number] for number in sorted(ids - top)]


def _joined(one: Range, other: Range) -> Range:
    lowest = [value for value in (one[0], other[0]) if value is not None]
    highest = [value for value in (one[1], other[1]) if value is not None]
    return min(lowest, default=None), max(highest, default=None)
