"""The PySpark data source `sluicegate`."""

import logging
from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sluicegate.writer_hooks.errors import BadOption, OpeningRefused
from sluicegate.writer_hooks.opening import Opening
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker, OpenedMarker
from sluicegate.writer_hooks.spark.options import SinkOptions
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.writer import ListenerState, StreamWriter

_log = logging.getLogger(__name__)

NAME: Final = "sluicegate"

_WATERMARK_KEY: Final = "spark.watermarkDelayMs"  # Spark's mark on a column that withWatermark named

_announced: set[tuple[str, str]] = set()
_unanswered: dict[str, Opening] = {}


class SluicegateSource(DataSource):  # type: ignore[misc]
    """`df.writeStream.format("sluicegate")`; `attach` registers it together with the listener."""

    registry_folder: ClassVar[str | None] = None
    """Set by `attach`, in a subclass of its own; None when the source was registered without it."""
    listener_state: ClassVar["ListenerState | None"] = None
    """Set by `attach`: asked for the state of listeners when a batch is completed."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Called before every batch in one worker beside the driver, and at its end in another one.

        Opens the lineage and waits for the coordinator where it has not been opened. Raises HookError.
        """
        if overwrite:
            raise BadOption("the output mode complete rewrites the table; use append, or a primary-key store")
        options = SinkOptions.parse(self.options)
        checkpoint = Checkpoint(options.checkpoint_location)
        marker = checkpoint.lineage(options.named_parents)
        self._ensure_open(options, checkpoint, marker)
        watermarked = any(_WATERMARK_KEY in (field.metadata or {}) for field in schema.fields)
        return StreamWriter(
            options, marker, spark_watermark=watermarked, listener_state=type(self).listener_state
        )

    def writer(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Batch writes have no batch ids to commit by."""
        raise BadOption(
            'the format "sluicegate" is for writeStream; a batch job can use trigger(availableNow=True)'
        )

    def _ensure_open(self, options: SinkOptions, checkpoint: Checkpoint, marker: LineageMarker) -> None:
        region, lineage = options.region, marker.lineage
        wanted = OpenedMarker(
            stream=region.stream,
            region=region.name,
            assignment=region.assignment,
            bounded=region.bounded,
            sink=region.sink,
            owned=region.owned,
            topic_prefix=region.topic_prefix,
            table=region.table,
        )
        if checkpoint.opened(lineage) != wanted:
            Opening(region, lineage, marker.parents, checkpoint.newest_planned()).wait()
            checkpoint.write_opened(lineage, wanted)
        elif self._is_announced(options, marker):
            _glance(checkpoint, lineage)
            return
        else:
            # It was accepted before, so nobody waits; a refusal ends the query at one of the next batches.
            _unanswered[lineage] = Opening(region, lineage, marker.parents, checkpoint.newest_planned())
        self._note_announced(options, marker)

    def _is_announced(self, options: SinkOptions, marker: LineageMarker) -> bool:
        if self.registry_folder is not None:
            return Registry(self.registry_folder).announced(marker.query)
        return (options.checkpoint_location, marker.lineage) in _announced

    def _note_announced(self, options: SinkOptions, marker: LineageMarker) -> None:
        if self.registry_folder is not None:
            Registry(self.registry_folder).put(marker.query, self.options)
            return
        _announced.add((options.checkpoint_location, marker.lineage))
        _log.warning(
            "sluicegate.writer_hooks.attach(spark) was not called: the region %s sends no heartbeats, so it "
            "holds back commits while its source is idle, and is not closed when a bounded source ends",
            options.region.name,
        )


def _glance(checkpoint: Checkpoint, lineage: str) -> None:
    """Look whether the coordinator has meanwhile refused what it had accepted in an earlier run."""
    opening = _unanswered.get(lineage)
    try:
        if opening is not None and opening.glance():
            del _unanswered[lineage]
    except OpeningRefused:
        del _unanswered[lineage]
        checkpoint.forget_opened(lineage)
        raise
