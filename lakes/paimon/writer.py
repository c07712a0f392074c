"""Writer half of the adapter: pypaimon's writer makes data files, which become manifest entries."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pypaimon.common.file_io import FileIO
from pypaimon.common.identifier import Identifier
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor

from sluicegate.events.models import FileInfo
from sluicegate.lakes.arrow import conform, out_of_range, require_values
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions, require_short
from sluicegate.lakes.paimon.data_files import (
    DataFiles,
    OpenPartitions,
    StoredFiles,
    bound_lengths,
    file_options,
    held_bytes,
    library_options,
    take_bounds,
    unbounded,
)
from sluicegate.lakes.paimon.entries import encode_entry, partition_folder
from sluicegate.lakes.paimon.keys import sequence_fields
from sluicegate.lakes.paimon.table import Layout, SchemaTable, Table, hash_once, layout, one_group
from sluicegate.lakes.paimon.upserts import UpsertRows, take_numbers, write_rows
from sluicegate.lakes.parquet import RowBuffer, refuse_long_names, refuse_long_path, refuse_long_values
from sluicegate.lakes.port import LakeUnavailable, SchemaMismatch, TableRefused
from sluicegate.lakes.sequence import KIND_OPTION, BucketsOf, Upserts
from sluicegate.lakes.storage import Storage, is_too_long, unwritable
from sluicegate.lakes.storage_local import make_inside

_FEWER: Final = "set the option fields.<column>.stats-mode = none of the table for columns without filters"
_PREFIX: Final = "data-file.prefix"


def _identity(table: Table) -> str:
    """Return the identity of a table. Raises TableRefused if there is none, else LakeUnavailable."""
    try:
        return table.identity()
    except LakeUnavailable:
        table.newest()
        raise


class PaimonWriter:
    """Writer of one attempt of one task."""

    def __init__(
        self,
        storage: Storage,
        event_time_column: str | None,
        label: str | None,
        files: FileOptions = NO_OPTIONS,
        upserts: Upserts | None = None,
    ) -> None:
        """Prepare a writer. Raises TableRefused for wrong options, or LakeUnavailable."""
        opened = Table(storage)
        # Before the schema: if the table is made again in between, the coordinator refuses the files.
        self.table_identity = _identity(opened)
        table = opened.newest()
        columns: pa.Schema = PyarrowFieldParser.from_paimon_schema(table.fields).remove_metadata()
        refuse_long_names(storage.uri, table.partition_keys)
        files.check_columns(storage.uri, columns)
        of_table = {key: str(value) for key, value in table.table_schema.options.items()}
        _refuse_avro(storage.uri, columns, of_table)
        settings = files.settings(file_options(of_table))
        options = {"write.native.enabled": "false", "commit.native.enabled": "false"}
        options |= library_options(files, of_table)
        if label is not None:
            # The library adds a random name, so all file names of the attempt differ.
            options[_PREFIX] = f"data-{label}-"
        access = _LocalFiles(storage.root) if storage.local else StoredFiles(storage)
        bare = unbounded(files, of_table, columns.names, event_time_column)
        self._files = DataFiles(access, settings, files.compression, bare, event_time_column)
        self._table = _library_table(table, access).copy(options)
        self.location = storage.uri
        self.schema_id = int(table.table_schema.id)
        self.schema_digest = opened.schema_digest(self.schema_id)
        self.spec_id = 0
        self._storage = storage
        # Paimon's Java library puts the default in place of null, too.
        self._defaults = [field.name for field in table.fields if field.default_value is not None]
        self._upserts = _upserts(storage.uri, table, columns, of_table, upserts, sorts=bool(settings.sort))
        rows = columns if self._upserts is None else self._upserts.columns
        self._buffer = RowBuffer(storage.uri, rows, event_time_column)
        self._write = self._table.new_stream_write_builder().new_write()
        self._layout = layout(table.table_schema)
        lengths = bound_lengths(of_table, columns.names)
        _adapt(self._write, self._layout, lengths, is_partitioned=bool(table.table_schema.partition_keys))
        held = held_bytes(of_table, settings.target_size)
        if self._upserts is not None:
            take_numbers(self._write.file_store_write, of_table)
        OpenPartitions(self._write.file_store_write, settings.open_partitions, held)
        self.buckets = frozenset[int]()
        self._written: list[str] = []
        self._described = False

    def write(self, batch: pa.RecordBatch) -> None:
        require_values(batch, self._defaults, nulls=False)
        if self._buffer.add(batch):
            self._flush()

    def finish(self) -> Iterator[FileInfo]:
        self._flush()
        try:
            messages: list[CommitMessage] = self._write.prepare_commit(0)
        except (OSError, RuntimeError) as error:
            self._raise_known(error)
            raise
        self._written = [str(file.file_path) for message in messages for file in message.new_files]
        self._write.close()
        if self._layout.fixed and self._upserts is None:
            _number(messages)
        if self._upserts is not None and not sequence_fields(self._table.table_schema.options):
            self.buckets = frozenset(message.bucket for message in messages if message.new_files)
        infos = [self._describe(message, file) for message in messages for file in self._new_files(message)]
        self._storage.settle_files([info.path for info in infos])
        self._described = True
        return iter(infos)

    def abort(self) -> None:
        self._buffer.clear()
        if self._described:
            return
        self._write.abort()
        for path in self._written:
            # No event describes these files, so nothing can refer to them.
            self._storage.discard(".", [self._name(path)])

    def _flush(self) -> None:
        rows = self._buffer.take()
        if rows is None:
            return
        try:
            if self._upserts is None:
                self._write.write_arrow(rows)
            else:
                write_rows(self._write, self._upserts.numbered(rows))
        except RuntimeError as error:
            self._raise_known(error)
            raise
        except OverflowError as error:
            raise out_of_range(", ".join(self._table.partition_keys), error) from error

    def _raise_known(self, error: Exception) -> None:
        """Raise what a known error of the library is: LakeUnavailable, or SchemaMismatch for a long value."""
        if is_too_long(error):
            columns = ", ".join(self._table.partition_keys)
            raise SchemaMismatch(
                f"a row has a value of {columns} that is too long: Paimon makes it the name of a folder, and "
                f"the file system of {self.location} has a limit for names, mostly 255 bytes. Shorten the "
                "values of the partition columns, or partition the table by another column"
            ) from error
        cause = error.__cause__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError):
            raise unwritable(self.location, cause) from error
        if isinstance(cause, LakeUnavailable):
            raise LakeUnavailable(f"cannot write data files to {self.location}: {error}") from error

    def _describe(self, message: CommitMessage, file: DataFileMeta) -> FileInfo:
        partition = GenericRow(list(message.partition), self._table.partition_keys_fields)
        there = partition_folder(self._table, partition, message.bucket)
        path = f"{there.folder}/{file.file_name}"
        refuse_long_path(self.location, path)
        refuse_long_values(there.values)
        if self._name(str(file.file_path)) != path:
            raise TableRefused(f"{file.file_path} is not at {path} of {self.location}, where readers look")
        entry = ManifestEntry(0, partition, message.bucket, self._layout.total, file)
        lowest, highest = self._files.event_times(file)
        return FileInfo(
            path=path,
            size=file.file_size,
            rows=file.row_count,
            partition=there.values,
            min_event_time=lowest,
            max_event_time=highest,
            metadata=require_short(encode_entry(entry), self.location, _FEWER),
        )

    def _new_files(self, message: CommitMessage) -> Sequence[DataFileMeta]:
        """Return the message's new files. Raises TableRefused if it contains any other change."""
        if not _only_new_files(message) or message.bucket not in self._layout.numbers:
            raise TableRefused("the Paimon writer made more than new files; such a table is not supported")
        files: Sequence[DataFileMeta] = message.new_files
        for file in files:
            self._files.correct(file)
        return files

    def _name(self, path: str) -> str:
        """Return the name in the table of a file that the library has written."""
        root = self._storage.root
        return os.path.relpath(path, root) if os.path.isabs(root) else path.removeprefix(f"{root}/")


