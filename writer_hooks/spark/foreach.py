"""Sink for `writeStream.foreachBatch`, which works with every supported release of Spark.

The function runs in the driver. It registers before the first file, has Spark run the tasks as one action,
and publishes the completion with the results that this action returned.

Spark does not see what a function of foreachBatch does, so the sink checks it: `Calls` refuses a second
call in one batch and a batch without a call, and `RunningBatch` refuses a call outside of a query, in
another checkpoint location, or with a trigger or an output mode that has no batches to commit.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from sluicegate.lakes.sequence import MOST_TASKS, Keys, WritesKeys
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BadOption, HookError, NotOurs
from sluicegate.writer_hooks.numbering import keys_of
from sluicegate.writer_hooks.options import TABLE_NAME, TABLES_PREFIX, SinkOptions
from sluicegate.writer_hooks.spark.batch import (
    BATCH_PROPERTY,
    QUERY_PROPERTY,
    UncommittedLimit,
    complete_batch,
    decline_batch,
    has_watermark,
    local_times,
    require_counted,
    require_registered,
    write_task,
)
from sluicegate.writer_hooks.spark.checkpoint import (
    CheckpointLocation,
    IncarnationMarker,
    location_of_stream,
    root_of,
    stream_of,
)
from sluicegate.writer_hooks.spark.location import is_same, may_be_same
from sluicegate.writer_hooks.spark.preflight import require_arrow, require_spark
from sluicegate.writer_hooks.spark.registry import ATTACHED, require_attached, stream_key
from sluicegate.writer_hooks.writer import WriterResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


# --- calls: each stream is written exactly once in every batch of a run -------------------------------


class CallState(Enum):
    """State of a call for one stream."""

    ACTIVE = auto()
    COMPLETING = auto()
    """The completion may be in the log."""
    COMPLETED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Call:
    """Call for a batch of one stream."""

    run: str
    batch: int
    state: CallState = CallState.ACTIVE


@dataclass(slots=True)
class Calls:
    """The newest call of each stream in this process."""

    _calls: dict[str, Call] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def claim(self, run: str, batch: int, streams: Sequence[str]) -> Iterator[list[Call]]:
        """Allow one call for a batch, and yield its state for each stream, which the caller sets.

        Raises NotOurs before any task if an earlier call of the batch counts, or if the batch before was left
        out.
        """
        with self._lock:
            for stream in streams:
                _require_next(self._calls.get(stream), run, batch)
            calls = {stream: Call(run, batch) for stream in streams}
            self._calls.update(calls)
        try:
            yield list(calls.values())
        finally:
            for call in calls.values():
                if call.state is CallState.ACTIVE:
                    call.state = CallState.FAILED


def _require_next(last: Call | None, run: str, batch: int) -> None:
    if last is None or last.run != run:
        return
    if last.batch == batch and last.state is not CallState.FAILED:
        raise NotOurs(
            f"ForeachBatch was called a second time for batch {batch}. Call it once in each batch, with all "
            "rows of the stream (frame.union). The batch counts with the rows of its first call, also when "
            "the query is started again. So write its other rows once more, for example with a batch job"
        )
    if last.batch < batch and (last.batch, last.state) != (batch - 1, CallState.COMPLETED):
        raise NotOurs(
            f"ForeachBatch was not called for batch {batch - 1}, or its error was caught, so the rows of "
            "that batch are not in the log. Call it in every batch, also for no rows, and let its errors end "
            "the query. To repeat that batch, reset the region: sluicegate region reset"
        )


CALLS = Calls()


# --- the query that calls, as the function can see it from the driver ---------------------------------

_RUN_PROPERTY: Final = "spark.jobGroup.id"
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_APPEND: Final = "Append"
_BATCHED: Final = ("ProcessingTimeTrigger", "AvailableNowTrigger", "OneTimeTrigger")


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """Batch in which a `foreachBatch` function was called."""

    query: str
    run: str
    number: int
    has_watermark: bool
    execution: Any
    """The query in the JVM; None if this release of Spark does not give access to it."""

    def require_location(self, location: str) -> None:
        """Raise BadCheckpointLocation unless this is the checkpoint location of the query."""
        root = root_of(location)
        found = CheckpointLocation(location).known_query()
        used = root if self.execution is None else str(self.execution.resolvedCheckpointRoot())
        if found != self.query or not may_be_same(root, used):
            raise BadCheckpointLocation(
                f"the option checkpointLocation of ForeachBatch is {root}, which belongs to the query "
                f"{found}, but the query {self.query} in {used} calls it. Give both the same location: "
                '.option("checkpointLocation", ...) of writeStream, and the option of ForeachBatch'
            )


def running_batch(frame: "DataFrame", number: int) -> RunningBatch:
    """Return the batch in which this thread runs. Raises NotOurs if no batch of it can be committed."""
    session = frame.sparkSession
    if not hasattr(session, "_jsparkSession"):
        raise NotOurs(
            "ForeachBatch does not work under Spark Connect, which runs its function outside of the query. "
            'Use writeStream.format("sluicegate") there (Spark 4.1 or later), or a classic session'
        )
    context = session.sparkContext
    query, batch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
    if query is None or batch is None or int(batch) != number:
        raise NotOurs(
            f"ForeachBatch was called for batch {number} outside of a streaming query (query {query}, batch "
            f"{batch}). Call it only in the function of writeStream.foreachBatch, in the thread that Spark "
            "calls, with PYSPARK_PIN_THREAD not set to false"
        )
    execution = _execution(session, query)
    if execution is not None:
        _require_append(execution)
    run = _run_of(execution, context.getLocalProperty(_RUN_PROPERTY) or "")
    return RunningBatch(query, run, number, has_watermark(frame.schema), execution)


def _run_of(execution: Any, group: str) -> str:
    """Return the id of the query's run.

    It is the job group of the query's thread as well, unless the user's function has set another one. Raises
    NotOurs if the run is unknown.
    """
    if execution is not None:
        return str(execution.runId().toString())
    if _RUN_ID.fullmatch(group) is None:
        raise NotOurs(
            f"the job group is {group!r}, so ForeachBatch cannot see in which run of the query it is called. "
            "Set no job group before the call"
        )
    return group


def _execution(session: Any, query: str) -> Any:
    """Return the query in the JVM, None where Spark does not give access to it."""
    from py4j.protocol import Py4JError

    try:
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        return running.get(session._jvm.java.util.UUID.fromString(query))
    except (Py4JError, TypeError):
        return None


def _require_append(execution: Any) -> None:
    """Refuse what rewrites rows of earlier batches, and triggers without batches."""
    mode = str(execution.outputMode().toString())
    if mode != _APPEND:
        raise NotOurs(
            f"the output mode {mode.lower()} rewrites rows of earlier batches; use append, or a primary-key "
            "store"
        )
    trigger = str(execution.trigger().getClass().getSimpleName()).rstrip("$")
    if trigger not in _BATCHED:
        raise NotOurs(
            f"the trigger {trigger} is not supported: use a micro-batch trigger (processingTime, "
            "availableNow)"
        )


Options = Mapping[str, str]
Split = Callable[["DataFrame", int], Mapping[str, "DataFrame"]]
"""Function of a batch and its id that returns rows by the names of their tables, or of their streams."""

_COLUMN: Final = "outcome"
_LOCATION: Final = "checkpointLocation"
_NOT_INSTALLED: Final = "No module named 'sluicegate"


class ForeachBatch:
    """Function for `writeStream.foreachBatch` that writes each batch to the tables of one stream or several.

    It may also be called by a function of the user, once in every batch, with the rows and the batch id.
    """

    def __init__(self, options: Options | Mapping[str, Options], split: Split | None = None) -> None:
        """Make a sink from the options of one stream, `checkpointLocation` of the query among them.

        With `split`, a batch has rows for several tables. `split` returns them by name: those of the options
        `tables.*`, and the empty name for the stream's own table. All of them are one checkpoint, and one
        commit.

        Or `options` has the options of several streams, by names of the user's choice, and `split` returns
        the rows of the streams by these names. Then each stream is committed on its own.

        A name without rows may be left out. The rows of the batch are cached until all of them are written.
        Raises BadOption, and HookError if Spark or a package is missing.
        """
        require_spark("ForeachBatch")
        require_arrow()
        several = split is not None and any(isinstance(each, Mapping) for each in options.values())
        self._streams = _several_streams(options) if several else _one_stream(options, split)
        self._split = split
        ATTACHED.add_function(self)

    def options_at(self, query: str, location: str) -> Mapping[str, Options]:
        """Return the options of each stream by its key, if a query in this checkpoint location calls this.

        A run that has no batch never calls it, and its regions send heartbeats all the same.
        """
        root = root_of(self._streams[0].options.checkpoint_location)
        if not is_same(root, location):
            return {}
        return {each.key(query): each.given for each in self._streams}

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Write a batch, and complete it. Raises HookError, and the errors of Spark."""
        batch = running_batch(frame, batch_id)
        for stream in self._streams:
            batch.require_location(stream.options.checkpoint_location)
        with CALLS.claim(batch.run, batch_id, [each.name_in(batch.query) for each in self._streams]) as calls:
            # No file is written before every stream is registered.
            streams = [stream.begin(batch, call) for stream, call in zip(self._streams, calls, strict=True)]
            self._announce(batch)
            if self._split is None:
                streams[0].write({self._streams[0].options.only: frame})
            else:
                _write_parts(self._split, frame, batch_id, streams)

    def _announce(self, batch: "RunningBatch") -> None:
        if not self._streams[0].is_only:
            keys = [each.key(batch.query) for each in self._streams]
            for add_streams in ATTACHED.on_streams:
                add_streams(batch.query, keys)


