"""Entry point that prepares a Spark session."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sluicegate.writer_hooks.outcomes import OnOutcome
from sluicegate.writer_hooks.spark.preflight import preflight
from sluicegate.writer_hooks.spark.versions import has_data_source, require_spark

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
    """Prepare a session: send heartbeats for its regions, and register `writeStream.format("sluicegate")`.

    Spark has that format from 4.1 on. `ForeachBatch` works with every supported release.

    - `heartbeat_interval`: seconds between heartbeats of a region.
    - `idle_after`: seconds of batches without rows after which a region counts as idle. A source without new
      data counts as idle immediately.
    - `on_outcome`: called in a thread of the driver, with the outcome of each commit for each region that
      runs here. It never delays a batch, and its exceptions are only logged.
    - `listener_state`: called with the id of each completed batch. ForeachBatch calls it in the driver, the
      data source in a process on the driver's machine. It returns texts by the names of listeners, which
      become part of the checkpoint. Its exceptions fail the batch.
    - `options`: options of a sink, `checkpointLocation` among them; `preflight` checks them immediately.

    Spark knows the format in the calling thread only: a thread that starts queries calls it as well. Repeated
    calls are allowed, and the first one of a session counts.

    Raises HookError if PySpark is missing or too old, and the errors of `preflight`.
    """
    require_spark("attach")
    # These modules import PySpark; the second one also a part of it that older releases lack.
    from sluicegate.writer_hooks.spark.session import attach_to

    source = None
    if has_data_source():
        from sluicegate.writer_hooks.spark.source import SluicegateSource

        source = SluicegateSource
    attach_to(spark, source, (heartbeat_interval, idle_after), on_outcome, listener_state)
    if options is not None:
        preflight(options)
