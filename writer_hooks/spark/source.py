"""PySpark data source `sluicegate`."""

import logging
from functools import partial
from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sluicegate.writer_hooks.errors import BadCheckpointLocation, BadOption
from sluicegate.writer_hooks.opening import Opening
from sluicegate.writer_hooks.spark.answers import expect, glance
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker, OpenedMarker
from sluicegate.writer_hooks.spark.options import SinkOptions
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.writer import ListenerState, StreamWriter

_log = logging.getLogger(__name__)

NAME: Final = "sluicegate"

_WATERMARK_KEY: Final = "spark.watermarkDelayMs"  # Spark's metadata of a column that withWatermark named

_GRACE: Final = 5.0
"""Seconds that a restarted query waits for a refusal before it writes."""

_announced: dict[str, str] = {}
"""By checkpoint location, the incarnation that this process has opened. Used only without `attach`."""


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
        """Return the writer of one batch, after opening the incarnation if necessary.

        Spark calls it before every batch in one worker on the driver's machine, and at the end of the batch
        in another one. The call waits for the coordinator if the incarnation was not opened before. Raises
        HookError.
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
        """Raise BadOption: a batch write has no batch ids to commit by."""
        raise BadOption(
            'the format "sluicegate" is for writeStream; a batch job can use trigger(availableNow=True)'
        )

    def _ensure_open(self, options: SinkOptions, checkpoint: Checkpoint, marker: LineageMarker) -> None:
        region, lineage = options.region, marker.lineage
        began = self._began_with(options, marker)
        if began not in (None, lineage):
            raise BadCheckpointLocation(
                f"the query ran with the lineage {began}, and its checkpoint location was set back "
                f"meanwhile, for the lineage {lineage}: what this driver has in memory is not what the "
                "location says. Nothing of this batch counts. If another driver was started there, leave "
                "this one stopped; else start the query again, in a new driver"
            )
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
        held = checkpoint.opened(lineage)
        if held is not None:
            _check_stream(options.checkpoint_location, checkpoint, held, region.stream)
            _check_region(options.checkpoint_location, held, region.name)
        if held != wanted:
            asked = Opening(region, lineage, marker.parents, checkpoint.planned())
            asked.wait(partial(self._is_stopped, marker.query))
            checkpoint.write_opened(lineage, wanted)
        elif self._is_announced(options, marker):
            glance(checkpoint, lineage)
            return
        else:
            # The incarnation was accepted before, so an unavailable coordinator must not delay the query for
            # long. A refusal deletes the opened marker. The process that makes the next writer then asks
            # again and waits. The other worker does so too, before it commits this batch.
            forget = partial(checkpoint.forget_opened, lineage)
            opening = Opening(region, lineage, marker.parents, checkpoint.planned(), forget)
            if not opening.glance(_GRACE):
                expect(lineage, opening)
        self._note_announced(options, marker)

    def _is_stopped(self, query: str) -> bool:
        return self.registry_folder is not None and Registry(self.registry_folder).stopped(query)

    def _began_with(self, options: SinkOptions, marker: LineageMarker) -> str | None:
        """Return the incarnation with which this run of the query began; None if it had none yet."""
        if self.registry_folder is not None:
            return Registry(self.registry_folder).lineage(marker.query)
        return _announced.get(options.checkpoint_location)

    def _is_announced(self, options: SinkOptions, marker: LineageMarker) -> bool:
        if self.registry_folder is not None:
            return Registry(self.registry_folder).announced(marker.query) is not None
        return options.checkpoint_location in _announced

    def _note_announced(self, options: SinkOptions, marker: LineageMarker) -> None:
        if self.registry_folder is not None:
            Registry(self.registry_folder).put(marker.query, self.options, marker.lineage)
            return
        _announced[options.checkpoint_location] = marker.lineage
        _log.warning(
            "sluicegate.writer_hooks.attach(spark) was not called: the region %s sends no heartbeats, so it "
            "holds back commits while its source is idle, and is not closed when a bounded source ends",
            options.region.name,
        )


def _check_stream(location: str, checkpoint: Checkpoint, held: OpenedMarker, stream: str) -> None:
    """Refuse a location whose batches belong to another stream: the new stream lacks all earlier batches."""
    if held.stream == stream:
        return
    old, first = held.stream, checkpoint.newest_planned()
    raise BadCheckpointLocation(
        f"the query in {location} wrote to the stream {old} so far, not to {stream}. If the option stream is "
        f"wrong, correct it. To go on in the new stream, let all before batch {first} be committed in {old}, "
        f"and record that: sluicegate.writer_hooks.start_lineage(location, first={first}). "
        f"If batch {first} is committed in {old} too, start the query in that stream once more, so that it "
        "finishes the batch, which would be written twice else. Or use a new checkpoint location, with a "
        "source that begins right after the committed rows"
    )


def _check_region(location: str, held: OpenedMarker, region: str) -> None:
    """Refuse a location whose batches belong to another region, because its rows would be written twice."""
    if held.region == region:
        return
    raise BadCheckpointLocation(
        f"the query in {location} wrote the region {held.region} of the stream {held.stream} so far, not "
        f"{region}. If the option region is wrong, correct it. To cut the stream into other regions, start "
        f"the query in an empty checkpoint location, with a higher assignment, parents.from = {location}, "
        "and a source that begins behind what this one has read"
    )
