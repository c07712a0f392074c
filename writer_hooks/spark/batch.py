"""Batch of a query: the work of its tasks and of its driver, for every way that Spark calls the sink.

`write_task` runs in executors. The rest runs on the driver's machine.
"""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, CheckpointFailed, Name, RegionHeartbeat
from sluicegate.events.models import ListenerState as ListenerText
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks.errors import (
    BadListenerState,
    BadOption,
    NotOurs,
    PublishFailed,
    RegionReplaced,
    RegistrationUnanswered,
    TooManyUncommitted,
    TopicMissing,
)
from sluicegate.writer_hooks.options import BACKPRESSURE_OPTIONS as BACKPRESSURE
from sluicegate.writer_hooks.options import PATIENCE, Repetition, SinkOptions, questions, refuse_uploads
from sluicegate.writer_hooks.publisher import publish_completion, shared_publisher
from sluicegate.writer_hooks.region import Attempt, Registered
from sluicegate.writer_hooks.registration import Stopped
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live, register_query
from sluicegate.writer_hooks.spark.location import ReadOnce
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.upload.delivery import delivery_of
from sluicegate.writer_hooks.writer import WriterResult, write_attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


# Python workers that stay fast: what the first task of a worker loads is kept out of garbage collection.

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


# Registration of a query that runs: before its first file, and again when its incarnation is in doubt.
#
# A batch after a pause takes "idle" back here, too: its beginning is in the log before a task gets a row.

_RESTART_PATIENCE: Final = 5.0
"""Seconds for an answer to a restart, which continues without one. The listener reads a later answer."""

_log = logging.getLogger(__name__)


def require_registered(
    options: SinkOptions,
    given: Mapping[str, str],
    key: str,
    registry: Registry,
    checkpoint: Checkpoint,
    began: Callable[[], None] = lambda: None,
) -> IncarnationMarker:
    """Return the marker of a query that is registered by this run. The first call of a run waits for that.

    On return, the region is not idle as long as the batch runs: the log has its beginning if a heartbeat may
    have said idle before.

    `given` are the options as the user gave them; `key` names the query, or its stream, in the registry;
    `checkpoint` is its location. `began` is called after the registration of a run. Raises HookError.
    """
    # The listener may register, or say idle, at the same time. The later registration of the two would be
    # unknown to the process that made the earlier one.
    with registry.registering(key):
        registered, stopped = registry.registered(key), partial(registry.stopped, key)
        found = registry.incarnation(key) if registered is None else None
        marker = _check_began(checkpoint, registered, found)
        if registered is None or marker is None:
            marker, registered, committed = register_query(options, stopped, patience=_RESTART_PATIENCE)
            began()
            registry.put(key, given, registered, committed)
            # A registration is a beginning, and heartbeats of the one before do not count any more.
            registry.take_idle_back(key)
        else:
            if registry.take_doubt(key):
                check_live(options, registered, stopped)
            _state_beginning(options, registered, key, registry, checkpoint)
    return marker


def _state_beginning(
    options: SinkOptions, registered: Registered, key: str, registry: Registry, checkpoint: Checkpoint
) -> None:
    """Publish that the newest planned batch begins, if a heartbeat may have said idle. Raises HookError.

    The number is needed, because a heartbeat that is in flight may come after this event in the log. Spark
    calls the sink again at the end of a batch: no heartbeat says idle until then.
    """
    if not registry.may_be_idle(key):
        return
    number, region = checkpoint.newest_planned(), options.region
    body = RegionHeartbeat(begins=number, run=registered.run)
    event = region.event(EventType.REGION_HEARTBEAT, registered.incarnation, body)
    shared_publisher(region.kafka).publish(region.events_topic, [event], region.publish_timeout)
    registry.take_idle_back(key)


def require_registered_alone(
    options: SinkOptions,
    key: str,
    known: MutableMapping[str, Registered],
    stopped: Stopped = lambda: False,
    began: Callable[[], None] = lambda: None,
) -> IncarnationMarker:
    """Return the marker as `require_registered` does, without a listener. `known` belongs to this process.

    Raises BadOption for asynchronous uploads and limits of commits, and the errors of `require_registered`.
    """
    refuse_uploads(
        options.uploads,
        "without attach, nobody reports files that are lost with their machine. Call "
        "sluicegate.writer_hooks.attach(spark) before the query starts",
    )
    if options.backpressure.is_limited:
        raise BadOption(
            f"the options {', '.join(BACKPRESSURE)} need sluicegate.writer_hooks.attach(spark), which learns "
            "of commits: call it once, before the query starts, or leave the options out"
        )
    marker = _check_began(Checkpoint(options.checkpoint_location), known.get(key))
    if marker is not None:
        return marker
    marker, known[key], _ = register_query(options, stopped)
    began()
    _log.warning(
        "sluicegate.writer_hooks.attach(spark) was not called: the region %s sends no heartbeats, so it "
        "holds back commits while its source is idle, and is not closed when a bounded source ends",
        options.region.name,
    )
    return marker


