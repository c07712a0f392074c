"""Checks of the records of data files. They come from outside, so each is decoded, or proven without that.

The committer copies the bytes of a record that passed, so no field can be lost.
"""

import re
import struct
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, StructType

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.avro import write_long
from sluicegate.lakes.committer import (
    is_plain,
    refuse_other_format,
    refuse_other_metadata,
    refuse_other_schema,
    require_plain,
    require_schema_id,
)
from sluicegate.lakes.iceberg.layout import FORMAT, FORMAT_VERSION, Layout, Partition
from sluicegate.lakes.iceberg.table import TableView, schema_digest
from sluicegate.lakes.iceberg.values import (
    ReadBound,
    bound_reader,
    partition_key,
    partition_problem,
    partition_text,
)
from sluicegate.lakes.port import BadFiles, TableRefused
from sluicegate.texts import counted

# Rules for the metrics in the records of files. Readers skip files by them, so they must fit each other.

COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


class Counts(NamedTuple):
    """Numbers of a file by column, none of them negative."""

    sizes: Mapping[int, int]
    """In bytes."""
    values: Mapping[int, int]
    nulls: Mapping[int, int]
    nans: Mapping[int, int]


class MetricRules:
    """Rules for the files of one schema."""

    def __init__(self, schema: Schema) -> None:
        fields = index_by_id(schema)
        self.floats: Final = frozenset(
            column for column, each in fields.items() if isinstance(each.field_type, FloatType | DoubleType)
        )
        """Columns that can have NaN."""
        self._repeated = frozenset(_repeated(schema.fields, inside=False))

    def problem(self, counts: Counts, bounded: Collection[int], rows: int, size: int) -> str | None:
        """Return the first contradiction in the metrics of a file; None if there is none.

        `bounded` are the columns with a bound, `rows` and `size` are those of the file.
        """
        wrong = [column for column, number in counts.sizes.items() if number > size]
        if wrong:
            return f"has column_sizes above the size of the file for the columns {wrong}"
        wrong = [
            column
            for column, number in counts.values.items()
            if number != rows and column not in self._repeated
        ]
        if wrong:
            return f"has other value_counts than {counted(rows, 'row')} for the columns {wrong}"
        if not counts.nans.keys() <= self.floats:
            return f"has nan_value_counts for the columns {sorted(counts.nans.keys() - self.floats)}"
        left = {
            column: (counts.values.get(column) if column in self._repeated else rows)
            for column in (*counts.nulls, *counts.nans, *bounded)
        }
        others = {
            column: number - counts.nulls.get(column, 0) - counts.nans.get(column, 0)
            for column, number in left.items()
            if number is not None
        }
        wrong = [column for column, number in others.items() if number < 0]
        if wrong:
            return f"counts more nulls and NaN than values for the columns {wrong}"
        wrong = [column for column in bounded if not others.get(column, 1)]
        return f"has bounds without values for the columns {wrong}" if wrong else None


def _repeated(fields: Sequence[NestedField], inside: bool) -> Iterator[int]:
    """Yield the columns in lists and maps: a row may have any number of their values."""
    for field in fields:
        if inside:
            yield field.field_id
        kind = field.field_type
        yield from _repeated(parts_of_type(kind), inside or isinstance(kind, ListType | MapType))


def parts_of_type(kind: IcebergType) -> Sequence[NestedField]:
    """Return the columns directly inside of one of a type."""
    if isinstance(kind, MapType):
        return kind.key_field, kind.value_field
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return kind.fields if isinstance(kind, StructType) else ()


# Records of data files in the one encoding of Avro that all writers of ours use, proven without decoding.
#
# Avro has several encodings of one value. In the canonical one, each number is as short as it can be, and
# each list is one block without a size in bytes. Everything else is left to the decoder, which knows why a
# record is wrong.

FIELDS: Final = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds", "key_metadata", "split_offsets", "equality_ids", "sort_order_id"),
)
"""Fields of a record, in its order. Records with others are not proven."""
FILE_FORMAT: Final = "PARQUET"
"""The only one that writers of ours use."""

