"""Records of data files that other programs wrote, made from the footers of the files."""

import copy
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.transforms import BucketTransform, VoidTransform

from sluicegate.events.models import FileInfo
from sluicegate.lakes.committer import prepare_describer
from sluicegate.lakes.iceberg.entries import FILE_FORMAT
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.metrics import Metrics
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.writer import Splitter, file_schema, path_of, refuse_types
from sluicegate.lakes.parquet import FileColumns, extreme_values
from sluicegate.lakes.port import BadFiles, SchemaMismatch

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_UNSORTED: Final = 0


class Describers:
    """Makers of records for the schemas and specs of one state of a table."""

    def __init__(self, table: TableView) -> None:
        self.table = table
        self._made: dict[tuple[int, int], Describer] = {}

    def of(self, schema_id: int, spec_id: int) -> "Describer | None":
        """Return the maker for files of a schema and a spec; None if the table lacks one. Raises BadFiles."""
        schema, spec = self.table.schemas.get(schema_id), self.table.specs.get(spec_id)
        if schema is None or spec is None:
            return None
        key = schema_id, spec_id
        if key not in self._made:
            self._made[key] = prepare_describer(lambda: Describer(self.table, schema, spec))
        return self._made[key]


class Describer:
    """Maker of records for files of one schema and one spec."""

    def __init__(self, table: TableView, schema: Schema, spec: PartitionSpec) -> None:
        """Prepare it. Raises TableRefused for columns that cannot be described."""
        view = copy.copy(table)
        view.schema, view.spec = schema, spec
        refuse_types(view)
        self._table = view
        self._layout = Layout(schema, spec, table.version)
        columns = file_schema(view)
        self._columns = FileColumns(columns, schema.schema_id)
        self._metrics = Metrics(view)
        self._splitter = Splitter(schema, self._layout)
        ids = parquet_path_to_id_mapping(sanitize_column_names(schema))
        self._numbers = {ids[path]: number for number, path in enumerate(self._columns.paths)}
        """Numbers of the columns in a file, by field id."""
        self._types = schema_to_pyarrow(schema, include_field_ids=False)

    def describe(self, file: FileInfo, footer: "pq.FileMetaData") -> bytes:
        """Return the record of a file. Raises BadFiles."""
        prefix = self._table.data_prefix
        if not file.path.startswith(prefix):
            raise BadFiles(
                f"the path {file.path} does not start with {prefix}, as data files of the table do"
            )
        self._columns.check(file.path, footer)
        try:
            metrics = self._metrics.of_footer(footer)
            partition = self._partition(file, footer)
        except SchemaMismatch as error:
            raise BadFiles(f"the file {file.path}: {error}") from error
        record = {
            "content": 0,
            "file_path": f"{self._table.data_location}/{file.path}",
            "file_format": FILE_FORMAT,
            "partition": partition,
            "record_count": footer.num_rows,
            "file_size_in_bytes": file.size,
            **metrics,
            "key_metadata": None,
            "equality_ids": None,
            "sort_order_id": _UNSORTED,
        }
        return self._layout.encode(record)

    def _partition(self, file: FileInfo, footer: "pq.FileMetaData") -> Partition:
        """Return the partition that the footer proves for all rows. Raises BadFiles.

        Transforms keep the order of values, except `bucket`. So one partition of the lowest and the highest
        value is that of all others.
        """
        columns: dict[str, pa.Array] = {}
        for field in self._table.spec.fields:
            name, *inner = path_of(self._table.schema, field.source_id)
            kind = self._types.field(name).type
            if isinstance(field.transform, VoidTransform):
                columns.setdefault(name, pa.nulls(2, kind))
                continue
            if inner:
                raise BadFiles(
                    f"the table is partitioned by a part of {name}, which no footer proves. {_WAY_OUT}"
                )
            columns[name] = self._extremes(file, footer, field, kind)
        if not columns:
            return ()
        found = [partition for partition, _ in self._splitter.split(pa.table(columns))]
        if len(found) > 1:
            raise BadFiles(
                f"the file {file.path} may have rows of several partitions, by the bounds in its footer. "
                "Write a file for each partition"
            )
        return found[0]

    def _extremes(
        self, file: FileInfo, footer: "pq.FileMetaData", field: PartitionField, kind: pa.DataType
    ) -> pa.Array:
        """Return the lowest and the highest value of the source of a partition field. Raises BadFiles."""
        values = extreme_values(footer, self._numbers[field.source_id], kind)
        if values is None:
            raise BadFiles(
                f"the footer of {file.path} does not prove one partition value {field.name}: its column has "
                f"no bounds, or values and nulls. Write statistics, and a file for each partition. {_WAY_OUT}"
            )
        if len(values) == 1:
            return pa.nulls(2, kind)
        if isinstance(field.transform, BucketTransform) and values[0] != values[1]:
            raise BadFiles(
                f"the table is partitioned by {field.transform}, and the footer of {file.path} has several "
                f"values, which do not prove one bucket. {_WAY_OUT}"
            )
        return values


_WAY_OUT: Final = "Else partition the table by another field, or describe the file by the adapter's metadata"
