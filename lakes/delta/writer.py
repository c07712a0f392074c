"""Writer half of the adapter: rows become Parquet files, and files become lines of the log."""

import json
import posixpath
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluicegate.events.models import FileInfo
from sluicegate.lakes.arrow import out_of_range, require_values
from sluicegate.lakes.delta.entries import encode, leaves, make_statistics
from sluicegate.lakes.delta.log import State
from sluicegate.lakes.delta.schema import (
    Array,
    Column,
    Kind,
    Struct,
    TableSchema,
    has_default,
    partition_folder,
    partition_text,
    read_schema,
)
from sluicegate.lakes.file_options import NO_OPTIONS, Compression, FileOptions, FileSettings, require_short
from sluicegate.lakes.parquet import (
    Counts,
    Dictionaries,
    Floats,
    Rolling,
    RowBuffer,
    close_broken,
    event_time_range,
    refuse_long_names,
    refuse_long_path,
    refuse_long_values,
    too_long_path,
)
from sluicegate.lakes.port import SchemaMismatch
from sluicegate.lakes.storage import Storage, is_too_long, unwritable
from sluicegate.lakes.storage_local import make_inside

# Arrow schemas of Delta tables, and rows by partition.

_FIELD_ID: Final = "PARQUET:field_id"
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Arrow's types by the names of Delta's, without decimals."""


def logical_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of rows, with the names that users know."""
    return pa.schema([pa.field(each.name, _type(each.kind), nullable=each.nullable) for each in columns])


def physical_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of data files: physical names, and ids of a table with column mapping."""
    return pa.schema([_physical_field(each) for each in columns])


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the schema of data files, without a copy."""
    columns = [
        column
        if column.type.equals(field.type)
        else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _physical_field(column: Column) -> pa.Field:
    metadata = None if column.field_id is None else {_FIELD_ID: str(column.field_id)}
    return pa.field(
        column.physical, _type(column.kind, physical=True), nullable=column.nullable, metadata=metadata
    )


def _type(kind: Kind, *, physical: bool = False) -> pa.DataType:
    if isinstance(kind, str):
        if match := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(match[1]), int(match[2]))
        return PRIMITIVES[kind]
    if isinstance(kind, Struct):
        if physical:
            return pa.struct([_physical_field(field) for field in kind.fields])
        return pa.struct(
            [pa.field(field.name, _type(field.kind), nullable=field.nullable) for field in kind.fields]
        )
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", _type(kind.element, physical=physical), nullable=kind.nullable))
    key, value = (_type(each, physical=physical) for each in (kind.key, kind.value))
    return pa.map_(key, pa.field("value", value, nullable=kind.nullable))


