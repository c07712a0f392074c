"""The end of a query: its region is closed, or idle until the query is started again."""

from collections.abc import Mapping

from sluicegate.events import EventType, RegionClosed, RegionHeartbeat
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BatchUnfinished
from sluicegate.writer_hooks.opening import opening_event
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker
from sluicegate.writer_hooks.spark.options import SinkOptions


def close_region(options: Mapping[str, str]) -> int | None:
    """Announce the end of a region, and return its final checkpoint (None: it never completed one).

    `options` are those of the query's sink, `checkpointLocation` among them. The query must not be running;
    a query that runs again on the same checkpoint location opens its region again. Repeating is harmless.
    Raises BatchUnfinished if Spark has planned a batch that it has not completed, BadOption,
    BadCheckpointLocation or PublishFailed.
    """
    parsed = SinkOptions.parse(options)
    marker, final, opened = _at_its_end(parsed)
    region = parsed.region
    events = [region.event(EventType.REGION_CLOSED, marker.lineage, RegionClosed(final=final))]
    if not opened:
        # A source without any data: nothing was ever opened, and what is not open cannot be closed.
        planned = Checkpoint(parsed.checkpoint_location).planned()
        events.insert(0, opening_event(region, marker.lineage, marker.parents, planned))
    shared_publisher(region.kafka).publish(region.events_topic, events, region.publish_timeout)
    return final


def rest_region(options: Mapping[str, str], timeout: float) -> None:
    """Say that a region has nothing more to write until its query is started again; no commit waits for it.

    Kafka must acknowledge it within `timeout` seconds. Raises as `close_region` does.
    """
    parsed = SinkOptions.parse(options)
    marker, _, opened = _at_its_end(parsed)
    region = parsed.region
    events = [region.event(EventType.REGION_HEARTBEAT, marker.lineage, RegionHeartbeat(idle=True))]
    if not opened and Checkpoint(parsed.checkpoint_location).newest_planned() is not None:
        return  # A rewind has begun another lineage since: its query has not started yet.
    if not opened:
        events.insert(0, opening_event(region, marker.lineage, marker.parents))
    shared_publisher(region.kafka).publish(region.events_topic, events, timeout)


def _at_its_end(options: SinkOptions) -> tuple[LineageMarker, int | None, bool]:
    """The lineage of a query that has ended, its last checkpoint, and whether it was ever opened."""
    region, checkpoint = options.region, Checkpoint(options.checkpoint_location)
    marker = checkpoint.known_lineage() or _first_lineage(checkpoint, options)
    planned, final = checkpoint.newest_planned(), checkpoint.newest_completed()
    if planned != final:
        raise BatchUnfinished(
            f"the region {region.name} is not at its end: its query planned batch {planned} and completed "
            f"{'none' if final is None else final}; start the query again, so that it finishes"
        )
    if final is not None and final < marker.first:
        final = None
    return marker, final, checkpoint.opened(marker.lineage) is not None


def _first_lineage(checkpoint: Checkpoint, options: SinkOptions) -> LineageMarker:
    """The lineage of a query whose source had no data: no batch has begun one."""
    if checkpoint.newest_planned() is not None:
        return checkpoint.lineage(options.named_parents)
    return checkpoint.begin_lineage(0, options.named_parents())


def start_lineage(checkpoint_location: str, first: int) -> str:
    """Record that this sink begins at batch `first` of a query that wrote elsewhere before.

    Elsewhere may be another sink, or another stream of this one; a stream that already has batches of the
    query refuses the new lineage. Returns the lineage. Raises BadCheckpointLocation if the query's lineage
    here begins at that batch or later, or was never opened, or if there is no query.
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
