"""PySpark data source `sluicegate`."""

import logging
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sluicegate.writer_hooks.errors import BadOption, RegionReplaced
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live, register_query
from sluicegate.writer_hooks.spark.options import NAME, SinkOptions
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.writer import ListenerState, StreamWriter

if TYPE_CHECKING:
    from sluicegate.writer_hooks.spark.jobs import JobWriter

_log = logging.getLogger(__name__)

_WATERMARK_KEY: Final = "spark.watermarkDelayMs"  # Spark's metadata of a column that withWatermark named

_registered: Final[dict[str, Registered]] = {}
"""By checkpoint location, the registration of this process. Used only without `attach`."""


class SluicegateSource(DataSource):  # type: ignore[misc]
    """Data source of `df.writeStream.format("sluicegate")`; `attach` registers it and the listener."""

    registry_folder: ClassVar[str | None] = None
    """Set by `attach` in a subclass; None if the source was registered without it."""
    listener_state: ClassVar["ListenerState | None"] = None
    """Function of the state of listeners, called when a batch is completed. Set by `attach`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of one batch, after registering the query if this is its first call.

        Spark calls it before every batch in one worker on the driver's machine, and at the end of the batch
        in another one. The first call of a run waits for the coordinator. Raises HookError.
        """
        if overwrite:
            raise BadOption("the output mode complete rewrites the table; use append, or a primary-key store")
        options = SinkOptions.parse(self.options)
        marker = self._require_registered(options)
        watermarked = any(_WATERMARK_KEY in (field.metadata or {}) for field in schema.fields)
        return StreamWriter(
            options, marker, spark_watermark=watermarked, listener_state=type(self).listener_state
        )

    def writer(self, schema: StructType, overwrite: bool) -> "JobWriter":
        """Return the writer of a batch job, after registering it. Raises HookError."""
        if overwrite:
            raise BadOption('the mode overwrite rewrites the table; use mode("append")')
        # A stream, which starts a process for each batch, does not need it.
        from sluicegate.writer_hooks.spark.jobs import JobWriter

        return JobWriter(self.options)

    def _require_registered(self, options: SinkOptions) -> IncarnationMarker:
        """Return the marker of a query that is registered by this run."""
        location = options.checkpoint_location
        if self.registry_folder is None:
            marker = _check_began(location, _registered.get(location))
            return marker if marker is not None else self._register_alone(options)
        query, registry = Checkpoint(location).known_query(), Registry(self.registry_folder)
        # The listener may register at the same time. The later registration of the two would be unknown to
        # the process that made the earlier one.
        with registry.registering(query):
            registered, stopped = registry.registered(query), partial(registry.stopped, query)
            marker = _check_began(location, registered, registry.incarnation(query))
            if registered is None or marker is None:
                marker, registered = register_query(options, stopped)
                registry.put(query, self.options, registered)
            elif registry.take_doubt(query):
                check_live(options, registered, stopped)
        return marker

    def _register_alone(self, options: SinkOptions) -> IncarnationMarker:
        """Register without a listener. Each worker of the query registers."""
        marker, registered = register_query(options)
        _registered[options.checkpoint_location] = registered
        _log.warning(
            "sluicegate.writer_hooks.attach(spark) was not called: the region %s sends no heartbeats, so it "
            "holds back commits while its source is idle, and is not closed when a bounded source ends",
            options.region.name,
        )
        return marker


def _check_began(
    location: str, registered: Registered | None, began: str | None = None
) -> IncarnationMarker | None:
    """Return the marker of a run that is registered, None if it is not.

    Raises RegionReplaced if the location has another incarnation than the run began with: it was reset.
    """
    marker = Checkpoint(location).marker()
    found = marker.incarnation if marker is not None else None
    known = registered.incarnation if registered is not None else began
    if known is not None and known != found:
        raise RegionReplaced(
            f"the query ran with the incarnation {known}, and its checkpoint location was reset meanwhile, "
            f"to the incarnation {found}: the memory of this driver does not match the location. Nothing of "
            "this batch counts. If another driver was started there, leave this one stopped; else start the "
            "query again, in a new driver"
        )
    return marker if registered is not None else None
