"""Manifest entries. The writer half encodes them; the committer half checks and copies their bytes.

The committer half never encodes an entry, so no field can be lost.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote

import fastavro
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.schema.data_types import DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer, GenericRowSerializer
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.paimon.buckets import UNAWARE, layout
from sluicegate.lakes.paimon.schema_table import SchemaTable
from sluicegate.lakes.paimon.statistics import EMPTY, Statistics
from sluicegate.lakes.port import BadFiles

FORMAT: Final = "paimon"
FORMAT_VERSION: Final = 1
"""Version of the metadata blobs. 1: one Avro record in pypaimon 2.1.0's schema of manifest entries."""

ENTRY_VERSION: Final = 2
BUCKET: Final = 0
TOTAL_BUCKETS: Final = UNAWARE

_NO_STATISTICS: Final = {"_MIN_VALUES": EMPTY, "_MAX_VALUES": EMPTY, "_NULL_COUNTS": None}

ENTRY_SCHEMA: Final = fastavro.parse_schema(MANIFEST_ENTRY_SCHEMA)


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
        self._folders: dict[tuple[bytes, int], PartitionFolder] = {}
        self._partitions: dict[bytes, bytes] = {}

    def examine(self, event: FilesWritten) -> Entries:
        """Check all properties that the event itself can prove. Raises BadFiles with the first problem."""
        if event.location != self._location:
            raise BadFiles(f"the files are in {event.location}, but the table is in {self._location}")
        if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
            raise BadFiles(
                f"metadata of {event.format} version {event.format_version} cannot be read; this release "
                f"reads {FORMAT} version {FORMAT_VERSION}"
            )
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
            ("lowest key", described["_MIN_KEY"], EMPTY),
            ("highest key", described["_MAX_KEY"], EMPTY),
            ("key statistics", {**described["_KEY_STATS"], "_NULL_COUNTS": None}, _NO_STATISTICS),
            ("nulls in keys", described["_KEY_STATS"]["_NULL_COUNTS"] or [], []),
            ("deleted rows", described["_DELETE_ROW_COUNT"] or 0, 0),
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