@dataclass(frozen=True)
class _Stream:
    """Stream of a query."""

    name: str
    """The user's name of it."""
    given: Options
    options: SinkOptions
    is_only: bool
    """True if the query writes no other one."""

    @property
    def parts(self) -> dict[str, str]:
        """Names by which `split` returns rows of the stream, with the tables that these are for."""
        if not self.is_only:
            return {self.name: self.options.only}
        return {name: name for name in ("", *dict(self.options.tables))}

    def name_in(self, query: str) -> str:
        """Return the name of the stream within this process, however its location is spelled."""
        return f"{query} {self.options.region.stream}"

    def key(self, query: str) -> str:
        """Return the name of the stream in the registry of the session."""
        return query if self.is_only else stream_key(query, self.options.region.stream)

    def begin(self, batch: "RunningBatch", call: Call) -> "_StreamBatch":
        """Register the stream if this is its first batch of the run, and read the source range of the batch.

        Waits for commits if the options limit what is not committed. Raises HookError.
        """
        marker = self._await_commits(batch)
        require_counted(marker, batch.number)
        checkpoint = CheckpointLocation(self.options.checkpoint_location)
        checkpoint.require_follows(marker, batch.number)
        digest = checkpoint.digest(batch.number)
        return _StreamBatch(self, batch, call, marker, digest)

    def _await_commits(self, batch: "RunningBatch") -> IncarnationMarker:
        registry, registered = require_attached(ATTACHED.registry), partial(self.require_registered, batch)
        limit = UncommittedLimit(self.options, self.key(batch.query), registry, registered)
        return limit.await_commits(batch.number)

    def require_registered(self, batch: "RunningBatch") -> IncarnationMarker:
        """Return the marker of the stream, which is registered by this run. Raises HookError."""
        registry = require_attached(ATTACHED.registry)
        checkpoint = CheckpointLocation(self.options.checkpoint_location)
        return require_registered(self.options, self.given, self.key(batch.query), registry, checkpoint)


