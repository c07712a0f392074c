"""Writers: rows as Arrow data become files, and events that describe them.

`AttemptWriter` is one attempt, for Spark's tasks too. `Writer` is the writer of a plain Python worker.

A worker may run in any process, also on another machine than the driver of its region. It is given an
`OpenCheckpoint`, and it gives back a `WriterResult`. Both are data, and have a JSON form.
"""

import json
import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Union, cast
from uuid import uuid4

from sluicegate.events.codec import Flaw, read_attributes, read_files
from sluicegate.events.encoding import Message
from sluicegate.events.envelope import FILES_WRITTEN, key_of
from sluicegate.events.files import HEADROOM
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes import FileWriter
from sluicegate.lakes.file_options import open_writer
from sluicegate.lakes.port import SchemaMismatch, TableRef
from sluicegate.lakes.sequence import Numbers, UpsertWriter, writes_keys
from sluicegate.writer_hooks.errors import BadOption, HookError, NotOurs
from sluicegate.writer_hooks.options import SinkOptions, Target
from sluicegate.writer_hooks.region import Attempt, Event, Region, files_written, label_of
from sluicegate.writer_hooks.upload.delivery import delivery_of

if TYPE_CHECKING:
    import pyarrow as pa


# --- an attempt: rows become files, and events that describe the files --------------------------------


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
    numbers: tuple[int, int] | None = None
    """Sequence numbers that its rows have, and the end of them; None: the table has no keys."""
    buckets: tuple[int, ...] = ()
    """Buckets that no other writer of the checkpoint may have rows of."""


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
            target, table = self._target, self._target.found_table()
            if target.evolve == "add-columns":
                # Only such a writer needs the module, which loads pyarrow.
                from sluicegate.lakes.new_columns import evolve

                evolve(target.adapter, table, _without_kinds(batch.schema, target))
            self._writer = self._open(target, table)
        self._writer.write(batch)

    def _open(self, target: Target, table: TableRef) -> FileWriter:
        label = label_of(self._region, self._attempt)
        of_table = (target.adapter, table, target.event_time_column, label, target.files)
        if target.wrap is None:
            return open_writer(*of_table, target.upserts)
        # Only asynchronous uploads, and the user's work on files, need the module.
        from sluicegate.lakes.spooled import open_spooled

        return open_spooled(*of_table, target.wrap, target.upserts)

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
        events = files_written(
            *(self._region, self._attempt, body, self._target.message_max_bytes),
            with_facts=self._target.with_facts,
        )
        summary = _summary(tuple(event.envelope.id for event in events), files)
        upserts = self._target.upserts
        if upserts is not None and upserts.numbers is not None:
            buckets = sorted(cast(UpsertWriter, self._writer).buckets)
            summary = replace(summary, numbers=(*upserts.numbers,), buckets=(*buckets,))
        return summary, events

    def abort(self) -> None:
        """Give up. The adapter removes files that no event describes."""
        if self._writer is not None:
            self._writer.abort()


def _without_kinds(columns: "pa.Schema", target: Target) -> "pa.Schema":
    """Return columns without that of the kinds, which no table gets."""
    name = target.upserts.kind_column if target.upserts is not None else None
    at = -1 if name is None else columns.get_field_index(name)
    return columns if at < 0 else columns.remove(at)


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


# --- its result, with which a driver completes a checkpoint -------------------------------------------

_SHOWN: Final = 200
"""Characters of a malformed text that an error shows."""


