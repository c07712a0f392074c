"""One batch of a query, for every way in which Spark calls the sink.

A batch has three parts. On the driver's machine, `require_registered` and `UncommittedLimit` let it begin:
the run is registered, the log has its beginning, and no limit of uncommitted batches is exceeded. In
executors, `write_task` makes the files of each task. On the driver's machine, `complete_batch` publishes
the completion, which names the events of the winning attempts. A batch that fails is only announced by
`decline_batch`: Spark repeats it with the same number and the same source range.
"""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, Name
from sluicegate.events.models import ListenerState as ListenerText
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.lakes.sequence import MOST_TASKS
from sluicegate.writer_hooks.errors import (
    BadListenerState,
    NotOurs,
    PublishFailed,
    RegionReplaced,
    RegistrationUnanswered,
    TooManyUncommitted,
    TopicMissing,
)
from sluicegate.writer_hooks.numbering import require_one_writer
from sluicegate.writer_hooks.options import PATIENCE, SinkOptions
from sluicegate.writer_hooks.publisher import publish, publish_completion, shared_publisher
from sluicegate.writer_hooks.region import Attempt, Registered
from sluicegate.writer_hooks.registration import Stopped, await_commits
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live, register_query
from sluicegate.writer_hooks.spark.location import ReadOnce
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.upload.delivery import delivery_of
from sluicegate.writer_hooks.writer import WriterResult, write_attempt

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
_DECLINE_TIMEOUT: Final = 5.0  # seconds; the hint is optional, so a longer wait is not worthwhile
_RESTART_PATIENCE: Final = 5.0
"""Seconds for an answer to a restart, which continues without one. The listener reads a later answer."""
_WAIT_POLL: Final = 0.5
"""Seconds between two comparisons during a wait for commits."""

ListenerState = Callable[[int], Mapping[str, str]]
"""Function that returns the state of listeners, by their names, as of a batch."""
AskLive = Callable[[SinkOptions, Registered, Stopped], RegistrationAnswered]
"""Function that asks a coordinator, as `check_live`."""


# --- the beginning: registration, and limits ----------------------------------------------------------


def require_registered(
    options: SinkOptions,
    given: Mapping[str, str],
    key: str,
    registry: Registry,
    checkpoint: CheckpointLocation,
    on_registered: Callable[[], None] = lambda: None,
) -> IncarnationMarker:
    """Return the marker of a query that is registered by this run. The first call of a run waits for that.

    On return, the region is not idle as long as the batch runs: the log has its beginning if a heartbeat may
    have said idle before.

    `given` are the options as the user gave them; `key` names the query, or its stream, in the registry;
    `checkpoint` is its location. `on_registered` is called after a registration. Raises HookError.
    """
    # The listener may register, or state idle, at the same time. The later registration of the two would be
    # unknown to the process that made the earlier one.
    with registry.registering(key):
        registered, stopped = registry.registered(key), partial(registry.stopped, key)
        found = registry.incarnation(key) if registered is None else None
        marker = _require_incarnation(checkpoint, registered, found)
        if registered is None or marker is None:
            marker, registered, committed = register_query(options, stopped, patience=_RESTART_PATIENCE)
            on_registered()
            registry.put(key, given, registered, committed)
            # A registration is a beginning, and heartbeats of the one before do not count any more.
            registry.clear_idle(key)
        else:
            if registry.take_doubt(key):
                check_live(options, registered, stopped)
            _publish_beginning(options, registered, key, registry, checkpoint)
    return marker


def _publish_beginning(
    options: SinkOptions, registered: Registered, key: str, registry: Registry, checkpoint: CheckpointLocation
) -> None:
    """Publish that the newest planned batch begins, if a heartbeat may have stated idle. Raises HookError.

    The number is needed, because a heartbeat that is in flight may come after this event in the log. Spark
    calls the sink again at the end of a batch: no heartbeat states idle until then.
    """
    if not registry.may_be_idle(key):
        return
    beginning = options.region.heartbeat(registered, begins=checkpoint.newest_planned())
    publish(options.region, [beginning])
    registry.clear_idle(key)


