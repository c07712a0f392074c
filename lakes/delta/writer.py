"""Writer half of the adapter: rows become Parquet files, and files become lines of the log."""

import json
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from sluicegate.lakes.parquet import DataFile, RollingWriter, refuse_long_names, refuse_long_values
from sluicegate.lakes.port import SchemaMismatch
from sluicegate.lakes.storage import Storage

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


@dataclass(frozen=True)
class Layout:
    """Everything about the files of a table that its metadata decides."""

    schema: TableSchema
    parquet: pa.Schema
    settings: FileSettings
    page_version: str
    bounded: frozenset[tuple[str, ...]]
    """Paths of the columns that get bounds."""
    counted: frozenset[tuple[str, ...]]
    """Paths of the columns whose nulls are counted."""


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


_CLUSTERING: Final = "delta.clustering"


class DeltaWriter(RollingWriter[tuple[Any, ...]]):
    """Writer of one attempt of one task. A partition is the values of its columns."""

    def __init__(
        self,
        storage: Storage,
        state: State,
        event_time_column: str | None,
        label: str | None,
        files: FileOptions = NO_OPTIONS,
    ) -> None:
        """Prepare a writer. Raises TableRefused for wrong options."""
        schema = read_schema(state.metadata)
        refuse_long_names(storage.uri, [column.name for column in schema.partitions])
        self.schema_id = schema.id
        self.spec_id = 0
        self.table_identity = state.metadata.id
        self.schema_digest = ""
        columns = logical_schema(schema.columns)
        files.check_columns(storage.uri, columns)
        self._layout = layout_of(state, schema, clustering_of(state), files, event_time_column)
        self._defaults = [column.name for column in schema.columns if has_default(column)]
        self._label = label
        options = {"data_page_version": self._layout.page_version, "store_schema": False}
        super().__init__(
            storage,
            storage.uri,
            columns,
            self._layout.parquet,
            self._layout.settings,
            event_time_column,
            options,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        require_values(batch, self._defaults, nulls=True)
        super().write(batch)

    def _split(self, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], pa.Table]]:
        for values, part in by_partition(rows, self._layout.schema.partition_names):
            yield values, values, part

    def _data(self, rows: pa.Table) -> pa.Table:
        schema, names = self._layout.parquet, [column.name for column in self._layout.schema.data]
        return renamed(rows.select(names), schema)

    def _new_path(self, partition: tuple[Any, ...]) -> str:
        texts = self._texts(partition)
        refuse_long_values(texts)
        folder = partition_folder(self._layout.schema.partitions, texts)
        name = f"data-{self._label}-{uuid.uuid4()}" if self._label else f"data-{uuid.uuid4()}"
        return f"{folder}/{name}.parquet" if folder else f"{name}.parquet"

    def _texts(self, partition: tuple[Any, ...]) -> dict[str, str | None]:
        """Return the values of a partition as the log has them, by physical name. Raises SchemaMismatch."""
        texts = {}
        for column, value in zip(self._layout.schema.partitions, partition, strict=True):
            texts[column.physical] = text = partition_text(str(column.kind), value)
            if text is None and not column.nullable:
                raise SchemaMismatch(
                    f"the partition column {column.name} must not be null. In Delta, an empty text is null"
                )
        return texts

    def _event_partition(self, partition: tuple[Any, ...]) -> dict[str, str | None]:
        texts = self._texts(partition)
        return {column.name: texts[column.physical] for column in self._layout.schema.partitions}

    def _metadata(self, file: DataFile[tuple[Any, ...]], footer: pq.FileMetaData, size: int) -> bytes:
        layout = self._layout
        statistics = make_statistics(
            footer, layout.schema.data, layout.bounded, layout.counted, file.counts.null
        )
        texts, now_ms = self._texts(file.partition), time.time_ns() // 1_000_000
        return require_short(encode(file.path, texts, size, now_ms, statistics), self.location, _FEWER)


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
