"""Writer half of the adapter: Parquet files, and the records that describe them."""

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema, index_by_id, sanitize_column_names
from pyiceberg.transforms import TruncateTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros
from pyiceberg.utils.decimal import decimal_required_bytes, decimal_to_bytes

from sluicegate.lakes.arrow import out_of_range
from sluicegate.lakes.file_options import (
    NO_OPTIONS,
    Compression,
    FileOptions,
    SortColumn,
    is_sortable,
    require_short,
)
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.metrics import Metrics
from sluicegate.lakes.iceberg.table import TableView, folder_path, schema_digest
from sluicegate.lakes.iceberg.values import partition_key, partition_problem, partition_text
from sluicegate.lakes.parquet import DataFile, RollingWriter, refuse_long_names, refuse_long_values
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.storage import Storage

# Properties of a table that the files of a writer depend on.

_TARGET: Final = "write.target-file-size-bytes"
_ROW_GROUP: Final = "write.parquet.row-group-size-bytes"
_DEFAULT_TARGET: Final = 512 << 20
_LARGEST: Final = (1 << 63) - 1
_CODECS: Final[Mapping[str, str]] = {
    **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")},
    # The name of Parquet for what Arrow writes as LZ4.
    "lz4_raw": "lz4",
}
"""Codecs by their names in the property."""
_DIGITS: Final = 19
"""Of that number."""


def file_options(table: TableView, columns: pa.Schema) -> FileOptions:
    """Return the values of the table. Raises TableRefused for those that cannot be followed."""
    properties = table.properties
    return FileOptions(
        target_size=_positive(properties, _TARGET, _DEFAULT_TARGET),
        row_group_size=_positive(properties, _ROW_GROUP, 0) or None,
        sort=_sort_order(table, columns),
        compression=_compression(properties),
    )


def page_options(table: TableView) -> dict[str, Any]:
    """Return the arguments of `ParquetWriter` for pages and dictionaries. Raises TableRefused."""
    properties = table.properties
    return {
        "data_page_size": _positive(properties, "write.parquet.page-size-bytes", 1 << 20),
        "dictionary_pagesize_limit": _positive(properties, "write.parquet.dict-size-bytes", 2 << 20),
        "write_batch_size": _positive(properties, "write.parquet.page-row-limit", 20_000),
    }


def _sort_order(table: TableView, columns: pa.Schema) -> tuple[SortColumn, ...] | None:
    """Return the table's sort order up to its first field that is a transform or inside of a column."""
    names = {column.field_id: column.name for column in table.schema.fields}
    found = []
    for each in table.raw_sort_fields:
        name = names.get(each.get("source-id", -1))
        if name is None or each.get("transform") != "identity" or not is_sortable(columns.field(name).type):
            break
        nulls_first = each.get("null-order") == "nulls-first"
        found.append(SortColumn(name, each.get("direction") == "desc", nulls_first))
    return tuple(found) or None


def _compression(properties: Mapping[str, str]) -> Compression:
    text = properties.get("write.parquet.compression-codec", "zstd")
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise TableRefused(
            f"the property write.parquet.compression-codec = {text} is not supported; use zstd, snappy, "
            "gzip, lz4, brotli or uncompressed"
        )
    level = properties.get("write.parquet.compression-level", "").strip()
    if not level.isdigit() or codec == "uncompressed":
        return Compression(codec)
    _check_level(codec, int(level))
    return Compression(codec, int(level))


def _check_level(codec: str, level: int) -> None:
    try:
        pa.Codec(codec, compression_level=level)
    except (ValueError, OverflowError, OSError) as error:
        raise TableRefused(
            f"the property write.parquet.compression-level = {level} is no level of {codec}: {error}. "
            "Correct or remove it"
        ) from error


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    if not text.isdigit():
        return default
    if len(text) > _DIGITS or int(text) > _LARGEST:
        raise TableRefused(f"the property {name} = {text[:64]} is above {_LARGEST}. Give it a lower value")
    return int(text) or default


# Division of rows by the partitions of a spec.

