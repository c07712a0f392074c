"""Tables of all formats, and files with options in them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.file_options import FileOptions, open_writer
from sluicegate.lakes.port import FileWriter
from tests.contracts.lakes.harness import Stream
from tests.lakes.values import Lake, table

ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.int64()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("x", pa.float64()),
        ("list", pa.list_(pa.int64())),
    ]
)


def make(
    lake: str, root: Path, properties: Mapping[str, str] | None = None, *, partitioned: bool = False
) -> Lake:
    return table(lake, root, ROWS, properties, ["p"] if partitioned else [])


def opened(made: Lake, event_time: str | None = "t", **options: str) -> FileWriter:
    files = FileOptions.parse({f"file.{name.replace('_', '.')}": value for name, value in options.items()})
    return open_writer(made.adapter, made.adapter.parse_table(made.location), event_time, None, files)


def written(made: Lake, writer: FileWriter, batches: Iterable[pa.RecordBatch]) -> FilesWritten:
    """Write the rows, and commit them."""
    for batch in batches:
        writer.write(batch)
    event = FilesWritten(
        format=made.adapter.name,
        format_version=made.adapter.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        spec_id=writer.spec_id,
        files=tuple(writer.finish()),
    )
    Stream(made).add(1, event)
    return event


def paths(event: FilesWritten) -> list[Path]:
    return [Path(unquote(urlsplit(event.location).path)) / file.path for file in event.files]


def rows(ids: Iterable[int], partitions: int = 1, **columns: list[Any]) -> pa.RecordBatch:
    numbers = list(ids)
    usual: dict[str, Any] = {
        "id": pa.array(numbers, pa.int64()),
        "p": pa.array([number % partitions for number in numbers], pa.int64()),
        "t": pa.array([number * 1_000 for number in numbers], pa.int64()).cast(ROWS.field("t").type),
    }
    given = {name: pa.array(values, ROWS.field(name).type) for name, values in columns.items()}
    return pa.record_batch({**usual, **given})
