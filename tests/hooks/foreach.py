"""Queries of a test's job that write with ForeachBatch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from sluicegate.events.models import CheckpointCompleted
from sluicegate.writer_hooks import ForeachBatch
from tests.hooks.conftest import Job

Function = Callable[[Any, int], None]


def start(job: Job, function: Function, rows: Any = None, **trigger: Any) -> StreamingQuery:
    rows = job.rows() if rows is None else rows
    writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", str(job.checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(job: Job, function: Function | None = None, rows: Any = None) -> None:
    """Process what the source has, to the end."""
    start(job, function or ForeachBatch(job.options), rows).awaitTermination()


def completions(job: Job, stream: str | None = None) -> list[CheckpointCompleted]:
    wanted = stream or job.options["stream"]
    return [body for envelope, body in job.log.of(CheckpointCompleted) if envelope.stream == wanted]


@contextmanager
def environment(job: Job, **variables: str) -> Iterator[None]:
    """Start Python workers with more variables than the session's."""
    held = job.spark.sparkContext.environment
    held.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del held[name]
