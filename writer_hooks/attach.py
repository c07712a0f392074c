"""The one call that prepares a Spark session."""

from typing import TYPE_CHECKING

from sluicegate.writer_hooks.errors import HookError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attach(spark: "SparkSession", *, heartbeat_interval: float = 5.0, idle_after: float = 10.0) -> None:
    """Make `writeStream.format("sluicegate")` known to a session, and let its regions send heartbeats.

    `heartbeat_interval` is the time between heartbeats of a region in seconds, `idle_after` the seconds of
    batches without rows after which a region counts as idle (a source that has nothing new counts at once).
    Repeating the call is harmless. Raises HookError when PySpark is missing or too old.
    """
    try:
        from sluicegate.writer_hooks.spark.session import attach_to
    except ImportError as error:
        raise HookError(
            f'attach needs PySpark 4.1 or newer ({error}); install it with: pip install "sluicegate[spark]"'
        ) from error
    attach_to(spark, heartbeat_interval, idle_after)