@dataclass(frozen=True)
class _StreamBatch:
    """Stream that may write a batch."""

    stream: _Stream
    batch: "RunningBatch"
    call: Call
    marker: IncarnationMarker
    digest: str
    """Digest of the source range that the batch had at its start."""

    def write(self, rows: Mapping[str, "DataFrame"]) -> None:
        """Write rows by the names of their tables, and complete the batch.

        Raises HookError, and the errors of Spark.
        """
        number, options = self.batch.number, self.stream.options
        try:
            outcomes = [each for table, own in rows.items() for each in self._run_tasks(own, table)]
        except BaseException as error:
            reason = f"the tasks of the batch failed: {type(error).__name__}"
            registry = require_attached(ATTACHED.registry)
            registered = registry.registered(self.stream.key(self.batch.query))
            decline_batch(options, registered, number, reason)
            raise
        # The location may have been reset meanwhile, or the incarnation be in doubt.
        self.stream.require_registered(self.batch)
        self.call.state = CallState.COMPLETING
        complete_batch(
            options,
            self.marker,
            number,
            outcomes,
            spark_watermark=self.batch.has_watermark,
            listener_state=ATTACHED.listener_state,
            source_digest=self.digest,
        )
        CheckpointLocation(options.checkpoint_location).note_completed(self.marker, number)
        self.call.state = CallState.COMPLETED

    def _run_tasks(self, rows: "DataFrame", table: str) -> list[WriterResult]:
        """Write rows of a table in one action.

        Only the results that it returns count: those of the winning attempts.
        """
        options, parts = self.stream.options, MOST_TASKS
        keys = keys_of(options) if self.marker.floor is not None else None
        if keys is not None and not keys.is_ordered:
            rows, parts = _by_bucket(options, rows, keys)
        task = partial(_write_partition, options, self.marker, table, parts)
        try:
            found = rows.mapInArrow(task, f"{_COLUMN} string").collect()
        except Exception as error:
            if _NOT_INSTALLED in str(error):
                raise HookError(
                    "the Python of Spark's executors cannot import sluicegate, which runs in every task. "
                    "Install it there as on the driver, or set PYSPARK_PYTHON to a Python that has it, "
                    "before the session is made"
                ) from error
            raise
        return _outcomes([row[_COLUMN] for row in found])


