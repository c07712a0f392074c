"""Validation of the descriptions of files. They come from outside, so each is decoded and checked.

The committer copies the bytes of a record that passed, so no field can be lost.
"""

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.iceberg.canonical import FIELDS, FILE_FORMATS, CanonicalRecords
from sluicegate.lakes.iceberg.layout import FORMAT, FORMAT_VERSION, Layout, Partition
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import ReadBound, bound_reader, partition_problem, partition_text
from sluicegate.lakes.port import BadFiles, TableRefused

_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_NUMBERS: Final = "q"


@dataclass(frozen=True, slots=True)
class Entries:
    """The files of an event: their encoded records, and what a commit needs in addition."""

    encoded: bytes
    """Records, one after the other."""
    lengths: Sequence[int]
    """Bytes of each record."""
    rows: Sequence[int]
    """Rows of each file."""
    partitions: frozenset[Partition]
    spec_id: int

    def records(self) -> list[bytes]:
        """Return the records."""
        ends = list(accumulate(self.lengths))
        return [self.encoded[end - length : end] for end, length in zip(ends, self.lengths, strict=True)]


class Examiner:
    """Validator of events against one state of a table's schemas and specs."""

    def __init__(self, table: TableView) -> None:
        self._table = table
        self._layouts: dict[tuple[int, int], _Checks] = {}

    def examine(self, event: FilesWritten) -> Entries:
        """Check all properties that the event itself can prove. Raises BadFiles with the first problem."""
        if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
            raise BadFiles(
                f"metadata of {event.format} version {event.format_version} cannot be read; this release "
                f"reads {FORMAT} version {FORMAT_VERSION}"
            )
        if event.location != self._table.event_location:
            there = self._table.event_location
            raise BadFiles(f"the files are in {event.location}, but the table keeps its data in {there}")
        checks = self._checks_for(event)
        partitions = frozenset([checks.examine(file) for file in event.files])
        records = [file.metadata for file in event.files]
        rows = array(_NUMBERS, [file.rows for file in event.files])
        lengths = array(_NUMBERS, map(len, records))
        return Entries(b"".join(records), lengths, rows, partitions, checks.layout.spec.spec_id)

    def _checks_for(self, event: FilesWritten) -> "_Checks":
        spec_id = event.spec_id
        known = self._layouts.get((event.schema_id, spec_id))
        if known is None:
            schema, spec = self._table.schemas.get(event.schema_id), self._table.specs.get(spec_id)
            if schema is None:
                raise BadFiles(f"the files were written with schema {event.schema_id}, which the table lacks")
            if spec is None:
                raise BadFiles(f"the files were written with partition spec {spec_id}, which the table lacks")
            problem = schema_problem(schema, self._table.schema)
            if problem is not None:
                raise BadFiles(f"the files were written with schema {event.schema_id}: {problem}")
            known = self._layouts[event.schema_id, spec_id] = _Checks(self._table, schema, spec)
        return known