_COUNTS: Final = 4
"""Maps of counts, from `column_sizes` on."""
_ABSENT: Final = 0
_PRESENT: Final = 2
"""First bytes of an optional value, as Avro writes the numbers 0 and 1."""
_LARGEST: Final = 1 << 63
_NUMBER: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}\x01"
_NUMBERS: Final = re.compile(_NUMBER)
# Avro writes negative numbers as odd ones. A longer number without its first bits ends with a zero.
_EVEN: Final = b"".join(b"\\x%02x" % byte for byte in range(0, 0x80, 2))
_EVEN_START: Final = b"".join(b"\\x%02x" % byte for byte in range(0x80, 0x100, 2))
_POSITIVE: Final = b"[%b]|[%b](?:[\\x80-\\xff]{0,7}[\\x01-\\x7f]|[\\x80-\\xff]{8}\\x01)" % (
    _EVEN,
    _EVEN_START,
)


class Known(NamedTuple):
    """A partition whose files have been examined."""

    encoded: bytes
    """As a record of a file contains it."""
    partition: Partition


class CanonicalRecords:
    """Prover of the records of one schema and one spec.

    It proves as much as the decoder and all checks after it do. It is made for records of honest writers: one
    that is not proven may still be right.
    """

    def __init__(
        self,
        location: str,
        columns: Mapping[int, ReadBound],
        sort_orders: Collection[int | None],
        rules: MetricRules,
    ) -> None:
        """`location` is the beginning of all full paths, `columns` are readers of bounds by column."""
        self._location = location.encode()
        self._columns = frozenset(map(write_long, columns))
        # As Avro writes them: twice the number.
        self._readers = {2 * column: read for column, read in columns.items()}
        self._rules = rules
        self._floats = frozenset(map(write_long, rules.floats))
        self._format = write_long(len(FILE_FORMAT)) + FILE_FORMAT.encode()
        orders = (b"\0" if order is None else b"\x02" + write_long(order) for order in sort_orders)
        self._ends = frozenset(b"\0" + order for order in orders)
        """Fields after the split offsets: no equality ids, and a sort order."""
        self._known: dict[tuple[tuple[str, str | None], ...], Known] = {}
        """By the texts of the partition, in the order of the event."""

    def learn(self, file: FileInfo, encoded: bytes, partition: Partition) -> None:
        """Remember the partition of a file that was examined. `encoded` is canonical."""
        self._known[tuple(file.partition.items())] = Known(encoded, partition)

    def partition_of(self, file: FileInfo) -> Partition | None:
        """Return the partition of a file if its record is proven, else None."""
        known = self._known.get(tuple(file.partition.items()))
        if known is None or file.rows >= _LARGEST or file.size >= _LARGEST or not is_plain(file.path):
            return None
        try:
            return known.partition if self._is_proven(file, known.encoded) else None
        except (IndexError, ValueError, struct.error):
            # It ends too early, or has a number or a bound that cannot be read.
            return None

    def _is_proven(self, file: FileInfo, partition: bytes) -> bool:
        """Compare the fields with their expected bytes, in order. Raises as `partition_of` catches."""
        data, path = file.metadata, self._location + file.path.encode()
        rows, size = write_long(file.rows), write_long(file.size)
        start = b"\0%b%b%b%b%b%b" % (write_long(len(path)), path, self._format, partition, rows, size)
        if not data.startswith(start):
            return False
        at = len(start)
        counts = []
        for _ in range(_COUNTS):
            found, at = self._counts(data, at)
            counts.append(found)
        lower, at = self._bounds(data, at)
        upper, at = self._bounds(data, at)
        for column, value in lower.items():
            if column in upper and value > upper[column]:
                return False
        suspects = self._suspects(counts, rows, size)
        if suspects or not file.rows:
            numbers = Counts(
                *({_whole(key): _whole(of[key]) for key in suspects & of.keys()} for of in counts)
            )
            # The readers' keys are twice the numbers. A file without rows can have no bounds at all.
            bounded = {column // 2 for column in (*lower, *upper)}
            bounded = bounded & {*map(_whole, suspects)} if file.rows else bounded
            if self._rules.problem(numbers, bounded, file.rows, file.size) is not None:
                return False
        # No key metadata.
        if data[at] != _ABSENT:
            return False
        return data[_after_offsets(data, at + 1, file.size) :] in self._ends

    def _suspects(self, counts: Sequence[Mapping[bytes, bytes]], rows: bytes, size: bytes) -> set[bytes]:
        """Return the columns whose counts could be against a rule, by a look at their bytes.

        The rules are those of each column alone. Whatever the bounds, the others follow them if there are
        rows.
        """
        sizes, values, nulls, nans = counts
        found = {column for column, number in values.items() if number != rows}
        found.update([column for column, number in nulls.items() if number != b"\0"])
        found.update([column for column, number in nans.items() if number != b"\0"])
        # A number with more bytes is a higher one. Among those of one length, the last byte counts most.
        last = len(size), size[::-1]
        found.update([column for column, of in sizes.items() if (len(of), of[::-1]) > last])
        return found | (nans.keys() - self._floats)

    def _counts(self, data: bytes, at: int) -> tuple[Mapping[bytes, bytes], int]:
        """Return a map of counts, none of them negative, and the position after it. Raises ValueError."""
        count, at = _block(data, at)
        if not count:
            return {}, at
        # More would be there twice. The count comes from outside, and each has a pattern.
        found = _pairs(count).match(data, at) if count <= len(self._columns) else None
        if found is None:
            raise ValueError
        numbers = _NUMBERS.findall(found[0])
        counts = dict(zip(numbers[::2], numbers[1::2], strict=True))
        if len(counts) < count or not counts.keys() <= self._columns:
            raise ValueError
        return counts, _after_end(data, found.end())

    def _bounds(self, data: bytes, at: int) -> tuple[dict[int, Any], int]:
        """Return the values of a map of bounds, and the position after it.

        Raises as `partition_of` catches.
        """
        count, at = _block(data, at)
        found: dict[int, Any] = {}
        if not count:
            return found, at
        readers = self._readers
        for _ in range(count):
            column, length = data[at], data[at + 1]
            at += 2
            # Most numbers have one byte.
            if column > 0x7F or length > 0x7F:
                column, at = _positive(data, at - 2)
                length, at = _positive(data, at)
            elif length & 1:
                raise ValueError
            read, end = readers.get(column), at + length // 2
            if read is None or end > len(data):
                raise ValueError
            found[column] = read(data[at:end])
            at = end
        if len(found) < count:
            raise ValueError
        return found, _after_end(data, at)


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items of an optional list, and the position of the first one.

    A list without items ends there. Raises ValueError or IndexError.
    """
    kind = data[at]
    if kind == _ABSENT:
        return 0, at + 1
    if kind != _PRESENT:
        raise ValueError
    count, at = _positive(data, at + 1)
    return count // 2, at


def _after_end(data: bytes, at: int) -> int:
    if data[at]:
        raise ValueError
    return at + 1


def _after_offsets(data: bytes, at: int, size: int) -> int:
    """Return the position after optional offsets that rise inside of a file.

    Raises ValueError or IndexError.
    """
    count, at = _block(data, at)
    before = -1
    for _ in range(count):
        offset, at = _positive(data, at)
        if not before < offset <= 2 * size:
            raise ValueError
        before = offset
    return _after_end(data, at) if count else at


def _positive(data: bytes, at: int) -> tuple[int, int]:
    """Return twice the number at a position, as Avro writes it, and the position after it.

    Raises ValueError.
    """
    found = _ONE.match(data, at)
    if found is None:
        raise ValueError
    number = shift = 0
    for byte in found[0]:
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, found.end()


def _whole(raw: bytes) -> int:
    """Return a number, which is not negative, of its bytes."""
    return raw[0] >> 1 if len(raw) == 1 else _positive(raw, 0)[0] >> 1


@cache
def _pairs(count: int) -> re.Pattern[bytes]:
    """Return the pattern of so many pairs of numbers, none of them negative."""
    return re.compile(b"(?:%b){%d}" % (_POSITIVE, 2 * count))


_ONE: Final = re.compile(_POSITIVE)


_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_INT64_ARRAY: Final = "q"


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
        refuse_other_format(event, FORMAT)
        # First: without a schema and a spec of the table, no file was described.
        checks = self._checks_for(event)
        refuse_other_metadata(event, FORMAT, FORMAT_VERSION)
        partitions = frozenset([checks.examine(file) for file in event.files])
        records = [file.metadata for file in event.files]
        if checks.current is not None:
            found = [checks.widened(file, checks.current) for file in event.files]
            records, partitions = [record for record, _ in found], frozenset([each for _, each in found])
        rows = array(_INT64_ARRAY, [file.rows for file in event.files])
        lengths = array(_INT64_ARRAY, map(len, records))
        return Entries(b"".join(records), lengths, rows, partitions, checks.layout.spec.spec_id)

    def _checks_for(self, event: FilesWritten) -> "_Checks":
        require_schema_id(event, "Iceberg")
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
