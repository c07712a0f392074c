"""PySpark data source `sluicegate`."""

from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sluicegate.writer_hooks.clustering import refuse_cluster_by
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.options import NAME, SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.batch import ListenerState, has_watermark
from sluicegate.writer_hooks.spark.begun import require_registered, require_registered_alone
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.room import Room
from sluicegate.writer_hooks.spark.writer import StreamWriter

if TYPE_CHECKING:
    from sluicegate.writer_hooks.spark.jobs import JobWriter

_registered: Final[dict[str, Registered]] = {}
"""By checkpoint location, the registration of this process. Used only without `attach`."""


@lru_cache(maxsize=64)
def _parsed(given: tuple[tuple[str, str], ...]) -> SinkOptions:
    """Return the options of a query, which are the same for each batch. Raises BadOption."""
    options = dict(given)
    found = SinkOptions.parse(options)
    refuse_cluster_by(options)
    return found


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
        in another one. The first call of a run waits for the coordinator. Each call before a batch waits for
        commits, if the options limit what is not committed. Raises HookError.
        """
        if overwrite:
            raise BadOption("the output mode complete rewrites the table; use append")
        options = _parsed(tuple(sorted(self.options.items())))
        return StreamWriter(
            options,
            self._require_registered(options),
            spark_watermark=has_watermark(schema),
            listener_state=type(self).listener_state,
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
        checkpoint = Checkpoint(location)
        # A query may have been one of ForeachBatch before.
        forget = checkpoint.forget_completed
        if self.registry_folder is None:
            # Each worker of the query registers.
            return require_registered_alone(options, location, _registered, began=forget)
        query = checkpoint.known_query()
        registry = Registry(self.registry_folder)
        registered = partial(require_registered, options, self.options, query, registry, checkpoint, forget)
        return Room(options, query, registry, registered).await_room()
