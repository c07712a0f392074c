"""The one call that prepares a Spark session."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sluicegate.writer_hooks.errors import HookError
from sluicegate.writer_hooks.outcomes import OnOutcome
from sluicegate.writer_hooks.spark.preflight import preflight

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attach(
    spark: "SparkSession",
    *,
    heartbeat_interval: float = 5.0,
    idle_after: float = 10.0,
    on_outcome: OnOutcome | None = None,
    listener_state: Callable[[int], Mapping[str, str]] | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Make `writeStream.format("sluicegate")` known to a session, and let its regions send heartbeats.

    `heartbeat_interval` is the time between heartbeats of a region in seconds, `idle_after` the seconds of
    batches without rows after which a region counts as idle (a source that has nothing new counts at once).
    `on_outcome` is called, in a thread of the driver, with what each commit made of each region that runs
    here; it never holds up a batch, and what it raises is only logged. `listener_state` is called with the id
    of each batch when it is complete, in a process of its own beside the driver; what it gives, texts by the
    names of listeners, is frozen with the checkpoint. What it raises fails the batch.
    `options` are those of a sink, `checkpointLocation` among them: they are checked at once by `preflight`.
    Repeating the call is harmless; the first one counts. Raises HookError when PySpark is missing or too old,
    and what `preflight` raises.
    """
    try:
        from sluicegate.writer_hooks.spark.session import attach_to
    except ImportError as error:
        raise HookError(
            f"attach needs PySpark 4.1 or newer ({error}); install it with: "
            'pip install "sluicegate[paimon,spark]"'
        ) from error
    attach_to(spark, (heartbeat_interval, idle_after), on_outcome, listener_state)
    if options is not None:
        preflight(options)
