"""Batch of a query: the work of its tasks and of its driver, for every way that Spark calls the sink.

`write_task` runs in executors. The rest runs on the driver's machine.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, CheckpointFailed, Name
from sluicegate.events.models import ListenerState as ListenerText
from sluicegate.writer_hooks.attempt import write_attempt
from sluicegate.writer_hooks.errors import BadListenerState, NotOurs
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import publish_completion, shared_publisher
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.result import WriterResult
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.location import ReadOnce
from sluicegate.writer_hooks.spark.warm import keep_modules
from sluicegate.writer_hooks.upload.task import delivery_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
CONTINUOUS_PROPERTY: Final = "__is_continuous_processing"

_WATERMARK_KEY: Final = "spark.watermarkDelayMs"  # Spark's metadata of a column that withWatermark named
_STATES: TypeAdapter[dict[str, str]] = TypeAdapter(dict[Name, ListenerText])
_MOST_HELD: Final = 32 * 1024
"""Bytes of a task's events that its driver publishes. With 1,000 tasks, a driver gets at most 32 MiB."""
_HINT_TIMEOUT: Final = 5.0  # seconds; the hint is optional, so a longer wait is not worthwhile

ListenerState = Callable[[int], Mapping[str, str]]
"""Function that returns the state of listeners, by their names, as of a batch."""


def write_task(
    options: SinkOptions, marker: IncarnationMarker, batches: Iterable["pa.RecordBatch"]
) -> WriterResult:
    """Write a task's rows to files. The result has their events, which the driver publishes.

    If the events are large, Kafka has acknowledged them on return, and the result has their ids. If that
    publication fails, the files stay, because their events may be in the log. With asynchronous uploads,
    files and events are durable on this machine on return, and its uploader publishes them.
    """
    attempt = _this_attempt(marker)
    region = options.region
    delivery = delivery_of(region, attempt, options.uploads, _MOST_HELD)
    try:
        target = delivery.target(options.target())
        written, events = write_attempt(region, attempt, target, local_times(batches))
        held = delivery.deliver(events)
    finally:
        delivery.abort()
    if events:
        keep_modules()
    return WriterResult(attempt, written, held)


def local_times(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Mark the rows of a task: their times without a zone are those of the session's zone.

    Spark gives that zone to its own casts, but not to a sink.
    """
    from sluicegate.lakes.arrow import LOCAL_TIMES

    for batch in batches:
        yield batch.replace_schema_metadata(LOCAL_TIMES)


def _this_attempt(marker: IncarnationMarker) -> Attempt:
    # A driver without PySpark learns from `attach` or ForeachBatch what to install.
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY)
    batch = context.getLocalProperty(BATCH_PROPERTY)
    if batch is None or context.getLocalProperty(CONTINUOUS_PROPERTY) == "true":
        raise NotOurs(
            "a continuous trigger is not supported: use a micro-batch trigger (processingTime, availableNow)"
        )
    if query != marker.query:
        raise NotOurs(
            f"a task of the query {query} was given the sink of the query {marker.query}; the "
            "checkpoint location must be the query's own"
        )
    return Attempt(marker.incarnation, int(batch), f"p{context.partitionId():05d}")


def has_watermark(schema: "StructType") -> bool:
    """Return True if a query has a watermark, by the columns of its rows."""
    return any(_WATERMARK_KEY in (field.metadata or {}) for field in schema.fields)


def complete_batch(
    options: SinkOptions,
    marker: IncarnationMarker,
    batch: int,
    outcomes: Sequence[WriterResult],
    *,
    spark_watermark: bool,
    listener_state: ListenerState | None,
    began: str | None = None,
) -> None:
    """Publish the events of the winning attempts, and the batch's completion, which names them.

    `began` is the digest of the source range at the start of the batch, if it is known. Raises NotOurs if the
    range has changed since.
    """
    for outcome in outcomes:
        _require_own(outcome, marker, batch)
    region = options.region
    body = _completion(options, marker, batch, outcomes, spark_watermark, listener_state)
    if began not in (None, body.source_digest):
        raise NotOurs(
            f"the source range of batch {batch} changed in {options.checkpoint_location} while the batch "
            "ran, so another query writes there. Nothing of this batch counts. Leave only one query there, "
            "and start it again"
        )
    completion = region.event(EventType.CHECKPOINT_COMPLETED, marker.incarnation, body, checkpoint=batch)
    publish_completion(region, [completion], [message for outcome in outcomes for message in outcome.held])


def _require_own(outcome: WriterResult, marker: IncarnationMarker, batch: int) -> None:
    if outcome.attempt.checkpoint != batch or outcome.attempt.incarnation != marker.incarnation:
        raise NotOurs(
            f"batch {batch} of the incarnation {marker.incarnation} was given a result of "
            f"{outcome.attempt}; the checkpoint location changed under the running query: restart it"
        )


def require_counted(marker: IncarnationMarker, batch: int) -> None:
    """Raise NotOurs if a batch is before the incarnation."""
    if batch < marker.first:
        raise NotOurs(
            f"batch {batch} is before the first one ({marker.first}) of the incarnation {marker.incarnation}"
        )


def _completion(
    options: SinkOptions,
    marker: IncarnationMarker,
    batch: int,
    outcomes: Sequence[WriterResult],
    spark_watermark: bool,
    listener_state: ListenerState | None,
) -> CheckpointCompleted:
    require_counted(marker, batch)
    # The ranges of this batch and of the one before it come from the same files.
    checkpoint = Checkpoint(options.checkpoint_location, ReadOnce)
    source = checkpoint.batch_source(batch)
    watermark = source.watermark
    # Without a watermark in the query, the highest event time of the rows serves as one.
    if watermark is None and not spark_watermark:
        times = (outcome.written.max_event_time for outcome in outcomes)
        watermark = max((time for time in times if time is not None), default=None)
    return CheckpointCompleted(
        events=tuple(event for outcome in outcomes for event in outcome.written.events),
        predecessor=checkpoint.predecessor(marker, batch),
        source_digest=source.digest,
        watermark=watermark,
        listeners=_state_of_listeners(listener_state, batch),
        source_offsets=source.offsets,
    )


def announce_abort(
    options: SinkOptions,
    marker: IncarnationMarker,
    batch: int,
    reason: str,
    outcomes: Sequence[WriterResult] = (),
) -> None:
    """Publish that the batch will be redone. This is only a hint: it never fails, and deletes nothing.

    The events of `outcomes` precede it, so that `sluicegate orphans` finds their files.
    """
    region = options.region
    held = [message for outcome in outcomes for message in outcome.held]
    body = CheckpointFailed(outcome="redone", reason=reason)
    hint = region.event(EventType.CHECKPOINT_FAILED, marker.incarnation, body, checkpoint=batch)
    try:
        shared_publisher(region.kafka).publish(region.events_topic, [hint], _HINT_TIMEOUT, first=held)
    except Exception as error:
        _log.warning("the abort of batch %d of %s was not announced: %s", batch, region.name, error)


def _state_of_listeners(listener_state: ListenerState | None, batch: int) -> dict[str, str]:
    """Return the state of listeners as of a batch. Raises BadListenerState."""
    if listener_state is None:
        return {}
    found = listener_state(batch)
    try:
        return _STATES.validate_python(dict(found))
    except (ValueError, TypeError) as error:
        raise BadListenerState(
            f"listener_state({batch}) must give texts of at most 4096 characters by names of listeners "
            f"(letters, digits, `_`, `.` and `-`), not {found!r}"
        ) from error