def _write_parts(split: Split, frame: "DataFrame", batch_id: int, streams: Sequence[_StreamBatch]) -> None:
    """Write the rows of all tables and streams. All of them see the same rows of the batch."""
    was_cached = frame.is_cached
    frame = frame.persist()
    try:
        parts = {name: rows for name, rows in split(frame, batch_id).items() if rows is not None}
        known = [name for each in streams for name in each.stream.parts]
        if unknown := sorted(set(parts) - set(known)):
            raise NotOurs(
                f"split returned rows for {', '.join(map(repr, unknown))}, which ForeachBatch has no options "
                f"of; known are {', '.join(map(repr, known))}. Correct the names that split returns"
            )
        if not parts:
            frame.count()  # A stateful query writes its state only if its rows are computed.
        for each in streams:
            each.write({table: parts[name] for name, table in each.stream.parts.items() if name in parts})
    finally:
        if not was_cached:
            frame.unpersist()


# Rows of a table with keys and without a `sequence.field`: their order in the batch decides which is newer.
#
# All rows of a bucket go to one task, in that order. Their places are those of `monotonically_increasing_id`:
# rows of one partition of the batch keep their order, and partitions follow each other. So the rows of a
# partition of Kafka keep theirs, and an `orderBy` before the call orders the whole batch.

_BUCKET: Final = "_sluicegate_bucket"
_PLACE: Final = "_sluicegate_place"


def _by_bucket(options: SinkOptions, rows: "DataFrame", keys: Keys) -> "tuple[DataFrame, int]":
    """Return the rows of a batch with a task for each bucket or several, and the number of tasks."""
    from pyspark.sql import functions
    from pyspark.sql.types import IntegerType, StructType

    with_bucket = StructType([*rows.schema.fields]).add(_PLACE, "long").add(_BUCKET, IntegerType())
    placed = rows.withColumn(_PLACE, functions.monotonically_increasing_id())
    found = placed.mapInArrow(partial(_add_buckets, options), with_bucket)
    tasks = str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    # Some platforms have `auto` there.
    parts = min(keys.buckets, int(tasks)) if tasks.isdigit() else keys.buckets
    if hasattr(found, "repartitionById"):
        moved = found.repartitionById(parts, functions.col(_BUCKET))
    else:
        # By the hash of the number: some tasks get several buckets, others none.
        moved = found.repartition(parts, _BUCKET)
    return moved.sortWithinPartitions(_PLACE).drop(_PLACE, _BUCKET), parts


