"""One attempt of one writer: rows become files, and events that describe the files."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes import Adapter, FileWriter
from sluicegate.lakes.capabilities import Evolve
from sluicegate.lakes.file_options import FileOptions, open_writer
from sluicegate.lakes.port import TableRef
from sluicegate.writer_hooks.region import Attempt, Event, Region, digest_of, files_written

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.spooled import Wrap


@dataclass(frozen=True, slots=True)
class Target:
    """Table that an attempt writes to."""

    adapter: Adapter
    table: TableRef
    event_time_column: str | None
    message_max_bytes: int
    evolve: Evolve = "never"
    """`add-columns`: the first rows of an attempt may bring nullable columns that the table lacks."""
    files: FileOptions | None = None
    wrap: "Wrap | None" = None
    """Function that returns the storage of the data files, in place of that of the table."""


@dataclass(frozen=True, slots=True)
class Written:
    """Result of an attempt."""

    events: tuple[str, ...]
    """Event ids for the completion; empty if there were no rows."""
    files: int = 0
    rows: int = 0
    size: int = 0
    """Size of all files in bytes."""
    min_event_time: int | None = None
    """Milliseconds since the Unix epoch."""
    max_event_time: int | None = None


class AttemptWriter:
    """Writer of one attempt. Its columns are those of its first rows.

    An attempt without rows writes no file and no event. Methods may raise LakeError or EventTooLarge.
    """

    def __init__(self, region: Region, attempt: Attempt, target: Target) -> None:
        self._region = region
        self._attempt = attempt
        self._target = target
        self._writer: FileWriter | None = None

    def write(self, batch: "pa.RecordBatch") -> None:
        """Add rows."""
        if batch.num_rows == 0:
            return
        if self._writer is None:
            target = self._target
            if target.evolve == "add-columns":
                # Only such a writer needs the module, which loads pyarrow.
                from sluicegate.lakes.new_columns import evolve

                evolve(target.adapter, target.table, batch.schema)
            self._writer = self._open(target)
        self._writer.write(batch)

    def _open(self, target: Target) -> FileWriter:
        digest = digest_of(self._region, self._attempt)
        of_table = (target.adapter, target.table, target.event_time_column, digest, target.files)
        if target.wrap is None:
            return open_writer(*of_table)
        # Only asynchronous uploads need the module.
        from sluicegate.lakes.spooled import open_spooled

        return open_spooled(*of_table, target.wrap)

    def finish(self) -> tuple[Written, list[Event]]:
        """Close the files, and return the result with the events to publish for them."""
        files = tuple(self._writer.finish()) if self._writer is not None else ()
        if self._writer is None or not files:
            return Written(events=()), []
        body = FilesWritten(
            format=self._target.adapter.name,
            format_version=self._target.adapter.format_version,
            location=self._writer.location,
            schema_id=self._writer.schema_id,
            spec_id=self._writer.spec_id,
            table_identity=self._writer.table_identity,
            schema_digest=self._writer.schema_digest,
            files=files,
        )
        events = files_written(self._region, self._attempt, body, self._target.message_max_bytes)
        return _summary(tuple(event.envelope.id for event in events), files), events

    def abort(self) -> None:
        """Give up. The adapter removes files that no event describes."""
        if self._writer is not None:
            self._writer.abort()


def write_attempt(
    region: Region, attempt: Attempt, target: Target, batches: Iterable["pa.RecordBatch"]
) -> tuple[Written, list[Event]]:
    """Write rows to files, and return the events to publish for them. Raises LakeError or EventTooLarge."""
    writer = AttemptWriter(region, attempt, target)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def _summary(events: tuple[str, ...], files: tuple[FileInfo, ...]) -> Written:
    earliest = [file.min_event_time for file in files if file.min_event_time is not None]
    latest = [file.max_event_time for file in files if file.max_event_time is not None]
    return Written(
        events=events,
        files=len(files),
        rows=sum(file.rows for file in files),
        size=sum(file.size for file in files),
        min_event_time=min(earliest, default=None),
        max_event_time=max(latest, default=None),
    )