def _adapt(write: Any, layout: Layout, lengths: Mapping[str, int], *, is_partitioned: bool) -> None:
    """Replace parts of the library's writer, for speed and for its bounds. The files stay the same."""
    if layout.fixed:
        # Without this, the library would scan the table for the last sequence numbers, which `_number` sets
        # instead.
        write.file_store_write._seq_number_stats = lambda partition: {}
        write.row_key_extractor = hash_once(write.row_key_extractor)
    elif not is_partitioned:
        write.row_key_extractor = one_group(write.row_key_extractor)
    take_bounds(write.file_store_write, lengths)


def _upserts(
    location: str,
    table: SchemaTable,
    columns: pa.Schema,
    options: Mapping[str, str],
    given: Upserts | None,
    *,
    sorts: bool,
) -> UpsertRows | None:
    """Return the rows of an attempt at a table with keys, None for other tables. Raises TableRefused."""
    if table.is_primary_key_table:
        if sorts:
            raise TableRefused(
                f"the option file.sort cannot be used: the files of {location} are sorted by its primary "
                "key. Leave it out"
            )
        return UpsertRows(location, columns, options, given)
    if given is not None and given.kind_column is not None:
        raise TableRefused(
            f"the option {KIND_OPTION} is for tables with a primary key, and {location} has none. Leave it "
            "out"
        )
    return None


