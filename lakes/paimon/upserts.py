"""Rows of tables with keys on their way to pypaimon's writer: their numbers and kinds, and the fold.

The library gives each row a number after the newest committed one, and states that no file has deletions. A
checkpoint is written before those before it are committed, so its rows would lose to theirs; and deleted rows
would come back. Here the numbers come from the driver, and deletions are counted in each file.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lakes.paimon.keys import AGGREGATION, DEDUPLICATE, KIND_FIELD, engine_of
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from sluicegate.lakes.sequence import KIND_OPTION, Numbers, Upserts

NUMBER: Final = "_SEQUENCE_NUMBER"
KIND: Final = "_VALUE_KIND"
KEY_PREFIX: Final = "_KEY_"
_KINDS: Final = ("+I", "-U", "+U", "-D")
"""By their numbers in files."""
_DELETIONS: Final = (1, 3)


class UpsertRows:
    """Rows of one attempt. Its numbers rise in the order of the rows, over all buckets."""

    def __init__(
        self, location: str, columns: pa.Schema, options: Mapping[str, str], upserts: Upserts | None
    ) -> None:
        """Prepare an attempt. Raises TableRefused for options that contradict the table."""
        given = upserts or Upserts()
        if given.numbers is None:
            raise TableRefused(
                f"{location} has a primary key, so each row needs a sequence number, and the driver has "
                "given none. Write it with a driver of this release: RegionDriver, Job, or a query of Spark"
            )
        of_table, of_job = options.get(KIND_FIELD), given.kind_column
        if of_table is not None and of_job is not None:
            raise TableRefused(
                f"the option {KIND_OPTION} names {of_job}, but {location} has the option {KIND_FIELD} = "
                f"{of_table}, so each row has its kind there. Leave {KIND_OPTION} out"
            )
        if of_job is not None and of_job in columns.names:
            raise TableRefused(
                f"the option {KIND_OPTION} names {of_job}, which is a column of {location}. Rename the "
                f"column of the rows, or set the option {KIND_FIELD} of the table"
            )
        self._kind_column = of_table or of_job
        self._left: Numbers = given.numbers
        self._engine = engine_of(options)
        self._names, self._numbered = columns.names, numbered_columns(columns)
        self.columns = columns if of_job is None else columns.append(pa.field(of_job, pa.string()))
        """Columns that rows have: those of the table, perhaps with that of the kinds."""

    def numbered(self, rows: pa.Table) -> pa.Table:
        """Return rows with their numbers and kinds, and the columns of the table.

        Raises SchemaMismatch for kinds that there are not, and if there are no numbers left.
        """
        own, self._left = self._left.take(rows.num_rows)
        kinds = self._kinds(rows)
        numbers = pa.array(np.arange(own.first, own.end, dtype=np.int64))
        values = [rows.column(name) for name in self._names]
        return pa.table([numbers, kinds, *values], schema=self._numbered)

    def _kinds(self, rows: pa.Table) -> pa.Array:
        """Return the kinds of rows as files have them. Raises SchemaMismatch."""
        if self._kind_column is None:
            return pa.array(np.zeros(rows.num_rows, np.int8))
        kinds = pc.index_in(rows.column(self._kind_column), pa.array(_KINDS)).combine_chunks()
        if kinds.null_count:
            wrong = rows.column(self._kind_column).filter(pc.is_null(kinds))[0].as_py()
            raise SchemaMismatch(
                f"the column {self._kind_column} has {wrong!r}, which is no kind of a row. Each row needs "
                f"one of {', '.join(_KINDS)}"
            )
        if self._engine != DEDUPLICATE and pc.any(pc.is_in(kinds, pa.array(_DELETIONS, pa.int32()))).as_py():
            raise SchemaMismatch(
                f"the column {self._kind_column} has -U or -D, and rows of a table with merge-engine = "
                f"{self._engine} cannot be taken back. Leave these rows out, or use a table with "
                f"merge-engine = {DEDUPLICATE}"
            )
        return kinds.cast(pa.int8())


def numbered_columns(columns: pa.Schema) -> pa.Schema:
    """Return the columns of rows that have numbers and kinds."""
    number, kind = pa.field(NUMBER, pa.int64(), nullable=False), pa.field(KIND, pa.int8(), nullable=False)
    return pa.schema([number, kind, *columns])


def deletions(rows: pa.Table) -> int | None:
    """Return the number of rows of a file that delete their key; None for files of tables without keys."""
    if KIND not in rows.column_names:
        return None
    return int(pc.sum(pc.is_in(rows.column(KIND), pa.array(_DELETIONS, pa.int8()))).as_py() or 0)


def write_rows(write: Any, rows: pa.Table) -> None:
    """Give numbered rows to the library's writer, as its `write_arrow` does."""
    for batch in rows.combine_chunks().to_batches():
        for partition, bucket, places in write.row_key_extractor.extract_partition_bucket_groups(batch):
            own = batch if places is None else batch.take(places)
            write.file_store_write.write(partition, bucket, own)


