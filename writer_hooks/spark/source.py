"""Data source `sluicegate` of PySpark, with its writers of streams and of batch jobs.

Spark pickles a writer from process to process: it is made in a worker on the driver's machine, `write` runs
in executors, and `commit` or `abort` in another worker on the driver's machine. So a writer is data.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sluicegate.lakes.sequence import MOST_TASKS
from sluicegate.writer_hooks.errors import BadOption, NotOurs
from sluicegate.writer_hooks.numbering import require_field_order
from sluicegate.writer_hooks.options import NAME, SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.batch import (
    ListenerState,
    UncommittedLimit,
    complete_batch,
    decline_batch,
    has_watermark,
    local_times,
    require_registered,
    write_task,
)
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry, require_attached
from sluicegate.writer_hooks.writer import Writer, WriterResult

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.writer_hooks.job import BegunJob


# --- streams ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskResult(WriterResult, WriterCommitMessage):  # type: ignore[misc]
    """Result of the winning attempt of a task, as Spark hands it over."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of one batch, created in the driver's worker and copied to the executors."""

    def __init__(
        self,
        options: SinkOptions,
        marker: IncarnationMarker,
        registered: Registered | None,
        *,
        spark_watermark: bool,
        listener_state: ListenerState | None = None,
    ) -> None:
        self._options = options
        self._marker = marker
        self._registered = registered
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
        """Publish that the batch is not completed soon. This never fails, and deletes nothing."""
        lost = sum(message is None for message in messages)
        reason = f"Spark aborted the batch; {lost} tasks without result"
        found = [message for message in messages if isinstance(message, TaskResult)]
        decline_batch(self._options, self._registered, batchId, reason, found)


def _result(message: WriterCommitMessage | None, batch: int) -> TaskResult:
    if not isinstance(message, TaskResult):
        raise NotOurs(
            f"batch {batch} came without the results of its tasks ({message!r}); continuous triggers are "
            "not supported: use a micro-batch trigger (availableNow, processingTime)"
        )
    return message


# --- batch jobs: df.write.format("sluicegate").option("job.id", ...) ----------------------------------

_log = logging.getLogger(__name__)

JOB_ID: Final = "job.id"


@dataclass(frozen=True)
class JobMessage(WriterCommitMessage):  # type: ignore[misc]
    """Result of the winning attempt of a task, as JSON; empty if the job is committed already."""

    result: str


class JobWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of one batch job, pickled by Spark between its processes."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Register the job that the options name. Raises BadOption, and the errors of `Job.start`."""
        options = {name.lower(): value for name, value in given.items()}
        job_id = options.pop(JOB_ID, "")
        if not job_id:
            raise BadOption(
                f"the option {JOB_ID} is missing: a name for this write, which is committed once. Set it, "
                "and repeat a write that has failed with the same one. For a stream use writeStream"
            )
        self._job: BegunJob | None = None
        """None: the job is committed already."""
        # A stream, which starts a process for each batch, does not need it.
        from sluicegate.writer_hooks.job import Job

        require_field_order(SinkOptions.parse(options, located=False))
        with Job(options, job_id) as job:
            if job.start():
                self._job = job.begun
            else:
                _log.warning("the job %s is committed already: nothing of this write counts", job_id)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> JobMessage:
        """Write a task's rows to files. Their events travel in the result."""
        if self._job is None:
            return JobMessage("")
        task = TaskContext.get().partitionId()
        with Writer(self._job.checkpoint, f"p{task:05d}", part=(task, MOST_TASKS)) as writer:
            for batch in local_times(iterator):
                writer.write(batch)
            return JobMessage(writer.finish().to_json())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete the job, and wait until it is committed. Raises the errors of `Job.finish`."""
        if self._job is None:
            return
        from sluicegate.writer_hooks.job import Job

        results = [_result_of(message) for message in messages]
        with Job.resumed(self._job) as job:
            job.finish(results)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: without a completion, nothing of the job counts."""


def _result_of(message: WriterCommitMessage | None) -> WriterResult:
    if not isinstance(message, JobMessage):
        raise NotOurs(f"a task of the job gave no result ({message!r}); run the job again, with the same id")
    return WriterResult.from_json(message.result)


@lru_cache(maxsize=64)
def _parsed(given: tuple[tuple[str, str], ...]) -> SinkOptions:
    """Return the options of a query, which are the same for each batch. Raises BadOption."""
    return SinkOptions.parse(dict(given))


class SluicegateSource(DataSource):  # type: ignore[misc]
    """Data source of `df.writeStream.format("sluicegate")`; `attach` registers it and the listener."""

    registry_folder: ClassVar[str | None] = None
    """Set by `attach` in a subclass."""
    listener_state: ClassVar["ListenerState | None"] = None
    """Function of the state of listeners, called when a batch is completed. Set by `attach`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of one batch, after registering the query if this is its first call.

        Spark calls it before every batch in one worker on the driver's machine, and at the end of the batch
        in another one. The first call of a run waits for the coordinator. Each call before a batch waits for
        commits, if the options limit what is not committed. Raises HookError.
        """
        if overwrite:
            raise BadOption("the output mode complete rewrites the table; use append")
        options = _parsed(tuple(sorted(self.options.items())))
        return StreamWriter(
            options,
            *self._require_registered(options),
            spark_watermark=has_watermark(schema),
            listener_state=type(self).listener_state,
        )

    def writer(self, schema: StructType, overwrite: bool) -> "JobWriter":
        """Return the writer of a batch job, after registering it. Raises HookError."""
        if overwrite:
            raise BadOption('the mode overwrite rewrites the table; use mode("append")')

        return JobWriter(self.options)

    def _require_registered(self, options: SinkOptions) -> tuple[IncarnationMarker, Registered | None]:
        """Return the marker of a query that is registered by this run, and its registration."""
        checkpoint, folder = CheckpointLocation(options.checkpoint_location), self.registry_folder
        query = checkpoint.known_query()
        registry = require_attached(None if folder is None else Registry(folder))
        if registry.registered(query) is None:
            # Before the first file of each run: Spark alone decides which task gets a row.
            require_field_order(options)
        # A query may have been one of ForeachBatch before.
        forget = checkpoint.forget_completed
        registered = partial(require_registered, options, self.options, query, registry, checkpoint, forget)
        marker = UncommittedLimit(options, query, registry, registered).await_commits()
        return marker, registry.registered(query)
