"""Writer of a batch job: `df.write.format("sluicegate").option("job.id", ...)`.

`JobWriter` is made in a worker on the driver's machine, which registers the job. Its `write` runs in
executors, and its `commit` in another worker on the driver's machine.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sluicegate.writer_hooks.errors import BadOption, NotOurs
from sluicegate.writer_hooks.job import BegunJob, Job
from sluicegate.writer_hooks.result import WriterResult
from sluicegate.writer_hooks.spark.batch import local_times
from sluicegate.writer_hooks.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa

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
        with Job(options, job_id) as job:
            if job.start():
                self._job = job.begun
            else:
                _log.warning("the job %s is committed already: nothing of this write counts", job_id)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> JobMessage:
        """Write a task's rows to files. Their events travel in the result."""
        if self._job is None:
            return JobMessage("")
        name = f"p{TaskContext.get().partitionId():05d}"
        with Writer(self._job.checkpoint, name) as writer:
            for batch in local_times(iterator):
                writer.write(batch)
            return JobMessage(writer.finish().to_json())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete the job, and wait until it is committed. Raises the errors of `Job.finish`."""
        if self._job is None:
            return
        results = [_result_of(message) for message in messages]
        with Job.resumed(self._job) as job:
            job.finish(results)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: without a completion, nothing of the job counts."""


def _result_of(message: WriterCommitMessage | None) -> WriterResult:
    if not isinstance(message, JobMessage):
        raise NotOurs(f"a task of the job gave no result ({message!r}); run the job again, with the same id")
    return WriterResult.from_json(message.result)
