"""Rows that a writer keeps until they are worth a row group, whatever the size of the batches it is given."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sluicegate.lakes.arrow import conform
from sluicegate.lakes.event_time import event_time_range
from sluicegate.lakes.file_options import DEFAULT_ROW_GROUP, SortColumn
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from sluicegate.lakes.sorting import sorted_rows

BUFFER_ROWS: Final = 1 << 20


class RowBuffer:
    """Rows in the columns of a table."""

    def __init__(
        self,
        location: str,
        columns: pa.Schema,
        event_time: str | None,
        most_bytes: int = DEFAULT_ROW_GROUP,
        order: Sequence[SortColumn] = (),
    ) -> None:
        """Keep rows for the table at `location`; event times come from the column `event_time`.

        `take` returns the rows in the order, once they are `most_bytes` or BUFFER_ROWS.

        Raises TableRefused if the table has no such column, or if its values are no times.
        """
        self._columns = columns
        self._event_time = event_time
        self._most_bytes = most_bytes
        self._order = order
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        if event_time is None:
            return
        if event_time not in columns.names:
            raise TableRefused(f"{location} has no column {event_time} to take event times from")
        try:
            self._check_times(event_time, pa.nulls(0, columns.field(event_time).type))
        except SchemaMismatch as error:
            raise TableRefused(str(error)) from error

    def add(self, batch: pa.RecordBatch) -> bool:
        """Keep rows; return True if there are enough to be written. Raises SchemaMismatch."""
        if self._event_time is not None and self._event_time not in batch.schema.names:
            raise SchemaMismatch(
                f"the rows have no column {self._event_time}, which event times are to be taken from"
            )
        # An empty batch is checked, too, so that a wrong schema fails early.
        fitting = conform(batch, self._columns)
        if self._event_time is not None:
            # Before a file has the rows.
            self._check_times(self._event_time, fitting.column(self._event_time))
        if fitting.num_rows:
            self._batches.append(fitting)
            self._rows += fitting.num_rows
            self._bytes += fitting.nbytes
        return self._rows >= BUFFER_ROWS or self._bytes >= self._most_bytes

    def _check_times(self, name: str, column: pa.Array) -> None:
        """Raise SchemaMismatch for event times that no event can have."""
        try:
            event_time_range(column)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"the column {name}: {error}") from error

    def take(self) -> pa.Table | None:
        """Return all rows, and forget them; None if there are none."""
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches, schema=self._columns).combine_chunks()
        self.clear()
        return sorted_rows(rows, self._order) if self._order else rows

    def clear(self) -> None:
        """Forget all rows."""
        self._batches.clear()
        self._rows = self._bytes = 0
