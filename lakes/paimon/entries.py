"""Manifest entries. The writer half encodes them; the committer half checks and copies their bytes.

The committer half never encodes an entry, so no field can be lost.
"""

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import repeat
from typing import Any, Final
from urllib.parse import unquote

import fastavro
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA, ManifestEntry
from pypaimon.schema.data_types import AtomicType, DataField, DataType
from pypaimon.table.row.generic_row import (
    GenericRow,
    GenericRowDeserializer,
    GenericRowSerializer,
    _parse_type_precision_scale,
)
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.committer import refuse_other_metadata
from sluicegate.lakes.paimon.keys import key_columns
from sluicegate.lakes.paimon.table import UNAWARE, SchemaTable, layout
from sluicegate.lakes.port import BadFiles
from sluicegate.texts import counted

# Checks of the statistics of an entry. pypaimon decodes all of them for each read of the table.
#
# So bytes that it cannot decode would make the whole table unreadable, and wrong bounds would hide rows.

EMPTY: Final = GenericRowSerializer.to_bytes(GenericRow([], []))
"""Row without columns, as Paimon stores it."""
_ARITY: Final = 4
"""Bytes before a row."""
_HEADER: Final = 8
"""Bits of a row before those of its nulls: its kind, 0 for an insertion."""
_LONGEST_DECIMAL: Final = 16
_DAYS: Final = range(-719_162, 2_932_897)
"""Dates that Python has: the years 1 to 9999."""
_MILLIS: Final = range(_DAYS.start * 86_400_000, _DAYS.stop * 86_400_000)
_MILLIS_OF_DAY: Final = range(86_400_000)
_NANOS: Final = range(1_000_000)

_Read = Callable[[bytes, int], Any]
"""Return a value that compares as its type does, from a row and the column's slot. Raises ValueError."""