@dataclass(frozen=True, slots=True)
class WriterResult:
    """Result of a writer. The files count after the driver has completed the checkpoint with it."""

    attempt: Attempt
    written: Written
    held: tuple[Message, ...] = field(default=(), repr=False)
    """The events, for the driver to publish; empty if the writer has published them."""

    def to_json(self) -> str:
        """Return the result as JSON, for the driver."""
        held = [
            {"headers": {name: value.decode() for name, value in headers}, "body": value.decode()}
            for _, value, headers in self.held
        ]
        return json.dumps({"attempt": asdict(self.attempt), "written": asdict(self.written), "held": held})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadOption."""
        found = read_json(text, {"attempt": dict, "written": dict, "held": list})
        try:
            attempt = Attempt(**found["attempt"])
            given = found["written"]
            written = Written(**{name: _tuples(value) for name, value in given.items()})
            ids = written.events if found["held"] else ()
            pairs = zip(ids, found["held"], strict=True)
            held = tuple(_held_message(attempt, event, each) for event, each in pairs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadOption(f"this is no result of a writer ({error}): {text[:_SHOWN]}") from error
        return cls(attempt, written, held)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _held_message(attempt: Attempt, name: str, found: Mapping[str, Any]) -> Message:
    """Return the event of an attempt with this id. Raises ValueError unless it is that."""
    headers = [(name, value.encode()) for name, value in found["headers"].items()]
    body = found["body"].encode()
    event = read_attributes(headers)
    if isinstance(event, Flaw) or event.type is not FILES_WRITTEN:
        raise ValueError("an event is none of files")
    if not isinstance(read_files(event, body), FilesWritten):
        raise ValueError("the body of an event is malformed")  # noqa: TRY004
    place = (event.id, event.incarnation, event.checkpoint, event.writer, event.attempt, event.table)
    own = (attempt.incarnation, attempt.checkpoint, attempt.writer, attempt.id, attempt.table)
    if place != (name, *own):
        raise ValueError("an event is one of another attempt")
    return Message(key_of(event.stream, event.region, event.checkpoint), body, headers)


def read_json(text: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object that has fields of these types. Raises BadOption."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"this is no JSON ({error}): {text[:_SHOWN]}") from error
    given = found if isinstance(found, dict) else {}
    wrong = [name for name, kind in kinds.items() if not isinstance(given.get(name), kind)]
    if wrong:
        raise BadOption(f"this JSON lacks {', '.join(wrong)}, or has another type there: {text[:_SHOWN]}")
    return given


# --- the writer of a plain Python worker --------------------------------------------------------------


class ArrowStream(Protocol):
    """Rows of any library with the Arrow PyCapsule interface, such as pandas, polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


Rows = Union["pa.RecordBatch", "pa.Table", "pa.RecordBatchReader", ArrowStream]


_CHECKPOINT: Final[Mapping[str, Any]] = {
    "options": dict,
    "incarnation": str,
    "number": int,
    "held": bool,
    "process": str,
    "numbers": list | None,
}
"""Fields of an open checkpoint, with their types in JSON."""


