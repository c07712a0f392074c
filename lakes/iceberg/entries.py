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
from pyiceberg.types import NestedField

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.committers import refuse_other_schema
from sluicegate.lakes.iceberg.canonical import FIELDS, FILE_FORMAT, CanonicalRecords
from sluicegate.lakes.iceberg.layout import FORMAT, FORMAT_VERSION, Layout, Partition
from sluicegate.lakes.iceberg.rules import COUNTS, Counts, MetricRules, parts_of_type
from sluicegate.lakes.iceberg.table import TableView, schema_digest
from sluicegate.lakes.iceberg.values import (
    ReadBound,
    bound_reader,
    partition_key,
    partition_problem,
    partition_text,
)
from sluicegate.lakes.port import BadFiles, TableRefused
from sluicegate.lakes.twins import require_plain

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
        if event.location != self._table.event_location:
            there = self._table.event_location
            raise BadFiles(f"the files are in {event.location}, but the table keeps its data in {there}")
        if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
            raise BadFiles(
                f"metadata of {event.format} version {event.format_version} cannot be read; this release "
                f"reads {FORMAT} version {FORMAT_VERSION}"
            )
        checks = self._checks_for(event)
        partitions = frozenset([checks.examine(file) for file in event.files])
        records = [file.metadata for file in event.files]
        if checks.current is not None:
            found = [checks.widened(file, checks.current) for file in event.files]
            records, partitions = [record for record, _ in found], frozenset([each for _, each in found])
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
        refuse_other_schema(event, known.digest)
        return known


class _Checks:
    """Checks of the files of one schema and one spec."""

    def __init__(self, table: TableView, schema: Schema, spec: PartitionSpec) -> None:
        try:
            self.layout = Layout(schema, spec, table.version)
            current = Layout(table.schema, spec, table.version) if schema is not table.schema else self.layout
        except TableRefused as error:
            raise BadFiles(str(error)) from error
        self.current = current if current.partition_type != self.layout.partition_type else None
        """Layout with the present types of the partition, if others than when the files were written."""
        self.digest = schema_digest(table.raw_schemas[schema.schema_id])
        self._prefix = f"{table.data_location}/"
        self._sort_orders = {None, 0, *table.sort_orders}
        readers = {column: bound_reader(each.field_type) for column, each in index_by_id(schema).items()}
        self._columns = {column: read for column, read in readers.items() if read is not None}
        self._rules = MetricRules(schema)
        self._partitions: dict[Partition, tuple[Partition, dict[str, str | None]]] = {}
        """By the key of the partition."""
        self._widened: dict[Partition, Partition] = {}
        self._canonical = CanonicalRecords(self._prefix, self._columns, self._sort_orders, self._rules)
        self._is_known = self.layout.fields == FIELDS

    def examine(self, file: FileInfo) -> Partition:
        """Return a file's partition, after checks of all fields of its record. Raises BadFiles."""
        partition = self._canonical.partition_of(file)
        if partition is None:
            partition = self._decoded(file)
            if self._is_known:
                self._canonical.learn(file, self.layout.encode_partition(partition), partition)
        return partition

    def widened(self, file: FileInfo, current: Layout) -> tuple[bytes, Partition]:
        """Return the record of a file that was examined, and its partition, with the present types.

        Raises BadFiles.
        """
        try:
            record, partition = self.layout.widened(file.metadata, current)
        except ValueError as error:
            raise BadFiles(
                f"the partition of {file.path} has another type by now: {error}. Write the rows again"
            ) from error
        return record, self._widened.setdefault(partition_key(partition), partition)

    def _decoded(self, file: FileInfo) -> Partition:
        require_plain(file.path)
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
            ("file format", record["file_format"], FILE_FORMAT),
        )
        for what, found, expected in claims:
            if found != expected:
                raise BadFiles(
                    f"the record of {file.path} has {what} {found!r} where {expected!r} is expected"
                )
        if record["sort_order_id"] not in self._sort_orders:
            order = record["sort_order_id"]
            raise BadFiles(f"the record of {file.path} has the sort order {order}, which the table lacks")
        problem = _offsets_problem(record["split_offsets"], file.size) or self._metrics_problem(record)
        if problem is not None:
            raise BadFiles(f"the record of {file.path} {problem}")
        return self._partition(record["partition"], file)

    def _metrics_problem(self, record: Mapping[str, Any]) -> str | None:
        counts = []
        for name in COUNTS:
            pairs = record[name] or ()
            found = {pair["key"]: pair["value"] for pair in pairs}
            if len(found) < len(pairs):
                return f"has a column twice in its {name}"
            for column, count in found.items():
                if column not in self._columns or count < 0:
                    return f"has {name} of {count} for the column {column}"
            counts.append(found)
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
        if crossed:
            return f"has a lower bound above the upper one for the columns {crossed}"
        rows, size = record["record_count"], record["file_size_in_bytes"]
        return self._rules.problem(Counts(*counts), lower.keys() | upper.keys(), rows, size)

    def _partition(self, partition: Partition, file: FileInfo) -> Partition:
        key = partition_key(partition)
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = partition, self._texts(partition, file)
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
            yield from _newly_required(parts_of_type(field.field_type), before)


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
