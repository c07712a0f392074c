"""End of a query: its region is closed, or idle until the query starts again."""

from collections.abc import Mapping

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionClosed, RegionHeartbeat
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BatchUnfinished
from sluicegate.writer_hooks.opening import opening_event
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker
from sluicegate.writer_hooks.spark.options import SinkOptions


def close_region(options: Mapping[str, str]) -> int | None:
    """Publish the end of a region, and return its final checkpoint (None: it never completed one).

    `options` are those of the query's sink, `checkpointLocation` among them. The query must not be running. A
    query that runs again in the same checkpoint location opens its region again. Repeated calls are allowed.
    Raises BatchUnfinished if Spark has planned a batch that it has not completed, BadOption,
    BadCheckpointLocation or PublishFailed.
    """
    parsed = SinkOptions.parse(options)
    checkpoint = Checkpoint(parsed.checkpoint_location)
    marker = checkpoint.known_lineage() or _first_lineage(checkpoint, parsed)
    final, opened = _at_its_end(checkpoint, marker, parsed)
    region = parsed.region
    events = [region.event(EventType.REGION_CLOSED, marker.lineage, RegionClosed(final=final))]
    if not opened:
        # A source without any data: nothing was opened, and a region that is not open cannot be closed.
        events.insert(0, opening_event(region, marker.lineage, marker.parents, checkpoint.planned()))
    shared_publisher(region.kafka).publish(region.events_topic, events, region.publish_timeout)
    return final


def rest_region(options: Mapping[str, str], timeout: float) -> None:
    """Publish that a region is idle until its query starts again, so that no commit waits for it.

    Kafka must acknowledge the event within `timeout` seconds. Raises the errors of `close_region`.
    """
    parsed = SinkOptions.parse(options)
    checkpoint = Checkpoint(parsed.checkpoint_location)
    marker = checkpoint.known_lineage()
    if marker is None and checkpoint.newest_planned() is not None:
        return  # The record was deleted since. Only the next query may say where the numbering begins.
    marker = marker or checkpoint.begin_lineage(0, parsed.named_parents())
    _, opened = _at_its_end(checkpoint, marker, parsed)
    region = parsed.region
    events = [region.event(EventType.REGION_HEARTBEAT, marker.lineage, RegionHeartbeat(idle=True))]
    if not opened and checkpoint.newest_planned() is not None:
        return  # A rewind has begun another incarnation since, and its query has not started yet.
    if not opened:
        events.insert(0, opening_event(region, marker.lineage, marker.parents))
    shared_publisher(region.kafka).publish(region.events_topic, events, timeout)


def _at_its_end(
    checkpoint: Checkpoint, marker: LineageMarker, options: SinkOptions
) -> tuple[int | None, bool]:
    """Return the last checkpoint of an incarnation that has ended, and True if it was ever opened.

    Raises BatchUnfinished if the last planned batch is not completed.
    """
    planned, final = checkpoint.newest_planned(), checkpoint.newest_completed()
    if planned != final:
        raise BatchUnfinished(
            f"the region {options.region.name} is not at its end: its query planned batch {planned} and "
            f"completed {'none' if final is None else final}; start the query again, so that it finishes"
        )
    # The last batch belongs to an earlier incarnation.
    if final is not None and final < marker.first:
        final = None
    return final, checkpoint.opened(marker.lineage) is not None


def _first_lineage(checkpoint: Checkpoint, options: SinkOptions) -> LineageMarker:
    """Return the incarnation of a query without a record of it. Without batches, it begins at batch 0."""
    if checkpoint.newest_planned() is not None:
        return checkpoint.lineage(options.named_parents)
    return checkpoint.begin_lineage(0, options.named_parents())


def start_lineage(checkpoint_location: str, first: int) -> str:
    """Record that this sink begins at batch `first` of a query that wrote to another target before.

    The other target may be another sink, or another stream of this one. A stream that already has batches of
    the query refuses the new incarnation. Returns the name of the incarnation. Raises BadCheckpointLocation
    if the recorded incarnation begins at that batch or later, or was never opened, or if there is no query.
    """
    checkpoint = Checkpoint(checkpoint_location)
    known = checkpoint.known_lineage()
    if known is not None and first > known.first and checkpoint.opened(known.lineage) is not None:
        moved = {"generation": known.generation + 1, "first": first, "parents": ()}
        marker = known.model_copy(update=moved)
        checkpoint.write_lineage(marker)
        return marker.lineage
    if known is not None:
        raise BadCheckpointLocation(
            f"the query in {checkpoint_location} has the lineage {known.lineage} from batch {known.first} on"
        )
    return checkpoint.begin_lineage(first).lineage