def take_numbers(store_write: Any, options: Mapping[str, str]) -> None:
    """Make the library's writers take rows that have numbers and kinds, and fold them in columns."""
    make, engine = store_write._create_data_writer, engine_of(options)
    # The library would read the table for the newest committed number.
    store_write._seq_number_stats = lambda partition: {}

    def made(*arguments: Any) -> Any:
        writer = make(*arguments)
        keys = list(writer.trimmed_primary_keys)
        writer._add_system_fields = lambda rows: with_keys(rows, keys)
        if engine != AGGREGATION:
            fold = last_rows if engine == DEDUPLICATE else last_values
            writer._merge_pending_by_pk = lambda rows: fold(rows, len(keys))
        return writer

    store_write._create_data_writer = made


def with_keys(rows: pa.RecordBatch, keys: list[str]) -> pa.RecordBatch:
    """Return rows with the columns of a data file: keys, number, kind, values."""
    fields = [rows.schema.field(name) for name in keys]
    named = [pa.field(f"{KEY_PREFIX}{each.name}", each.type, each.nullable) for each in fields]
    arrays = [rows.column(name) for name in keys]
    return pa.RecordBatch.from_arrays(
        [*arrays, *rows.columns], schema=pa.schema([*named, *map(rows.schema.field, range(rows.num_columns))])
    )


# The fold: rows with one key become one row, since a file has each key once.
#
# `KeyValueDataWriter._merge_pending_by_pk` is the definition; it works row by row.


def last_rows(rows: pa.Table, keys: int) -> pa.Table:
    """Return the last row of each run with one key, in `keys` first columns; rows are sorted by key."""
    if rows.num_rows < 2:
        return rows
    return rows.filter(pa.array(_ends(rows, keys)))


def last_values(rows: pa.Table, keys: int) -> pa.Table:
    """Return for each key its last number, as an insertion, and the last value of each column with one."""
    if rows.num_rows < 2:
        return rows
    ends = np.flatnonzero(_ends(rows, keys))
    columns = [rows.column(at).take(pa.array(ends)) for at in range(keys + 1)]
    columns.append(pa.array(np.zeros(len(ends), np.int8)))
    starts = np.concatenate([[0], ends[:-1] + 1])
    for column in rows.columns[keys + 2 :]:
        # The place of the newest value up to each row; those of earlier keys are before the start of the run.
        places = np.where(np.asarray(column.is_valid()), np.arange(rows.num_rows), -1)
        newest = np.maximum.accumulate(places)[ends]
        columns.append(column.take(pa.array(newest, mask=newest < starts)))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _ends(rows: pa.Table, keys: int) -> npt.NDArray[np.bool_]:
    """Return for each row whether the next one has another key."""
    ends = np.zeros(rows.num_rows, bool)
    ends[-1] = True
    for column in rows.columns[:keys]:
        differs = pc.not_equal(column.slice(0, rows.num_rows - 1), column.slice(1))
        ends[:-1] |= np.asarray(differs)
    return ends
