"""The writer half of the format that lives in memory."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sluicegate.events.models import FileInfo
from sluicegate.lakes.port import SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.memory_table import MemoryTable


class MemoryWriter:
    """The writer half: one file per attempt, its rows in the table's `data`."""

    def __init__(self, table: "MemoryTable", event_time_column: str | None, digest: str | None) -> None:
        self.location = table.location
        self.schema_id, self.spec_id, self.table_identity = table.schema_id, 0, table.identity
        self.schema_digest = ""
        self._schema = table.schema
        self._table = table
        self._event_time = event_time_column
        number = f"{table.next_writer():05d}"
        self._path = f"part-{number}" if digest is None else f"part-{digest}-{number}"
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: "pa.RecordBatch") -> None:
        if self._schema is None:
            self._check_names(batch.schema.names)
        if self._event_time is not None and self._event_time not in batch.schema.names:
            raise SchemaMismatch(f"the rows have no event time column {self._event_time}")
        self._batches.append(batch if self._schema is None else _conform(batch, self._schema))

    def _check_names(self, names: Sequence[str]) -> None:
        known = self._table.columns
        if known is not None and tuple(names) != known:
            unknown = sorted(set(names) ^ set(known))
            raise SchemaMismatch(f"the columns {', '.join(unknown)} are only in the rows or in the table")

    def finish(self) -> Iterator[FileInfo]:
        rows = sum(batch.num_rows for batch in self._batches)
        if rows == 0:
            return
        self._table.data[self._path] = self._batches
        lowest, highest = self._event_times()
        yield FileInfo(
            path=self._path,
            size=sum(batch.nbytes for batch in self._batches),
            rows=rows,
            min_event_time=lowest,
            max_event_time=highest,
        )

    def abort(self) -> None:
        self._batches = []

    def _event_times(self) -> tuple[int | None, int | None]:
        if self._event_time is None:
            return None, None
        from sluicegate.lakes.event_time import event_time_range

        ranges = [event_time_range(batch.column(self._event_time)) for batch in self._batches]
        lowest = [low for low, _ in ranges if low is not None]
        highest = [high for _, high in ranges if high is not None]
        return min(lowest, default=None), max(highest, default=None)


def _conform(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    from sluicegate.lakes.arrow import conform

    return conform(batch, schema)


def refuse_types(columns: Sequence["pa.Field"]) -> None:
    """Refuse columns of durations, as most formats do. Raises SchemaMismatch."""
    from pyarrow import types

    refused = [f"{column.name} ({column.type})" for column in columns if types.is_duration(column.type)]
    if refused:
        raise SchemaMismatch(
            f"tables in memory have no type for the new columns {', '.join(refused)}; convert them to numbers"
        )