class Statistics:
    """Reader of the statistics of some columns."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._names = [str(field.name) for field in fields]
        self._readers = [_reader(field.type) for field in fields]
        self._slots = struct.Struct(f"<{len(fields)}q")
        self._arity = struct.pack(">i", len(fields))
        self._start = (len(fields) + _HEADER + 63) // 64 * 8

    def problem(self, stats: Mapping[str, Any], rows: int) -> str | None:
        """Return what is wrong with the statistics of a file of so many rows; None if nothing is."""
        counts = stats["_NULL_COUNTS"]
        if counts is not None and len(counts) != len(self._names):
            return f"has {len(counts)} numbers of nulls for {len(self._names)} columns"
        try:
            lower, upper = self._bounds(stats["_MIN_VALUES"]), self._bounds(stats["_MAX_VALUES"])
        except (ValueError, struct.error) as error:
            return f"has bounds that cannot be read: {error}"
        for name, low, high, nulls in zip(self._names, lower, upper, counts or repeat(None), strict=False):
            if nulls is not None and not 0 <= nulls <= rows:
                return f"has {counted(nulls, 'null')} in the column {name}, of {counted(rows, 'row')}"
            if nulls == rows and not low is high is None:
                return f"has bounds of the column {name}, which is null in all rows"
            if low is not None and high is not None and low > high:
                return f"has a lower bound above the upper one for the column {name}"
        return None

    def range_problem(self, lowest: bytes, highest: bytes) -> str | None:
        """Return what is wrong with two rows that are the ends of a range; None if nothing is."""
        try:
            lower, upper = self._bounds(lowest), self._bounds(highest)
        except (ValueError, struct.error) as error:
            return f"has keys that cannot be read: {error}"
        if None in lower or None in upper:
            return "has a key with a null"
        return "has a lowest key above the highest one" if lower > upper else None

    def _bounds(self, raw: bytes) -> list[Any]:
        """Return the values of a row, None for null. Raises ValueError or struct.error."""
        if raw[:_ARITY] != self._arity:
            raise ValueError(f"they are not those of {len(self._names)} columns")
        row = raw[_ARITY:]
        slots = self._slots.unpack_from(row, self._start)
        kind, nulls = row[0], int.from_bytes(row[: self._start], "little") >> _HEADER
        if kind != 0:
            raise ValueError(f"their row has the kind {kind}")
        values: list[Any] = []
        for at, (name, read, slot) in enumerate(zip(self._names, self._readers, slots, strict=True)):
            try:
                values.append(None if nulls >> at & 1 else read(row, slot))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return values


def _reader(kind: DataType) -> _Read:
    if not isinstance(kind, AtomicType):
        return _none
    name = kind.type.upper().split("(")[0].split()[0]
    if name.startswith(("DECIMAL", "NUMERIC", "TIMESTAMP")):
        return _scaled(name, _parse_type_precision_scale(kind)[0])
    return _READERS.get(name, _none)


def _scaled(name: str, precision: int) -> _Read:
    if name.startswith("TIMESTAMP"):
        return _moment if precision > 3 else lambda _, slot: _inside(_MILLIS, slot)
    digits = range(1 - 10**precision, 10**precision)
    return partial(_decimal, digits) if precision > 18 else lambda _, slot: _inside(digits, slot)


def _none(_: bytes, __: int) -> Any:
    raise ValueError("a column of its type has no bounds")


def _inside(values: range, value: int) -> int:
    if value not in values:
        raise ValueError(f"{value} is out of range")
    return value


def _integer(bits: int, _: bytes, slot: int) -> int:
    sign = 1 << bits - 1
    return (slot & (1 << bits) - 1 ^ sign) - sign


def _float(layout: struct.Struct, _: bytes, slot: int) -> float:
    value: float = layout.unpack(struct.pack("<q", slot))[0]
    if math.isnan(value):
        raise ValueError("NaN is no bound")
    return value


def _variable(row: bytes, slot: int) -> bytes:
    """Return a value of any length: it is in its slot, or the slot has its place in the row."""
    if slot < 0:
        inline = struct.pack("<q", slot)
        length = inline[7] & 0x7F
        if length > 7:
            raise ValueError(f"a slot has a value of {length} bytes")
        return inline[:length]
    return _part(row, slot >> 32, slot & 0xFFFF_FFFF)


def _part(row: bytes, start: int, length: int) -> bytes:
    if start + length > len(row):
        raise ValueError("a value ends after the row")
    return row[start : start + length]


def _text(raw: bytes) -> bytes:
    """Return the bytes of a text, which compare as its characters do. Raises ValueError for others."""
    raw.decode()
    return raw


def _decimal(digits: range, row: bytes, slot: int) -> int:
    length = slot & 0xFFFF_FFFF
    if slot < 0 or not 1 <= length <= _LONGEST_DECIMAL:
        raise ValueError(f"a decimal has {length} bytes")
    return _inside(digits, int.from_bytes(_part(row, slot >> 32, length), "big", signed=True))


def _moment(row: bytes, slot: int) -> tuple[int, int]:
    """Return the milliseconds of a time, and the nanoseconds of its last one."""
    (millis,) = struct.unpack("<q", _part(row, slot >> 32 & 0xFFFF_FFFF, 8))
    return _inside(_MILLIS, millis), _inside(_NANOS, slot & 0xFFFF_FFFF)


def _long(_: bytes, slot: int) -> int:
    return slot


def _string(row: bytes, slot: int) -> bytes:
    return _text(_variable(row, slot))


_READERS: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), lambda _, slot: _inside(range(2), slot & 0xFF)),
    **dict.fromkeys(("TINYINT", "BYTE"), partial(_integer, 8)),
    **dict.fromkeys(("SMALLINT", "SHORT"), partial(_integer, 16)),
    **dict.fromkeys(("INT", "INTEGER"), partial(_integer, 32)),
    **dict.fromkeys(("BIGINT", "LONG"), _long),
    **dict.fromkeys(("FLOAT", "REAL"), partial(_float, struct.Struct("<f4x"))),
    "DOUBLE": partial(_float, struct.Struct("<d")),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), _string),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), _variable),
    "DATE": lambda row, slot: _inside(_DAYS, _integer(32, row, slot)),
    "TIME": lambda row, slot: _inside(_MILLIS_OF_DAY, _integer(32, row, slot)),
}


FORMAT: Final = "paimon"
FORMAT_VERSION: Final = 1
"""Version of the metadata blobs. 1: one Avro record in pypaimon 2.1.0's schema of manifest entries."""

ENTRY_VERSION: Final = 2
BUCKET: Final = 0
TOTAL_BUCKETS: Final = UNAWARE

_NO_STATISTICS: Final = {"_MIN_VALUES": EMPTY, "_MAX_VALUES": EMPTY, "_NULL_COUNTS": None}

ENTRY_SCHEMA: Final = fastavro.parse_schema(MANIFEST_ENTRY_SCHEMA)


def _no_keys(described: Mapping[str, Any]) -> Sequence[tuple[str, object, object]]:
    """Return the claims of a file of a table without keys, with what each has to be."""
    return (
        ("lowest key", described["_MIN_KEY"], EMPTY),
        ("highest key", described["_MAX_KEY"], EMPTY),
        ("key statistics", {**described["_KEY_STATS"], "_NULL_COUNTS": None}, _NO_STATISTICS),
        ("nulls in keys", described["_KEY_STATS"]["_NULL_COUNTS"] or [], []),
        ("deleted rows", described["_DELETE_ROW_COUNT"] or 0, 0),
    )