def _add_buckets(options: SinkOptions, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Yield rows with their buckets in the table."""
    import pyarrow as pa

    buckets_of = cast(WritesKeys, options.target().adapter).buckets_of(options.table_ref())
    for batch in batches:
        (marked,) = local_times([batch])
        columns = [*batch.columns, buckets_of(marked)]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, _BUCKET])


def _write_partition(
    options: SinkOptions,
    marker: IncarnationMarker,
    table: str,
    parts: int,
    batches: Iterator["pa.RecordBatch"],
) -> Iterator["pa.RecordBatch"]:
    """Write the rows of a task, and yield its result as one row."""
    import pyarrow as pa

    outcome = write_task(options, marker, batches, table, parts)
    yield pa.RecordBatch.from_arrays([pa.array([outcome.to_json()], pa.string())], names=[_COLUMN])


def _outcomes(texts: Sequence[str]) -> list[WriterResult]:
    """Return the results of all tasks of a batch. Raises NotOurs unless each partition has exactly one."""
    found = sorted(map(WriterResult.from_json, texts), key=lambda each: each.attempt.writer)
    writers = [each.attempt.writer for each in found]
    if len(set(writers)) != len(writers):
        raise NotOurs(
            f"Spark returned several results of one partition ({', '.join(writers)}), so rows may be "
            "doubled. Nothing of this batch counts. Start the query again"
        )
    return found


def _one_stream(options: Mapping[str, object], split: Split | None) -> list[_Stream]:
    if any(isinstance(value, Mapping) for value in options.values()):
        raise BadOption(
            "ForeachBatch was given options of several streams, but no function that divides the rows: use "
            "ForeachBatch({...}, split=function)"
        )
    given = {name: str(value) for name, value in options.items()}
    parsed = SinkOptions.parse(given)
    if split is not None and (parsed.only or not parsed.tables):
        wrong = f"leave the option {TABLE_NAME} out" if parsed.only else "add an option for each further one"
        raise BadOption(
            f"with split, ForeachBatch writes all tables of the options {TABLES_PREFIX}*: {wrong}. To write "
            "several streams, use ForeachBatch({name: options, ...}, split=function)"
        )
    # A query that wrote several streams keeps the marker of this one.
    location = location_of_stream(parsed.checkpoint_location, parsed.region.stream)
    if stream_of(parsed.checkpoint_location) is None and CheckpointLocation(location).has_own_marker():
        given = _with_location(given, location)
    stated = stream_of(parsed.checkpoint_location)
    if stated not in (None, parsed.region.stream):
        raise BadOption(
            f"the option checkpointLocation names the stream {stated}, and the option stream is "
            f"{parsed.region.stream}; correct one of them"
        )
    return [_Stream(parsed.region.stream, given, SinkOptions.parse(given), is_only=True)]


def _several_streams(options: Mapping[str, object]) -> list[_Stream]:
    """Return the streams of one query. Raises BadOption."""
    found = []
    for name, own in options.items():
        if not isinstance(own, Mapping):
            raise BadOption(
                f"with split, ForeachBatch needs the options of each stream by its name, and {name!r} is "
                f"{own!r}: use ForeachBatch({{name: options, ...}}, split=function)"
            )
        given = {key: str(value) for key, value in own.items()}
        parsed = SinkOptions.parse(given)
        if parsed.backpressure.is_limited:
            raise BadOption(
                f"the stream {parsed.region.stream} has limits of uncommitted checkpoints, and ForeachBatch "
                "has them for one stream. Leave them out with split, or write each stream with its own query"
            )
        location = location_of_stream(parsed.checkpoint_location, parsed.region.stream)
        given = _with_location(given, location)
        found.append(_Stream(name, given, SinkOptions.parse(given), is_only=False))
    streams = [each.options.region.stream for each in found]
    if not streams or len(set(streams)) != len(streams):
        raise BadOption(
            f"with split, ForeachBatch needs streams that differ, and was given {streams}. Give each its own "
            f"option stream. Several tables of one stream are its options {TABLES_PREFIX}*"
        )
    return found


def _with_location(given: Mapping[str, str], location: str) -> dict[str, str]:
    others = {name: value for name, value in given.items() if name.lower() != _LOCATION.lower()}
    return {**others, _LOCATION: location}
