"""One attempt of one writer: rows become files, and events that describe the files."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes import Adapter, FileWriter
from sluicegate.lakes.port import TableRef
from sluicegate.writer_hooks.region import Attempt, Event, Region, digest_of, files_written

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Target:
    """Table that an attempt writes to."""

    adapter: Adapter
    table: TableRef
    event_time_column: str | None
    message_max_bytes: int


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


def write_attempt(
    region: Region, attempt: Attempt, target: Target, batches: Iterable["pa.RecordBatch"]
) -> tuple[Written, list[Event]]:
    """Write rows to files, and return the events to publish for them.

    If the write fails, the adapter removes its files, because no event describes them. Raises LakeError or
    EventTooLarge.
    """
    writer: FileWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            # Open the writer at the first row: a task without rows writes no file and no event.
            if writer is None:
                writer = target.adapter.open_writer(
                    target.table, target.event_time_column, digest_of(region, attempt)
                )
            writer.write(batch)
        files = tuple(writer.finish()) if writer is not None else ()
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    if writer is None or not files:
        return Written(events=()), []
    body = FilesWritten(
        format=target.adapter.name,
        format_version=target.adapter.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        spec_id=writer.spec_id,
        files=files,
    )
    events = files_written(region, attempt, body, target.message_max_bytes)
    return _summary(tuple(event.envelope.id for event in events), files), events


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