def _require_incarnation(
    checkpoint: CheckpointLocation, registered: Registered | None, found_at_start: str | None = None
) -> IncarnationMarker | None:
    """Return the marker of a run that is registered, None if it is not.

    `found_at_start` is the incarnation that the location had when the run started, if it is known. Raises
    RegionReplaced if the location has another one than the run: it was reset.
    """
    marker = checkpoint.marker()
    found = marker.incarnation if marker is not None else None
    known = registered.incarnation if registered is not None else found_at_start
    if known is not None and known != found:
        raise RegionReplaced(
            f"the query ran with the incarnation {known}, and its checkpoint location was reset meanwhile, "
            f"to the incarnation {found}: the memory of this driver does not match the location. Nothing of "
            "this batch counts. If another driver was started there, leave this one stopped; else start the "
            "query again, in a new driver"
        )
    return marker if registered is not None else None


@dataclass(frozen=True, slots=True)
class Clock:
    """Time of a wait, in monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class UncommittedLimit:
    """Limits of uncommitted batches of a query, which are compared before each batch."""

    options: SinkOptions
    key: str
    """Name of the query, or of its stream, in the registry."""
    registry: Registry
    require_registered: Callable[[], IncarnationMarker]
    """Function that returns the marker of the query. It raises HookError if the query must end."""
    ask: AskLive = check_live
    clock: Clock = Clock()

    def await_commits(self, batch: int | None = None) -> IncarnationMarker:
        """Return the marker when the batch may begin.

        Without a number, it is the newest planned batch. Spark also calls the data source at the end of a
        batch, which never waits. Raises TooManyUncommitted if the options say so, or if the query is stopped
        during the wait.
        """
        marker = self.require_registered()
        if not self.options.backpressure.is_limited:
            return marker
        checkpoint = CheckpointLocation(self.options.checkpoint_location)
        number = checkpoint.newest_planned() if batch is None else batch
        if number is not None and self.registry.admitted(self.key) != number:
            wait, region = _BatchWait(self, checkpoint, marker, number), self.options.region
            limit, advice = self.options.backpressure, "Start the query again when they follow"
            await_commits(region, limit, wait, advice, self.clock.now)
            self.registry.admit(self.key, number)
        return marker


@dataclass(frozen=True, slots=True)
class _BatchWait:
    """Wait of a query before a batch (see CommitWait). Its workers and its listener share the registry."""

    limited: UncommittedLimit
    checkpoint: CheckpointLocation
    marker: IncarnationMarker
    batch: int

    def excess(self) -> str | None:
        """Return the limit that is exceeded before the batch. All batches before it are completed."""
        limited, limit = self.limited, self.limited.options.backpressure
        committed = limited.registry.committed(limited.key, self.marker.incarnation)
        first = self.marker.first if committed is None else max(self.marker.first, committed + 1)
        now = time.time()
        since = now
        if limit.max_age is not None and first < self.batch:
            # Time in which no query ran does not count: its last batch is repeated first.
            since = max(self.checkpoint.planned_at(first), limited.registry.since(limited.key))
        return limit.excess(dict.fromkeys(range(first, self.batch), since), now)

    def ask(self) -> None:
        """Record the committed position that a coordinator states: a notification may never arrive here.

        The listener of another session may read them, or the topic was made again. Without an answer, nothing
        changes. Raises RegionReplaced.
        """
        limited, registry = self.limited, self.limited.registry
        own = registry.registered(limited.key)
        if own is None:
            return
        limit = min(limited.options.region.registration_timeout, PATIENCE)
        options = replace(limited.options, region=replace(limited.options.region, registration_timeout=limit))
        try:
            answer = limited.ask(options, own, partial(registry.stopped, limited.key))
        except (PublishFailed, RegistrationUnanswered, TopicMissing) as error:
            _log.info("region %s: %s", options.region.name, error)
            return
        if answer.live == own.incarnation and answer.committed is not None:
            registry.commit(limited.key, answer.committed)

    def pause(self, excess: str) -> None:
        region = self.limited.options.region
        if self.limited.registry.stopped(self.limited.key):
            raise TooManyUncommitted(
                f"region {region.name} of stream {region.stream}: {excess}. The query was stopped while "
                f"batch {self.batch} waited for commits; starting again is safe"
            )
        self.limited.clock.sleep(_WAIT_POLL)
        self.limited.require_registered()


# --- the tasks, in executors --------------------------------------------------------------------------


def write_task(
    options: SinkOptions,
    marker: IncarnationMarker,
    batches: Iterable["pa.RecordBatch"],
    table: str | None = None,
    parts: int = MOST_TASKS,
) -> WriterResult:
    """Write a task's rows to files of a table. The result has their events, which the driver publishes.

    If the events are large, Kafka has acknowledged them on return, and the result has their ids. If that
    publication fails, the files stay, because their events may be in the log. With asynchronous uploads,
    files and events are durable on this machine on return, and its uploader publishes them. `parts` is the
    number of tasks, for a table with keys.
    """
    attempt, task = _this_attempt(options, marker, table)
    numbers = marker.numbers(attempt.checkpoint)
    if numbers is not None:
        numbers = numbers.part(task, parts)
    region = options.region
    delivery = delivery_of(options, attempt, _MOST_HELD)
    try:
        target = delivery.target(options.target(attempt.table, numbers))
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


def _this_attempt(options: SinkOptions, marker: IncarnationMarker, table: str | None) -> tuple[Attempt, int]:
    """Return the attempt of this task, and the number of the task."""
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
    task = context.partitionId()
    return options.attempt(marker.incarnation, int(batch), f"p{task:05d}", table), task


_kept = False


def keep_modules() -> None:
    """Exclude all present objects of this worker from garbage collection, once.

    Spark collects garbage after each task. The modules of a table format alone take 0.2 s of that.
    """
    global _kept  # noqa: PLW0603
    if not _kept:
        _kept = True
        gc.collect()
        gc.freeze()


# --- the completion -----------------------------------------------------------------------------------


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
    source_digest: str | None = None,
) -> None:
    """Publish the events of the winning attempts, and the batch's completion, which names them.

    `source_digest` is that of the source range at the start of the batch, if it is known. Raises NotOurs if
    the range has changed since.
    """
    for outcome in outcomes:
        _require_own(outcome, marker, batch)
    require_one_writer(outcomes)
    region = options.region
    body = _completion(options, marker, batch, outcomes, spark_watermark, listener_state)
    if source_digest not in (None, body.source_digest):
        raise NotOurs(
            f"the source range of batch {batch} changed in {options.checkpoint_location} while the batch "
            "ran, so another query writes there. Nothing of this batch counts. Leave only one query there, "
            "and start it again"
        )
    completion = region.event(EventType.CHECKPOINT_COMPLETED, marker.incarnation, body, checkpoint=batch)
    held = [message for outcome in outcomes for message in outcome.held]
    publish_completion(region, [completion], held, options.message_max_bytes)


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
    checkpoint = CheckpointLocation(options.checkpoint_location, ReadOnce)
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


def decline_batch(
    options: SinkOptions,
    registered: Registered | None,
    batch: int,
    reason: str,
    outcomes: Sequence[WriterResult] = (),
) -> None:
    """Publish that the batch is not completed soon, so that no commit waits for it.

    Spark makes it again, or the query fails. This never fails, and deletes nothing. The events of `outcomes`
    precede it, so that `sluicegate orphans` finds their files. `reason` has no secrets.
    """
    region = options.region
    if registered is None:
        return
    held = [message for outcome in outcomes for message in outcome.held]
    event = region.declining(registered, batch, "batch-failed", reason)
    try:
        shared_publisher(region.kafka).publish(region.events_topic, [event], _DECLINE_TIMEOUT, first=held)
    except Exception as error:
        _log.warning("batch %d of %s was not declined: %s", batch, region.name, error)


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
