"""Entry point that prepares a Spark session."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sluicegate.lakes.registry import install_line
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
    """Register `writeStream.format("sluicegate")` with a session, and send heartbeats for its regions.

    - `heartbeat_interval`: seconds between heartbeats of a region.
    - `idle_after`: seconds of batches without rows after which a region counts as idle. A source without new
      data counts as idle immediately.
    - `on_outcome`: called in a thread of the driver, with the outcome of each commit for each region that
      runs here. It never delays a batch, and its exceptions are only logged.
    - `listener_state`: called with the id of each completed batch, in a separate process on the driver's
      machine. It returns texts by the names of listeners, which become part of the checkpoint. Its exceptions
      fail the batch.
    - `options`: options of a sink, `checkpointLocation` among them; `preflight` checks them immediately.

    Repeated calls are allowed, and the first one counts. Raises HookError if PySpark is missing or too old,
    and the errors of `preflight`.
    """
    try:
        from sluicegate.writer_hooks.spark.session import attach_to
    except ImportError as error:
        raise HookError(
            f"attach needs PySpark 4.1 or newer ({error}); install it with: {install_line('spark')}"
        ) from error
    attach_to(spark, (heartbeat_interval, idle_after), on_outcome, listener_state)
    if options is not None:
        preflight(options)