class _Keys:
    """Checks of the fields of an entry that only tables with keys have.

    Readers merge files whose ranges of keys overlap, and no others; and they read a file without deletions as
    it is. So a wrong range or a wrong number of deletions shows rows that are not there any more.
    """

    def __init__(self, table: SchemaTable) -> None:
        by_name = {field.name: field for field in table.fields}
        self._fields = Statistics([by_name[name] for name in key_columns(table.table_schema)])

    def problem(self, described: Mapping[str, Any]) -> str | None:
        """Return what is wrong with keys, numbers or deletions of a file; None if nothing is."""
        rows, deleted = described["_ROW_COUNT"], described["_DELETE_ROW_COUNT"]
        if deleted is None:
            return (
                "does not state how many of its rows are deletions. Rows that they delete would come back: "
                "count the rows whose _VALUE_KIND is 1 or 3"
            )
        if not 0 <= deleted <= rows:
            return f"has {counted(deleted, 'deletion')}, of {counted(rows, 'row')}"
        lowest, highest = described["_MIN_SEQUENCE_NUMBER"], described["_MAX_SEQUENCE_NUMBER"]
        if highest - lowest + 1 < rows:
            return (
                f"has the sequence numbers {lowest} to {highest} for {counted(rows, 'row')}, and two are one"
            )
        return self._fields.range_problem(
            described["_MIN_KEY"], described["_MAX_KEY"]
        ) or self._fields.problem(described["_KEY_STATS"], rows)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of an event: their bytes, and what a commit needs in addition."""

    encoded: bytes
    """Records, one after the other."""
    partitions: Mapping[bytes, int]
    """Number of the files of each binary partition."""
    buckets: frozenset[int]
    schema_id: int

    @property
    def files(self) -> int:
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """Folder of a partition's bucket."""

    folder: str
    """Path relative to the table, with the bucket."""
    values: dict[str, str | None]
    """Texts of the path; None for a null, of which the path has the table's default name."""


def partition_folder(table: SchemaTable, partition: GenericRow, bucket: int) -> PartitionFolder:
    """Return the folder of a partition's bucket, with the partition values that its path contains."""
    path = canonical_data_file_path(table, tuple(partition.values), bucket, "x")
    folder = path[len(str(table.table_path)) + 1 : -len("/x")]
    pairs = (part.split("=", 1) for part in folder.split("/")[:-1])
    named = zip(pairs, partition.values, strict=True)
    values = {unquote(key): None if value is None else unquote(text) for (key, text), value in named}
    return PartitionFolder(folder, values)


