"""Query that calls a `foreachBatch` function, as this function can see it from the driver."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from sluicegate.writer_hooks.errors import BadCheckpointLocation, NotOurs
from sluicegate.writer_hooks.spark.batch import BATCH_PROPERTY, QUERY_PROPERTY, has_watermark
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, root_of
from sluicegate.writer_hooks.spark.location import may_be_same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RUN_PROPERTY: Final = "spark.jobGroup.id"
_RUN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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

    def is_stopped(self) -> bool:
        """Return True if the query is being stopped."""
        try:
            return self.execution is not None and not self.execution.isActive()
        except Py4JError:
            return False  # The JVM does not respond, so nothing is known.

    def require_location(self, location: str) -> None:
        """Raise BadCheckpointLocation unless this is the checkpoint location of the query."""
        root = root_of(location)
        found = Checkpoint(location).known_query()
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
    if _RUN.fullmatch(group) is None:
        raise NotOurs(
            f"the job group is {group!r}, so ForeachBatch cannot see in which run of the query it is called. "
            "Set no job group before the call"
        )
    return group


def _execution(session: Any, query: str) -> Any:
    """Return the query in the JVM, None where Spark does not give access to it."""
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