class _Checks:
    """Checks of the files of one schema and one spec."""

    def __init__(self, table: TableView, schema: Schema, spec: PartitionSpec) -> None:
        try:
            # The current schema, since types may have been promoted: then the bytes are the same.
            self.layout = Layout(table.schema, spec, table.version)
        except TableRefused as error:
            raise BadFiles(str(error)) from error
        self._prefix = f"{table.data_location}/"
        self._sort_orders = {None, 0, *table.sort_orders}
        self._columns = {
            column: bound_reader(field.field_type) for column, field in index_by_id(schema).items()
        }
        self._partitions: dict[Partition, tuple[Partition, dict[str, str | None]]] = {}
        self._canonical = CanonicalRecords(self._prefix, self._columns, self._sort_orders)
        self._is_known = self.layout.fields == FIELDS

    def examine(self, file: FileInfo) -> Partition:
        """Return a file's partition, after checks of all fields of its record. Raises BadFiles."""
        partition = self._canonical.partition_of(file)
        if partition is None:
            partition = self._decoded(file)
            if self._is_known:
                self._canonical.learn(file, self.layout.encode_partition(partition), partition)
        return partition

    def _decoded(self, file: FileInfo) -> Partition:
        try:
            record = self.layout.decode(file.metadata)
        except Exception as error:  # malformed bytes may raise any error in the parser
            raise BadFiles(f"the record of {file.path} cannot be read: {error!r}") from error
        claims: Sequence[tuple[str, object, object]] = (
            ("content", record["content"], 0),
            ("path", record["file_path"], self._prefix + file.path),
            ("size", record["file_size_in_bytes"], file.size),
            ("rows", record["record_count"], file.rows),
            ("key metadata", record["key_metadata"], None),
            ("equality ids", record["equality_ids"], None),
        )
        for what, found, expected in claims:
            if found != expected:
                raise BadFiles(
                    f"the record of {file.path} has {what} {found!r} where {expected!r} is expected"
                )
        if record["file_format"] not in FILE_FORMATS:
            raise BadFiles(f"the record of {file.path} has the file format {record['file_format']!r}")
        if record["sort_order_id"] not in self._sort_orders:
            order = record["sort_order_id"]
            raise BadFiles(f"the record of {file.path} has the sort order {order}, which the table lacks")
        problem = _offsets_problem(record["split_offsets"], file.size) or self._metrics_problem(record)
        if problem is not None:
            raise BadFiles(f"the record of {file.path} {problem}")
        return self._partition(record["partition"], file)

    def _metrics_problem(self, record: Mapping[str, Any]) -> str | None:
        for name in _COUNTS:
            pairs = record[name] or ()
            if len({pair["key"] for pair in pairs}) < len(pairs):
                return f"has a column twice in its {name}"
            for pair in pairs:
                if pair["key"] not in self._columns or pair["value"] < 0:
                    return f"has {name} of {pair['value']} for the column {pair['key']}"
        bounds = []
        for name in _BOUNDS:
            read: dict[int, Any] = {}
            for pair in record[name] or ():
                column, raw = pair["key"], pair["value"]
                reader = self._columns.get(column)
                value = _bound(reader, raw) if reader is not None and column not in read else None
                if value is None:
                    return f"has {name} for the column {column} that cannot be read: {raw[:64]!r}"
                read[column] = value
            bounds.append(read)
        lower, upper = bounds
        crossed = [column for column, value in lower.items() if column in upper and value > upper[column]]
        return f"has a lower bound above the upper one for the columns {crossed}" if crossed else None

    def _partition(self, partition: Partition, file: FileInfo) -> Partition:
        known = self._partitions.get(partition)
        if known is None:
            known = partition, self._texts(partition, file)
            self._partitions[partition] = known
        shared, texts = known
        if file.partition != texts:
            raise BadFiles(f"{file.path} is in the partition {texts}, not in {file.partition}")
        return shared

    def _texts(self, partition: Partition, file: FileInfo) -> dict[str, str | None]:
        fields = zip(self.layout.spec.fields, self.layout.partition_type.fields, partition, strict=True)
        texts: dict[str, str | None] = {}
        for field, typed, value in fields:
            problem = partition_problem(field, typed.field_type, value)
            if problem is not None:
                raise BadFiles(f"the partition value {field.name} of {file.path} {problem}")
            try:
                texts[field.name] = partition_text(field, typed.field_type, value)
            except Exception as error:  # a value out of range may raise any error
                raise BadFiles(
                    f"the partition value {field.name} of {file.path} cannot be read: {error}"
                ) from error
        return texts


def schema_problem(written: Schema, current: Schema) -> str | None:
    """Return why files of an older schema do not fit the current one; None if they do."""
    if written.schema_id == current.schema_id:
        return None
    before, now = index_by_id(written), index_by_id(current)
    gone = sorted(field.name for column, field in before.items() if column not in now)
    if gone:
        return f"the columns {', '.join(gone)} were dropped since then. Write the rows again"
    required = next(_newly_required(current.fields, before), None)
    if required is not None:
        return f"the column {required} is required since then. Write the rows again"
    return None


def _newly_required(fields: Sequence[NestedField], before: Mapping[int, NestedField]) -> Iterator[str]:
    """Yield the names of required fields that older files may lack, without the parts of new columns.

    A column that files lack is null as a whole, so its parts may be required. The keys of maps always are.
    """
    for field in fields:
        earlier = before.get(field.field_id)
        if field.required and (earlier is None or not earlier.required):
            yield field.name
        if earlier is not None:
            yield from _newly_required(_parts(field.field_type), before)


def _parts(kind: IcebergType) -> Sequence[NestedField]:
    if isinstance(kind, MapType):
        return kind.key_field, kind.value_field
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return kind.fields if isinstance(kind, StructType) else ()


def _offsets_problem(offsets: Sequence[int] | None, size: int) -> str | None:
    if offsets is None:
        return None
    if list(offsets) != sorted(set(offsets)) or any(not 0 <= offset <= size for offset in offsets):
        return f"has split offsets that do not rise inside of the file: {offsets[:8]}"
    return None


def _bound(reader: ReadBound, raw: bytes) -> Any:
    """Return the value of a bound; None if it cannot be read."""
    try:
        return reader(raw)
    except (ValueError, struct.error):
        return None