_VOID_TYPE: Final = pa.null()
_BITS: Final = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class Splitter:
    """Divider of tables with one schema by one spec."""

    def __init__(self, schema: Schema, layout: Layout) -> None:
        self._layout = layout
        fields = zip(layout.spec.fields, layout.partition_type.fields, strict=True)
        self._parts = [
            _Part(
                field.name,
                path_of(schema, field.source_id),
                _transform(field, schema.find_type(field.source_id)),
                typed.field_type,
            )
            for field, typed in fields
        ]
        self._texts: dict[Partition, dict[str, str | None]] = {}
        """By the key of the partition."""

    def split(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield the rows of each partition, in their order."""
        if not self._parts:
            yield (), rows
            return
        columns = []
        codes = np.zeros(rows.num_rows, np.int64)
        for part in self._parts:
            column = part.of(rows)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            columns.append(column)
            encoded = _comparable(column).dictionary_encode(null_encoding="encode")
            codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
            # Replace the combined codes by their ranks, so that the product with the next column cannot
            # overflow.
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        borders = np.searchsorted(codes[order], np.arange(len(first) + 1))
        for number, at in enumerate(first):
            values = tuple(
                [part.stored(column[int(at)]) for part, column in zip(self._parts, columns, strict=True)]
            )
            chosen = order[borders[number] : borders[number + 1]]
            yield values, rows.take(pa.array(chosen)).combine_chunks()

    def texts(self, partition: Partition) -> dict[str, str | None]:
        """Return the values of a partition as people read them, by field.

        Raises SchemaMismatch for a value that no file of the table can have.
        """
        key = partition_key(partition)
        known = self._texts.get(key)
        if known is None:
            fields = zip(self._layout.spec.fields, self._parts, partition, strict=True)
            known = self._texts[key] = {field.name: part.text(field, value) for field, part, value in fields}
        return dict(known)

    def folder(self, partition: Partition) -> str:
        """Return the folder of a partition, with a slash at its end; empty without partitions.

        Raises SchemaMismatch for a value that no file of the table can have.
        """
        return f"{folder_path(self.texts(partition))}/" if self._parts else ""


@dataclass(frozen=True)
class _Part:
    """A field of the partitions."""

    name: str
    path: Sequence[str]
    """Names that lead to its source, from the top."""
    transform: Callable[[pa.Array], pa.Array] | None
    """None: all its values are null."""
    kind: IcebergType

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the values of the field. Raises SchemaMismatch."""
        if self.transform is None:
            return pa.nulls(rows.num_rows)
        try:
            return self.transform(_column(rows, self.path))
        except OverflowError as error:
            raise self._out_of_range(error) from error

    def stored(self, value: pa.Scalar) -> Any:
        """Return a value of the field as Avro stores it. Raises SchemaMismatch."""
        try:
            return _stored(self.kind, value.as_py())
        except (OverflowError, ValueError) as error:
            raise self._out_of_range(error) from error

    def text(self, field: PartitionField, value: Any) -> str | None:
        """Return a value of the field as people read it, None for null. Raises SchemaMismatch."""
        problem = partition_problem(field, self.kind, value)
        if problem is not None:
            raise SchemaMismatch(
                f"the partition value {self.name} of the rows {problem}. Correct the rows, or partition the "
                "table by another field"
            )
        try:
            return partition_text(field, self.kind, value)
        except (OverflowError, ValueError) as error:
            raise self._out_of_range(error) from error

    def _out_of_range(self, error: Exception) -> SchemaMismatch:
        return out_of_range(f"{self.name} (column {'.'.join(self.path)})", error)


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column of partition values in a form whose values are equal only if they are the same."""
    if column.type == _VOID_TYPE:
        return column.cast(pa.int8())
    # By their bits: the two zeros are two values.
    bits = _BITS.get(column.type)
    return column if bits is None else column.view(bits)


def _transform(field: PartitionField, kind: IcebergType) -> Callable[[pa.Array], pa.Array] | None:
    """Return the transform of a column of this type, None if all its values are null."""
    transform: Any = field.transform
    if isinstance(transform, VoidTransform):
        return None
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        # The library cannot do it for columns with offsets of 64 bits.
        return partial(pc.binary_slice, start=0, stop=transform.width)
    prepared: Callable[[pa.Array], pa.Array] = transform.pyarrow_transform(kind)
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        return partial(_truncated, prepared)
    return prepared


def _truncated(transform: Callable[[pa.Array], pa.Array], column: pa.Array) -> pa.Array:
    """Truncate numbers. Raises OverflowError for those that have no number of their type below them."""
    found = transform(column)
    if pc.any(pc.greater(found, column)).as_py():
        raise OverflowError("a number is too low to be truncated")
    return found


def path_of(schema: Schema, source: int) -> list[str]:
    """Return the names that lead to a column, from the top."""
    parents = schema._lazy_id_to_parent
    names = [schema.find_field(source).name]
    while (parent := parents.get(source)) is not None:
        names.insert(0, schema.find_field(parent).name)
        source = parent
    return names


def _column(rows: pa.Table, path: Sequence[str]) -> pa.Array:
    column = rows.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _stored(kind: IcebergType, value: Any) -> Any:
    """Return a value as Avro stores it, without a logical type."""
    match value:
        case datetime.datetime():
            return datetime_to_micros(value)
        case datetime.date():
            return date_to_days(value)
        case datetime.time():
            return time_to_micros(value)
        case decimal.Decimal() if isinstance(kind, DecimalType):
            return decimal_to_bytes(value, decimal_required_bytes(kind.precision))
        case uuid.UUID():
            return value.bytes
        case _:
            return value


_FEWER: Final = "set the property write.metadata.metrics.default to counts or none"
_UNSORTED: Final = 0
_REFUSED_TYPES: Final = (TimestampNanoType, TimestamptzNanoType, UUIDType)
"""Types that the library cannot write, or not in a way that all engines read."""


class IcebergWriter(RollingWriter[Partition]):
    """Writer of one attempt of one task, with the current schema and partition spec."""

    def __init__(
        self,
        table: TableView,
        storage: Storage,
        event_time_column: str | None,
        label: str | None,
        files: FileOptions = NO_OPTIONS,
    ) -> None:
        """Prepare a writer for the folder of data. Raises TableRefused, also for wrong options."""
        refuse_types(table)
        refuse_long_names(table.event_location, [each.name for each in table.spec.fields])
        self.schema_id = table.schema.schema_id
        self.spec_id = table.spec.spec_id
        self.table_identity = table.premises.table
        self.schema_digest = schema_digest(table.raw_schemas[self.schema_id])
        self._table = table
        self._layout = Layout(table.schema, table.spec, table.version)
        self._splitter = Splitter(table.schema, self._layout)
        parquet = file_schema(table)
        columns = schema_to_pyarrow(table.schema, include_field_ids=False)
        files.check_columns(table.event_location, columns)
        super().__init__(
            storage,
            table.event_location,
            columns,
            parquet,
            files.settings(file_options(table, columns)),
            event_time_column,
            {"store_decimal_as_integer": True, **page_options(table)},
        )
        self._prefix = f"data-{label}-" if label is not None else "data-"
        self._metrics = Metrics(table, files.bounded(columns.names, event_time_column))

    def _settle(self) -> None:
        self._check_sizes()
        super()._settle()

    def _check_sizes(self) -> None:
        """Check that the files are whole in their storage. Raises LakeUnavailable."""
        found = self._storage.sizes([info.path for info in self._infos])
        for info, size in zip(self._infos, found, strict=True):
            if size != info.size:
                raise LakeUnavailable(
                    f"the file {info.path} of {self.location} has {size or 0} bytes instead of "
                    f"{info.size} after it was written. Another program has changed it, or the storage has "
                    "lost it"
                )

    def _split(self, rows: pa.Table) -> Iterator[tuple[Partition, Partition, pa.Table]]:
        for partition, part in self._splitter.split(rows):
            yield partition_key(partition), partition, part

    def _data(self, rows: pa.Table) -> pa.Table:
        # Only the names may differ, since Parquet files have the names that Avro allows.
        return pa.Table.from_arrays(rows.columns, schema=self._parquet)

    def _new_path(self, partition: Partition) -> str:
        refuse_long_values(self._splitter.texts(partition))
        name = f"{self._prefix}{uuid.uuid4().hex}-{len(self._paths):05d}.parquet"
        return f"{self._table.data_prefix}{self._splitter.folder(partition)}{name}"

    def _event_partition(self, partition: Partition) -> Mapping[str, str | None]:
        return self._splitter.texts(partition)

    def _metadata(self, file: DataFile[Partition], footer: pq.FileMetaData, size: int) -> bytes:
        record = {
            "content": 0,
            "file_path": f"{self._table.data_location}/{file.path}",
            "file_format": "PARQUET",
            "partition": file.partition,
            "record_count": footer.num_rows,
            "file_size_in_bytes": size,
            **self._metrics.of(footer, file.counts),
            "key_metadata": None,
            "equality_ids": None,
            "sort_order_id": _UNSORTED,
        }
        return require_short(self._layout.encode(record), self.location, _FEWER)


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