def _refuse_avro(location: str, columns: pa.Schema, options: Mapping[str, str]) -> None:
    """Raise TableRefused for columns whose type the library cannot write to Avro files."""
    if options.get("file.format", "parquet").lower() != "avro":
        return
    for column in columns:
        try:
            PyarrowFieldParser.to_avro_schema(pa.schema([column]))
        except ValueError as error:
            raise TableRefused(
                f"the column {column.name} of {location} has the type {column.type}, which this release "
                f"cannot write to Avro files: {error}. Give the stream a table with the option file.format = "
                "parquet"
            ) from error


def _only_new_files(message: CommitMessage) -> bool:
    others = (
        message.deleted_files,
        message.index_adds,
        message.index_deletes,
        message.changelog_files,
        message.compact_before,
        message.compact_after,
        message.compact_changelog_files,
        message.compact_index_adds,
        message.compact_index_deletes,
    )
    return not any(others)


def _number(messages: Sequence[CommitMessage]) -> None:
    """Set the sequence numbers of files in fixed buckets. Paimon orders the files of a bucket by them.

    The last committed number is unknown here. Numbers from the clock are higher than those of earlier files.
    """
    following = time.time_ns()
    for message in messages:
        for file in message.new_files:
            file.min_sequence_number = following
            following += file.row_count
            file.max_sequence_number = following - 1


class _LocalFiles(LocalFileIO):  # type: ignore[misc]
    """Files of one table on a local file system. The library itself would make the table's folder again."""

    def new_output_stream(self, path: str) -> Any:
        self.mkdirs(os.path.dirname(path))
        return open(path, "wb")

    def mkdirs(self, path: str) -> bool:
        make_inside(self.path, os.path.relpath(path, self.path))
        return True


def buckets_of(table: SchemaTable) -> BucketsOf:
    """Return the function of the buckets of rows, by which a writer of the table divides them."""
    extractor = hash_once(FixedBucketRowKeyExtractor(table.table_schema))
    fields = [field for field in table.fields if field.name in extractor.bucket_keys]
    columns: pa.Schema = PyarrowFieldParser.from_paimon_schema(fields).remove_metadata()

    def found(rows: pa.RecordBatch) -> pa.Array:
        named = [name for name in rows.schema.names if name in columns.names]
        # The hash depends on the type.
        fitting = conform(rows.select(named), columns)
        return pa.array(extractor._extract_buckets_batch(fitting), pa.int32())

    return found


def _library_table(table: SchemaTable, files: FileIO) -> FileStoreTable:
    return FileStoreTable(files, Identifier("default", "table"), table.table_path, table.table_schema)
