"""Manifest entries of data files that other programs wrote, made from the footers of the files."""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.table.row.generic_row import GenericRow

from sluicegate.events.models import FileInfo
from sluicegate.lakes.paimon.entries import BUCKET, encode_entry
from sluicegate.lakes.paimon.keys import key_columns
from sluicegate.lakes.paimon.table import UNAWARE, SchemaTable, layout
from sluicegate.lakes.paimon.upserts import numbered_columns, with_keys
from sluicegate.lakes.parquet import FileColumns, extreme_values
from sluicegate.lakes.port import BadFiles
from sluicegate.texts import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_ADDED: Final = 0
_APPENDED: Final = 0


def columns_of(table: SchemaTable) -> FileColumns:
    """Return the columns that files of a schema must have."""
    schema: pa.Schema = PyarrowFieldParser.from_paimon_schema(table.fields).remove_metadata()
    if table.is_primary_key_table:
        empty = pa.RecordBatch.from_pylist([], numbered_columns(schema))
        schema = with_keys(empty, key_columns(table.table_schema)).schema
    return FileColumns(schema, int(table.table_schema.id))


class Describer:
    """Maker of entries for files of one schema. They have no statistics: readers use those of the footers."""

    def __init__(self, table: SchemaTable) -> None:
        self._table = table
        self._schema_id = int(table.table_schema.id)
        self._buckets = layout(table.table_schema)
        self._columns = columns_of(table)

    def describe(self, file: FileInfo, footer: "pq.FileMetaData") -> bytes:
        """Return the entry of a file. Raises BadFiles."""
        if self._buckets.fixed:
            raise BadFiles(
                f"the table has {counted(self._buckets.total, 'fixed bucket')}, and no footer proves the "
                f"bucket of {file.path}. Describe the file by the adapter's metadata, or give the "
                "stream a table with bucket = -1"
            )
        self._columns.check(file.path, footer)
        partition = [self._partition_value(file, footer, name) for name in self._table.partition_keys]
        row = GenericRow(partition, self._table.partition_keys_fields)
        empty = GenericRow([], [])
        described = DataFileMeta.create(
            file_name=file.path.rpartition("/")[2],
            file_size=file.size,
            row_count=footer.num_rows,
            min_key=empty,
            max_key=empty,
            key_stats=SimpleStats.empty_stats(),
            value_stats=SimpleStats.empty_stats(),
            min_sequence_number=0,
            max_sequence_number=0,
            schema_id=self._schema_id,
            level=0,
            extra_files=[],
            delete_row_count=0,
            file_source=_APPENDED,
            value_stats_cols=[],
        )
        return encode_entry(ManifestEntry(_ADDED, row, BUCKET, UNAWARE, described))

    def _partition_value(self, file: FileInfo, footer: "pq.FileMetaData", name: str) -> Any:
        """Return the one value of a partition column in a file. Raises BadFiles."""
        number = self._columns.paths.index(name)
        values = extreme_values(footer, number, self._columns.schema.field(name).type)
        if values is None or (len(values) == 2 and values[0] != values[1]):
            raise BadFiles(
                f"the footer of {file.path} does not prove one value of the partition column {name}. Write "
                "a file for each partition, with this column and its statistics"
            )
        return values[0].as_py()