def _check_began(
    checkpoint: Checkpoint, registered: Registered | None, began: str | None = None
) -> IncarnationMarker | None:
    """Return the marker of a run that is registered, None if it is not.

    Raises RegionReplaced if the location has another incarnation than the run began with: it was reset.
    """
    marker = checkpoint.marker()
    found = marker.incarnation if marker is not None else None
    known = registered.incarnation if registered is not None else began
    if known is not None and known != found:
        raise RegionReplaced(
            f"the query ran with the incarnation {known}, and its checkpoint location was reset meanwhile, "
            f"to the incarnation {found}: the memory of this driver does not match the location. Nothing of "
            "this batch counts. If another driver was started there, leave this one stopped; else start the "
            "query again, in a new driver"
        )
    return marker if registered is not None else None


# Limits of uncommitted batches of a query, which are compared before each batch.

_ROOM_POLL: Final = 0.5
"""Seconds between two comparisons during a wait."""
_FIRST_WARNING: Final = 10.0
"""Seconds of a wait before its second warning; the next ones follow at doubling intervals."""

AskLive = Callable[[SinkOptions, Registered, Stopped], RegistrationAnswered]
"""Function that asks a coordinator, as `check_live`."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time of a wait, in monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Room:
    """Room of a query for another batch, within the limits of its options."""

    options: SinkOptions
    key: str
    """Name of the query, or of its stream, in the registry."""
    registry: Registry
    require_registered: Callable[[], IncarnationMarker]
    """Function that returns the marker of the query. It raises HookError if the query must end."""
    ask: AskLive = check_live
    clock: Clock = Clock()

    def await_room(self, batch: int | None = None) -> IncarnationMarker:
        """Return the marker when the batch may begin.

        Without a number, it is the newest planned batch. Spark also calls the data source at the end of a
        batch, which never waits. Raises TooManyUncommitted if the options say so, or if the query is stopped
        during the wait.
        """
        marker = self.require_registered()
        if not self.options.backpressure.is_limited:
            return marker
        checkpoint = Checkpoint(self.options.checkpoint_location)
        number = checkpoint.newest_planned() if batch is None else batch
        if number is not None and self.registry.admitted(self.key) != number:
            self._await(checkpoint, marker, number)
            self.registry.admit(self.key, number)
        return marker

    def _await(self, checkpoint: Checkpoint, marker: IncarnationMarker, batch: int) -> None:
        reaction, now = self.options.backpressure.reaction, self.clock.now()
        question, warning = questions(reaction, now), Repetition(now, _FIRST_WARNING)
        while (excess := self._excess(checkpoint, marker, batch)) is not None:
            if question.is_due(self.clock.now()):
                self._ask()
                continue
            place = f"region {self.options.region.name} of stream {self.options.region.stream}: {excess}"
            begins = self.registry.exceed(self.key, excess)
            if reaction == "fail":
                raise TooManyUncommitted(
                    f"{place}. Nothing is lost; `sluicegate status` shows what the commits wait for. Start "
                    "the query again when they follow"
                )
            repeats = reaction == "wait" and warning.is_due(self.clock.now())
            if begins or repeats:
                _log.warning("%s; `sluicegate status` shows what the commits wait for", place)
            if reaction == "warn":
                return
            if self.registry.stopped(self.key):
                raise TooManyUncommitted(
                    f"{place}. The query was stopped while batch {batch} waited for commits; starting again "
                    "is safe"
                )
            self.clock.sleep(_ROOM_POLL)
            self.require_registered()
        self.registry.exceed(self.key, None)

    def _ask(self) -> None:
        """Record the committed position that a coordinator states: a notification may never arrive here.

        The listener of another session may read them, or the topic was made again. Without an answer, nothing
        changes. Raises RegionReplaced.
        """
        own = self.registry.registered(self.key)
        if own is None:
            return
        limit = min(self.options.region.registration_timeout, PATIENCE)
        options = replace(self.options, region=replace(self.options.region, registration_timeout=limit))
        try:
            answer = self.ask(options, own, partial(self.registry.stopped, self.key))
        except (PublishFailed, RegistrationUnanswered, TopicMissing) as error:
            _log.info("region %s: %s", options.region.name, error)
            return
        if answer.live == own.incarnation and answer.committed is not None:
            self.registry.commit(self.key, answer.committed)

    def _excess(self, checkpoint: Checkpoint, marker: IncarnationMarker, batch: int) -> str | None:
        """Return the limit that is exceeded before a batch. All batches before it are completed."""
        limit = self.options.backpressure
        committed = self.registry.committed(self.key, marker.incarnation)
        first = marker.first if committed is None else max(marker.first, committed + 1)
        now = time.time()
        since = now
        if limit.max_age is not None and first < batch:
            # Time in which no query ran does not count: its last batch is repeated first.
            since = max(checkpoint.planned_at(first), self.registry.since(self.key))
        return limit.excess(dict.fromkeys(range(first, batch), since), now)


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
