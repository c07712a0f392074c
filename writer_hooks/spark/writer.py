"""Writer of the sink: `write` runs in executors, `commit` and `abort` in a worker on the driver's machine."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, CheckpointFailed, Name
from sluicegate.events.models import ListenerState as ListenerText
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes import adapter
from sluicegate.writer_hooks.attempt import Target, Written, write_attempt
from sluicegate.writer_hooks.errors import BadListenerState, NotOurs
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Attempt, Event
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_STATES: TypeAdapter[dict[str, str]] = TypeAdapter(dict[Name, ListenerText])
_CONTINUOUS = "__is_continuous_processing"
_HINT_TIMEOUT = 5.0  # seconds; the hint is optional, so a longer wait is not worthwhile


ListenerState = Callable[[int], Mapping[str, str]]
"""Function that returns the state of listeners, by their names, as of a batch."""


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):  # type: ignore[misc]
    """Result of the winning attempt of a task."""

    attempt: Attempt
    written: Written


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of one batch, created in the driver's worker and copied to the executors."""

    def __init__(
        self,
        options: SinkOptions,
        marker: IncarnationMarker,
        *,
        spark_watermark: bool,
        listener_state: ListenerState | None = None,
    ) -> None:
        self._options = options
        self._marker = marker
        self._spark_watermark = spark_watermark
        self._listener_state = listener_state

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskResult:
        """Write a task's rows to files, and publish them. On return, Kafka has acknowledged the events.

        If the publication fails, the files stay, because their events may be in the log.
        """
        attempt = self._this_attempt()
        options = self._options
        target = Target(
            adapter=adapter(options.format),
            table=options.table_ref(),
            event_time_column=options.event_time_column,
            message_max_bytes=options.message_max_bytes,
            evolve=options.evolve,
            files=options.files,
        )
        region = options.region
        written, events = write_attempt(region, attempt, target, iterator)
        if events:
            publisher = shared_publisher(region.kafka)
            hit(Failpoint.HOOK_FILES_WRITTEN_BEFORE)
            publisher.publish(region.events_topic, events, region.publish_timeout)
            hit(Failpoint.HOOK_FILES_WRITTEN_AFTER)
        return TaskResult(attempt, written)

    def _this_attempt(self) -> Attempt:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if batch is None or context.getLocalProperty(_CONTINUOUS) == "true":
            raise NotOurs(
                "a continuous trigger is not supported: use a micro-batch trigger (processingTime, "
                "availableNow)"
            )
        if query != self._marker.query:
            raise NotOurs(
                f"a task of the query {query} was given the sink of the query {self._marker.query}; the "
                "checkpoint location must be the query's own"
            )
        return Attempt(self._marker.incarnation, int(batch), f"p{context.partitionId():05d}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the batch's completion, which names the events of the winning attempts."""
        results = [self._own(message, batchId) for message in messages]
        region = self._options.region
        completion = self._completion(results, batchId)
        publisher = shared_publisher(region.kafka)
        hit(Failpoint.HOOK_COMPLETION_BEFORE)
        publisher.publish(region.events_topic, [completion], region.publish_timeout)
        hit(Failpoint.HOOK_COMPLETION_AFTER)

    def _own(self, message: WriterCommitMessage | None, batch: int) -> TaskResult:
        if not isinstance(message, TaskResult):
            raise NotOurs(
                f"batch {batch} came without the results of its tasks ({message!r}); continuous triggers are "
                "not supported: use a micro-batch trigger (availableNow, processingTime)"
            )
        if message.attempt.checkpoint != batch or message.attempt.incarnation != self._marker.incarnation:
            raise NotOurs(
                f"batch {batch} of the incarnation {self._marker.incarnation} was given a result of "
                f"{message.attempt}; the checkpoint location changed under the running query: restart it"
            )
        return message

    def _completion(self, results: Sequence[TaskResult], batch: int) -> Event:
        marker = self._marker
        if batch < marker.first:
            raise NotOurs(
                f"batch {batch} is before the first one ({marker.first}) of the incarnation "
                f"{marker.incarnation}"
            )
        checkpoint = Checkpoint(self._options.checkpoint_location)
        source = checkpoint.batch_source(batch)
        watermark = source.watermark
        # Without a watermark in the query, the highest event time of the rows serves as one.
        if watermark is None and not self._spark_watermark:
            times = (result.written.max_event_time for result in results)
            watermark = max((time for time in times if time is not None), default=None)
        body = CheckpointCompleted(
            events=tuple(event for result in results for event in result.written.events),
            predecessor=checkpoint.predecessor(marker, batch),
            source_digest=source.digest,
            watermark=watermark,
            listeners=_asked(self._listener_state, batch),
            source_offsets=source.offsets,
        )
        return self._options.region.event(
            EventType.CHECKPOINT_COMPLETED, marker.incarnation, body, checkpoint=batch
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish that the batch will be redone. This is only a hint: it never fails, and deletes nothing."""
        region = self._options.region
        lost = sum(message is None for message in messages)
        body = CheckpointFailed(
            outcome="redone", reason=f"Spark aborted the batch; {lost} tasks without result"
        )
        hint = region.event(EventType.CHECKPOINT_FAILED, self._marker.incarnation, body, checkpoint=batchId)
        try:
            shared_publisher(region.kafka).publish(region.events_topic, [hint], _HINT_TIMEOUT)
        except Exception as error:
            _log.warning("the abort of batch %d of %s was not announced: %s", batchId, region.name, error)


def _asked(listener_state: ListenerState | None, batch: int) -> dict[str, str]:
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