class Examiner:
    """Validator of events against one table. It caches the folders of partitions."""

    def __init__(
        self, table: SchemaTable, location: str, fields_of: Callable[[int], Sequence[DataField]]
    ) -> None:
        """`fields_of` returns the columns of a schema by its id."""
        self._table = table
        self._location = location
        self._fields_of = fields_of
        self._statistics: dict[tuple[int, tuple[str, ...] | None], Statistics] = {}
        """By the schema, and the columns that have some; None: all."""
        self._layout = layout(table.table_schema)
        self._buckets = self._layout.numbers
        self._keys = _Keys(table) if table.is_primary_key_table else None
        self._folders: dict[tuple[bytes, int], PartitionFolder] = {}
        self._partitions: dict[bytes, bytes] = {}

    def examine(self, event: FilesWritten) -> Entries:
        """Check all properties that the event itself can prove. Raises BadFiles with the first problem."""
        if event.location != self._location:
            raise BadFiles(f"the files are in {event.location}, but the table is in {self._location}")
        refuse_other_metadata(event, FORMAT, FORMAT_VERSION)
        found = [self._entry(event, file) for file in event.files]
        encoded = b"".join([file.metadata for file in event.files])
        partitions = Counter(partition for partition, _ in found)
        return Entries(encoded, partitions, frozenset(bucket for _, bucket in found), event.schema_id)

    def _entry(self, event: FilesWritten, file: FileInfo) -> tuple[bytes, int]:
        """Return partition and bucket of a file, after checks of all its entry's fields. Raises BadFiles."""
        record = _decode(file)
        described = record["_FILE"]
        name: str = described["_FILE_NAME"]
        claims: Sequence[tuple[str, object, object]] = (
            ("version", record["_VERSION"], ENTRY_VERSION),
            ("kind", record["_KIND"], 0),
            ("total buckets", record["_TOTAL_BUCKETS"], self._layout.total),
            ("size", described["_FILE_SIZE"], file.size),
            ("rows", described["_ROW_COUNT"], file.rows),
            ("schema", described["_SCHEMA_ID"], event.schema_id),
            ("level", described["_LEVEL"], 0),
            ("extra files", described["_EXTRA_FILES"], []),
            ("external path", described["_EXTERNAL_PATH"], None),
            ("first row id", described["_FIRST_ROW_ID"], None),
            *(_no_keys(described) if self._keys is None else ()),
            ("source", described["_FILE_SOURCE"] or 0, 0),
            ("index", described["_EMBEDDED_FILE_INDEX"], None),
            ("columns", described["_WRITE_COLS"], None),
            ("sequences of columns", described["_WRITE_COLS_SEQUENCES"], None),
        )
        for what, found, expected in claims:
            if found != expected:
                raise BadFiles(
                    f"the entry of {file.path} has {what} {found!r} where {expected!r} is expected"
                )
        problem = self._problem(event.schema_id, described)
        if problem is None and self._keys is not None:
            problem = self._keys.problem(described)
        if problem is not None:
            raise BadFiles(f"the entry of {file.path} {problem}")
        bucket: int = record["_BUCKET"]
        if bucket not in self._buckets:
            raise BadFiles(
                f"the entry of {file.path} has bucket {bucket}; the table's go from 0 to {self._buckets[-1]}"
            )
        partition: bytes = record["_PARTITION"]
        there = self._folder(partition, bucket, file)
        if name in ("", ".", "..") or "/" in name or file.path != f"{there.folder}/{name}":
            raise BadFiles(f"the path {file.path} is not {there.folder}/{name}, where readers would look")
        if file.partition != there.values:
            raise BadFiles(f"{file.path} is in the partition {there.values}, not in {file.partition}")
        # All files of a partition share one object, because the entries of many events may be in memory.
        return self._partitions.setdefault(partition, partition), bucket

    def _problem(self, schema_id: int, described: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the sequence numbers or statistics of a file; None if nothing is."""
        lowest, highest = described["_MIN_SEQUENCE_NUMBER"], described["_MAX_SEQUENCE_NUMBER"]
        if not 0 <= lowest <= highest:
            return f"has the sequence numbers {lowest} to {highest}"
        columns = described["_VALUE_STATS_COLS"]
        key = schema_id, None if columns is None else tuple(columns)
        known = self._statistics.get(key)
        if known is None:
            fields = self._fields_of(schema_id)
            if columns is not None:
                by_name = {field.name: field for field in fields}
                if len(set(columns)) < len(columns) or not by_name.keys() >= set(columns):
                    return f"has statistics of the columns {columns}, which are not in the schema, or twice"
                fields = [by_name[name] for name in columns]
            known = self._statistics[key] = Statistics(fields)
        return known.problem(described["_VALUE_STATS"], described["_ROW_COUNT"])

    def _folder(self, partition: bytes, bucket: int, file: FileInfo) -> PartitionFolder:
        known = self._folders.get((partition, bucket))
        if known is None:
            try:
                row = GenericRowDeserializer.from_bytes(partition, self._table.partition_keys_fields)
                known = partition_folder(self._table, row, bucket)
            except Exception as error:  # malformed bytes may raise any error in the parser
                raise BadFiles(
                    f"the partition in the entry of {file.path} cannot be read: {error}"
                ) from error
            if GenericRowSerializer.to_bytes(GenericRow(row.values, row.fields)) != partition:
                raise BadFiles(
                    f"the partition in the entry of {file.path} is not in the one form that all writers use. "
                    "Readers would take it for another partition"
                )
            self._folders[partition, bucket] = known
        return known


def _decode(file: FileInfo) -> dict[str, Any]:
    stream, again = BytesIO(file.metadata), BytesIO()
    try:
        record = fastavro.schemaless_reader(stream, ENTRY_SCHEMA)
        fastavro.schemaless_writer(again, ENTRY_SCHEMA, record)
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise BadFiles(f"the entry of {file.path} cannot be read: {error!r}") from error
    if stream.tell() != len(file.metadata) or not isinstance(record, dict):
        raise BadFiles(f"the entry of {file.path} has {len(file.metadata)} bytes, more than one record")
    # Avro has several encodings of one value. A list may state its size, and readers that skip it believe
    # that.
    if again.getvalue() != file.metadata:
        raise BadFiles(f"the entry of {file.path} is not in the one form that all readers decode alike")
    return record


# Encoding of manifest entries by the writer half.


def encode_entry(entry: ManifestEntry) -> bytes:
    """Encode an entry as one Avro record, in the format of pypaimon's manifest files."""
    out = BytesIO()
    fastavro.schemaless_writer(out, ENTRY_SCHEMA, ManifestFileManager._to_avro_record(entry))
    return out.getvalue()