def by_partition(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each partition with its values, in the order of the rows within.

    Raises SchemaMismatch.
    """
    if not names:
        yield (), rows
        return
    codes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for name in names:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        # Codes are numbered again, so that many columns do not overflow them.
        codes = codes.dictionary_encode().indices.cast(pa.int64())
    order = pc.sort_indices(codes)
    ordered, start = rows.take(order), 0
    for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        part = ordered.slice(start, end - start)
        yield tuple([_value(part, name) for name in names]), part
        start = end


def _value(rows: pa.Table, name: str) -> Any:
    """Return the value of a partition column, the same in all rows. Raises SchemaMismatch."""
    try:
        return rows.column(name)[0].as_py()
    except (OverflowError, ValueError) as error:
        raise out_of_range(name, error) from error


# Data files that are being written: Parquet, with the statistics of the log.

_CODECS: Final = {"none": "uncompressed", "lz4_raw": "lz4"}
"""Names of codecs that differ in options of files."""
_SIZE: Final = re.compile(r"([0-9]{1,15})(k|m|g|t|)b?")
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DEFAULT_INDEXED: Final = 32
_FEWER: Final = "set the property delta.dataSkippingNumIndexedCols to a lower number"
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")

Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class Layout:
    """Everything about the files of a table that its metadata decides."""

    schema: TableSchema
    parquet: pa.Schema
    floats: Floats
    settings: FileSettings
    page_version: str
    bounded: frozenset[tuple[str, ...]]
    """Paths of the columns that get bounds."""
    counted: frozenset[tuple[str, ...]]
    """Paths of the columns whose nulls are counted."""
    dictionaries: Dictionaries = field(default_factory=Dictionaries)


def layout_of(
    state: State,
    schema: TableSchema,
    clustering: Collection[tuple[str, ...]],
    files: FileOptions,
    event_time: str | None,
) -> Layout:
    """Return the layout of a table. `clustering` are the paths that it clusters by: they need statistics."""
    configuration = state.metadata.configuration
    pages = configuration.get("delta.parquet.format.version", "1.0.0")
    parquet = physical_schema(schema.data)
    of_table = frozenset({*_indexed(configuration, schema), *clustering})
    wanted = files.bounded([column.name for column in schema.data], event_time)
    bounded = of_table if wanted is None else frozenset({*_paths_of(wanted, schema), *clustering})
    return Layout(
        schema,
        parquet,
        Floats(parquet),
        files.settings(_of_table(configuration)),
        "2.0" if pages.startswith("2.") else "1.0",
        bounded,
        of_table | bounded,
    )


def _of_table(configuration: Mapping[str, str]) -> FileOptions:
    """Return the values of a table's properties."""
    codec = configuration.get("delta.parquet.compression.codec", "zstd").strip().lower()
    size = _SIZE.fullmatch(configuration.get("delta.targetFileSize", "").strip().lower())
    return FileOptions(
        target_size=(int(size[1]) << _UNITS[size[2]] if size else None),
        compression=Compression(_CODECS.get(codec, codec)),
    )


def _paths_of(names: Collection[str], schema: TableSchema) -> list[tuple[str, ...]]:
    tops = {column.physical for column in schema.data if column.name in names}
    return [leaf.path for leaf in leaves(schema.data) if leaf.path and leaf.path[0] in tops]


def _indexed(configuration: Mapping[str, str], schema: TableSchema) -> list[tuple[str, ...]]:
    paths = [leaf.path for leaf in leaves(schema.data)]
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        names = {name.strip().strip("`").split(".")[0].strip("`") for name in named.split(",")}
        return _paths_of(names, schema)
    said = configuration.get("delta.dataSkippingNumIndexedCols", "")
    most = int(said) if _NUMBER.fullmatch(said) else _DEFAULT_INDEXED
    return [path for path in (paths if most < 0 else paths[:most]) if path]


class DataFile:
    """One file that is being written, of one partition."""

    def __init__(
        self,
        storage: Storage,
        layout: Layout,
        texts: Mapping[str, str | None],
        digest: str | None,
        rows: pa.Table,
        counts: Counts,
    ) -> None:
        """Open a file. `rows` are its first ones, `counts` theirs. Raises OSError or SchemaMismatch."""
        self._storage = storage
        self._layout = layout
        self._texts = texts
        self._folder = partition_folder(layout.schema.partitions, texts)
        self._name = f"data-{digest}-{uuid.uuid4()}.parquet" if digest else f"data-{uuid.uuid4()}.parquet"
        self.path = f"{self._folder}/{self._name}" if self._folder else self._name
        refuse_long_path(storage.uri, self.path)
        self._sink = self._open()
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            layout.parquet,
            **layout.settings.compression.arguments(),
            use_dictionary=layout.dictionaries.columns(layout.floats.leaves, rows),
            data_page_version=layout.page_version,
            store_schema=False,
            metadata_collector=self._footers,
            write_statistics=layout.floats.with_statistics(counts),
        )
        self._counts = Counts()
        self._times: Range = (None, None)

    @property
    def size(self) -> int:
        """Bytes that were written so far."""
        return int(self._sink.tell())

    def takes(self, counts: Counts) -> bool:
        """True if rows with these counts may come into the file."""
        return not counts.spoils(self._counts)

    def write(self, rows: pa.Table, counts: Counts, event_times: pa.ChunkedArray | None) -> None:
        """Add rows of the partition, with the columns of data files. Raises OSError."""
        self._counts.add(counts)
        if event_times is not None:
            self._times = _joined(self._times, event_time_range(event_times))
        self._writer.write_table(rows, rows.num_rows)

    def finish(self) -> FileInfo:
        """Close the file and describe it. Raises OSError or LakeUnavailable."""
        self._writer.close()
        size = self.size
        if isinstance(self._sink, pa.BufferOutputStream):
            content = self._sink.getvalue().to_pybytes()
            self._storage.write(self._folder or ".", {self._name: content})
        else:
            self._sink.close()
        (footer,) = self._footers
        columns = self._layout.schema.data
        said = make_statistics(footer, columns, self._layout.bounded, self._layout.counted, self._counts.null)
        values = {each.name: self._texts[each.physical] for each in self._layout.schema.partitions}
        line = encode(self.path, self._texts, size, time.time_ns() // 1_000_000, said)
        return FileInfo(
            path=self.path,
            size=size,
            rows=footer.num_rows,
            partition=values,
            min_event_time=self._times[0],
            max_event_time=self._times[1],
            metadata=require_short(line, self._storage.uri, _FEWER),
        )

    def abort(self) -> None:
        """Close the file and delete it."""
        close_broken(self._writer, self._sink)
        self._storage.discard(self._folder or ".", [self._name])

    def _open(self) -> pa.NativeFile:
        """Open the file; of an object store, its content is kept until it is complete. Raises OSError."""
        if self._storage.object_store:
            return pa.BufferOutputStream()
        make_inside(self._storage.root, posixpath.dirname(self.path))
        return pa.OSFile(f"{self._storage.root}/{self.path}", "wb")


def _joined(one: Range, other: Range) -> Range:
    lowest = [value for value in (one[0], other[0]) if value is not None]
    highest = [value for value in (one[1], other[1]) if value is not None]
    return min(lowest, default=None), max(highest, default=None)


def columns_of(rows: pa.Table, layout: Layout) -> pa.Table:
    """Return the rows with the columns of data files, as files name them."""
    return renamed(rows.select([column.name for column in layout.schema.data]), layout.parquet)


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