class _ThisProcess:
    """A name that no other process has, on any machine."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.name = uuid4().hex


_process: Final = _ThisProcess()


def this_process() -> str:
    """Return the name of this process; a forked one has another."""
    return _process.name


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """A checkpoint that a driver has begun: what a worker needs to write for it."""

    options: Mapping[str, str] = field(repr=False)
    """Options of the driver. They may contain a password, so they are not shown; the JSON form has them."""
    incarnation: str
    number: int
    held: bool = False
    """True: the driver publishes the events of the writers, together with the completion."""
    process: str = ""
    """The driver's process. It publishes the event of a writer there, too, if one message has room for it."""
    numbers: tuple[int, int] | None = None
    """Sequence numbers of its rows, for a table with keys, and the end of them."""

    def split(self, rows: Rows, parts: int) -> "list[pa.Table]":
        """Divide rows for a table with keys: all rows with one key go to one part, in their order.

        Write each as a writer of its own, with `part=(number, parts)`. Raises BadOption for other tables, and
        LakeError.
        """
        import pyarrow as pa

        options = SinkOptions.parse(self.options, located=False)
        adapter = options.target().adapter
        if self.numbers is None or not writes_keys(adapter):
            raise BadOption("only rows of a table with a primary key are divided by its buckets")
        buckets_of = adapter.buckets_of(options.table_ref())
        batches = list(_batches(rows))
        whole = pa.Table.from_batches(batches) if batches else pa.table({})
        owners = [bucket % parts for each in batches for bucket in buckets_of(each).to_pylist()]
        return [whole.filter(pa.array([each == at for each in owners], pa.bool_())) for at in range(parts)]

    def write(
        self, writer: str, rows: Rows, table: str | None = None, part: tuple[int, int] = (0, 1)
    ) -> "WriterResult":
        """Write rows as one writer, and return when the files and their description are safe.

        In another process than the driver's, Kafka has acknowledged their event then. In the driver's, the
        completion publishes it.

        `writer` names a part of the checkpoint: letters, digits, `_`, `.` and `-`. `table` and `part` are as
        in `Writer`, and so are the errors. Each table has results of its own.
        """
        with Writer(self, writer, table, part) as open_writer:
            open_writer.write(rows)
            return open_writer.finish()

    def to_json(self) -> str:
        """Return the checkpoint as JSON, for a worker in another process."""
        return json.dumps({**asdict(self), "options": dict(self.options)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadOption."""
        found = read_json(text, _CHECKPOINT)
        return cls(**{name: _tuples(found[name]) for name in _CHECKPOINT})


class Writer:
    """One attempt of one writer of a checkpoint. A repetition is another `Writer` of the same name.

    Rows go to files as they come. `finish` makes the files durable, and publishes their event, unless the
    driver does that with the completion. Only an attempt whose result the driver completes counts; the files
    of all others are orphans. A context that ends without `finish` gives the attempt up.
    """

    def __init__(
        self, checkpoint: OpenCheckpoint, name: str, table: str | None = None, part: tuple[int, int] = (0, 1)
    ) -> None:
        """Begin an attempt. Raises BadOption for wrong options, or for a name that is none.

        `table`: the name of a further table of the stream, as in the options `tables.*`. Empty, it is the
        stream's own table. Without it, the rows go to the table of the option `table.name`, else to the
        stream's own. One writer may write to several tables, each by a `Writer` of its own.

        `part`: for a table with keys, the number of the writer from 0 on, and how many there are. Without a
        `sequence.field`, all rows of a bucket have to be in one part (`OpenCheckpoint.split`). Raises
        TableRefused for one that there is not.
        """
        options = SinkOptions.parse(checkpoint.options, located=False)
        self._region = options.region
        self._attempt = options.attempt(checkpoint.incarnation, checkpoint.number, name, table)
        most_held = 0.0
        if checkpoint.held:
            most_held = math.inf
        elif checkpoint.process == this_process():
            most_held = options.message_max_bytes - HEADROOM
        self._delivery = delivery_of(options, self._attempt, most_held)
        numbers = Numbers(*checkpoint.numbers).part(*part) if checkpoint.numbers is not None else None
        target = self._delivery.target(options.target(self._attempt.table, numbers))
        self._writer = AttemptWriter(self._region, self._attempt, target)
        self._is_over = False
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

        In the driver's process, the completion publishes the event. With asynchronous uploads, files and
        event are left to the uploader of this machine.

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

    def _abort(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._writer.abort()
        self._delivery.abort()

    def _require_open(self) -> None:
        if self._is_over:
            raise HookError(
                f"the attempt of the writer {self._attempt.writer} is over: it was finished or given up, or "
                "one of its calls has failed. Make another Writer, and write all rows again"
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
    """Return the rows of a data frame. Raises SchemaMismatch for columns that Arrow cannot have."""
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
        raise SchemaMismatch(
            f"rows of the type {type(rows).__name__} cannot be given as Arrow data: {error}. Cast their "
            "columns to the types of the table, or give a pyarrow.Table"
        ) from error


def _objects_of_polars(rows: object) -> list[str]:
    if type(rows).__module__.partition(".")[0] != "polars":
        return []
    schema: Mapping[str, object] = getattr(rows, "schema", {})
    return [name for name, kind in schema.items() if str(kind) == "Object"]
