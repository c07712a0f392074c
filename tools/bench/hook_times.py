"""The data source with times of its calls, for tools.bench.hook_batches; Spark's workers import it."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sluicegate.writer_hooks.spark import batch
from sluicegate.writer_hooks.spark.source import SluicegateSource
from sluicegate.writer_hooks.writer import write_attempt

if TYPE_CHECKING:
    import pyarrow as pa

VARIABLE: Final = "BENCH_TIMES"
"""Folder into which the processes of Spark write the times of calls."""


class Times:
    """Times of calls in this process."""

    def __init__(self) -> None:
        self.writing = 0.0
        """Seconds in which the newest task has written its files."""

    def note(self, kind: str, seconds: float) -> None:
        """Append the time of a call to the file of this process."""
        line = json.dumps([time.time(), kind, seconds * 1000])
        with Path(os.environ[VARIABLE], str(os.getpid())).open("a") as file:
            file.write(f"{line}\n")

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        """Note the time of a call."""
        begun = time.perf_counter()
        yield
        self.note(kind, time.perf_counter() - begun)

    def written(self, *arguments: Any) -> Any:
        """Call `write_attempt`, and keep its time."""
        begun = time.perf_counter()
        found = write_attempt(*arguments)
        self.writing = time.perf_counter() - begun
        return found


TIMES: Final = Times()
batch.write_attempt = TIMES.written


class TimedWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writer of the hook, with times."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write the files of a task."""
        begun = time.perf_counter()
        found: WriterCommitMessage = self._inner.write(iterator)
        TIMES.note("task", time.perf_counter() - begun - TIMES.writing)
        return found

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Complete the batch."""
        with TIMES.of("commit"):
            self._inner.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Announce that the batch has failed."""
        self._inner.abort(messages, batchId)


class TimedSource(SluicegateSource):
    """The data source of the hook, with times."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a batch."""
        with TIMES.of("streamWriter"):
            made = super().streamWriter(schema, overwrite)
        return TimedWriter(made)
