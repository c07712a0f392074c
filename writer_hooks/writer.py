"""Writer of a plain Python worker: rows as Arrow data become files, and one event that describes them.

A worker may run in any process, also on another machine than the driver of its region. It is given an
`OpenCheckpoint`, and it gives back a `WriterResult`. Both are data, and have a JSON form.
"""

import json
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Union

from sluicegate.lakes.port import SchemaMismatch
from sluicegate.writer_hooks.attempt import AttemptWriter
from sluicegate.writer_hooks.errors import HookError, NotOurs
from sluicegate.writer_hooks.options import SinkOptions, require_name
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.result import WriterResult, read_json
from sluicegate.writer_hooks.upload.task import delivery_of

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowStream(Protocol):
    """Rows of any library with the Arrow PyCapsule interface, such as pandas, polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


Rows = Union["pa.RecordBatch", "pa.Table", "pa.RecordBatchReader", ArrowStream]


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """A checkpoint that a driver has begun: what a worker needs to write for it."""

    options: Mapping[str, str] = field(repr=False)
    """Options of the driver. They may contain a password, so they are not shown; the JSON form has them."""
    incarnation: str
    number: int
    held: bool = False
    """True: the driver publishes the events of the writers, together with the completion."""

    def write(self, writer: str, rows: Rows) -> "WriterResult":
        """Write rows as one writer, and return after Kafka has acknowledged their event.

        `writer` names a part of the checkpoint: letters, digits, `_`, `.` and `-`. Raises the errors of
        `Writer`.
        """
        with Writer(self, writer) as open_writer:
            open_writer.write(rows)
            return open_writer.finish()

    def to_json(self) -> str:
        """Return the checkpoint as JSON, for a worker in another process."""
        return json.dumps({**asdict(self), "options": dict(self.options)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadOption."""
        found = read_json(text, {"options": dict, "incarnation": str, "number": int, "held": bool})
        return cls(found["options"], found["incarnation"], found["number"], found["held"])


class Writer:
    """One attempt of one writer of a checkpoint. A repetition is another `Writer` of the same name.

    Rows go to files as they come. `finish` makes the files durable, and publishes their event. Only an
    attempt whose result the driver completes counts; the files of all others are orphans. A context that ends
    without `finish` gives the attempt up.
    """

    def __init__(self, checkpoint: OpenCheckpoint, name: str) -> None:
        """Begin an attempt. Raises BadOption for wrong options, or for a name that is none."""
        options = SinkOptions.parse(checkpoint.options, located=False)
        self._region = options.region
        self._attempt = Attempt(checkpoint.incarnation, checkpoint.number, require_name("writer", name))
        most_held = math.inf if checkpoint.held else 0
        self._delivery = delivery_of(self._region, self._attempt, options.uploads, most_held)
        self._writer = AttemptWriter(self._region, self._attempt, self._delivery.target(options.target()))
        self._is_over = self._is_forbidden = False
        self._lock = threading.Lock()
        """Held by each call, which may come from several threads."""

    def write(self, rows: Rows) -> None:
        """Add rows. Raises LakeError, such as SchemaMismatch if they do not fit the table.

        An error, also one of the rows' own iterator, gives the attempt up, because a part of the rows may be
        in it.
        """
        with self._lock:
            self._require_open()
            try:
                for batch in _batches(rows):
                    self._require_open()
                    self._writer.write(batch)
            except BaseException:
                self._abort()
                raise

    def finish(self) -> WriterResult:
        """Close the files, publish their event, and wait until Kafka has acknowledged it.

        With asynchronous uploads, files and event are left to the uploader of this machine.

        Raises LakeError, EventTooLarge, PublishFailed or TopicMissing. After each of them, another attempt is
        safe. If the publication fails, the files stay, because their event may be in the log.
        """
        with self._lock:
            self._require_open()
            try:
                written, events = self._writer.finish()
            except BaseException:
                # A second try could list a part of the files.
                self._abort()
                raise
            self._is_over = True
            return WriterResult(self._attempt, written, self._delivery.deliver(events))

    def abort(self) -> None:
        """Give the attempt up. Files that no event describes are removed. Repeated calls are allowed."""
        with self._lock:
            self._abort()

    def forbid(self) -> None:
        """Let no later call add rows or finish, and a call of another thread end at its next rows.

        Unlike `abort`, this does not wait for such a call.
        """
        self._is_forbidden = True

    def _abort(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._writer.abort()
        self._delivery.abort()

    def _require_open(self) -> None:
        if self._is_over or self._is_forbidden:
            raise HookError(
                f"the attempt of the writer {self._attempt.writer} is over: it was finished or given up, or "
                "one of its calls has failed or was cancelled. Make another Writer, and write all rows again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _batches(rows: Rows) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        yield rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from _stream(rows)
    else:
        raise NotOurs(
            f"rows must be Arrow data, not {type(rows).__name__}: give a pyarrow.Table or RecordBatch, or an "
            "object with the Arrow PyCapsule interface, such as a data frame of pandas or polars"
        )


def _stream(rows: "ArrowStream") -> "pa.RecordBatchReader":
    """Return the rows of a data frame.

    Raises SchemaMismatch for columns that Arrow cannot have, or NotOurs.
    """
    import pyarrow as pa

    if objects := _objects_of_polars(rows):
        # polars gives their places in memory in place of the values.
        raise SchemaMismatch(
            f"the columns {objects} of the data frame have the type Object of polars, whose values no other "
            "program can read. Cast them, such as to text or binary"
        )
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except pa.ArrowException as error:
        if columns := _not_arrow(rows):
            raise SchemaMismatch(
                f"the columns {columns} of the data frame cannot be given as Arrow data: {error}. Cast them "
                "to the types of the table"
            ) from error
        raise NotOurs(
            f"rows of the type {type(rows).__name__} are no table with columns: {error}. Give a data frame, "
            "or a pyarrow.Table"
        ) from error


def _objects_of_polars(rows: object) -> list[str]:
    if _library(rows) != "polars":
        return []
    schema: Mapping[str, object] = getattr(rows, "schema", {})
    return [name for name, kind in schema.items() if str(kind) == "Object"]


def _not_arrow(rows: Any) -> list[str]:
    """Return the columns of a data frame that Arrow cannot have, as far as they can be told."""
    import pyarrow as pa

    found = []
    for name in getattr(rows, "columns", ()) if _library(rows) in ("pandas", "polars") else ():
        try:
            pa.RecordBatchReader.from_stream(rows[[name]])
        except pa.ArrowException:
            found.append(str(name))
    return found


def _library(rows: object) -> str:
    return type(rows).__module__.partition(".")[0]
