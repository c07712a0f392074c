"""Writer of the data source: `write` runs in executors, `commit` and `abort` on the driver's machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sluicegate.writer_hooks.errors import NotOurs
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.result import WriterResult
from sluicegate.writer_hooks.spark.batch import (
    ListenerState,
    announce_abort,
    complete_batch,
    write_task,
)
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskResult(WriterResult, WriterCommitMessage):  # type: ignore[misc]
    """Result of the winning attempt of a task, as Spark hands it over."""


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
        """Write a task's rows to files (see `write_task`)."""
        outcome = write_task(self._options, self._marker, iterator)
        return TaskResult(outcome.attempt, outcome.written, outcome.held)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the events of the winning attempts, and the completion that names them."""
        complete_batch(
            self._options,
            self._marker,
            batchId,
            [_result(message, batchId) for message in messages],
            spark_watermark=self._spark_watermark,
            listener_state=self._listener_state,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish that the batch will be redone. This is only a hint: it never fails, and deletes nothing."""
        lost = sum(message is None for message in messages)
        reason = f"Spark aborted the batch; {lost} tasks without result"
        found = [message for message in messages if isinstance(message, TaskResult)]
        announce_abort(self._options, self._marker, batchId, reason, found)


def _result(message: WriterCommitMessage | None, batch: int) -> TaskResult:
    if not isinstance(message, TaskResult):
        raise NotOurs(
            f"batch {batch} came without the results of its tasks ({message!r}); continuous triggers are "
            "not supported: use a micro-batch trigger (availableNow, processingTime)"
        )
    return message
