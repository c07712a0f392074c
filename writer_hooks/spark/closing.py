"""End of a query: its region is closed, or idle until the query starts again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionClosed, RegionHeartbeat
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BatchUnfinished
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Event
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker, new_incarnation
from sluicegate.writer_hooks.spark.incarnation import Registered, register_query
from sluicegate.writer_hooks.spark.options import SinkOptions


def close_region(options: Mapping[str, str]) -> int | None:
    """Publish the end of a region, and return its final checkpoint (None: it never completed one).

    `options` are those of the query's sink, `checkpointLocation` among them. The query must not be running. A
    query that runs again in the same checkpoint location opens its region again. Repeated calls are allowed.
    The call registers, and waits for the coordinator. Raises BatchUnfinished if Spark has planned a batch
    that it has not completed, and the errors of a registration.
    """
    return end_region(SinkOptions.parse(options), None)


def end_region(
    options: SinkOptions, registered: Registered | None, before: Sequence[Event] = ()
) -> int | None:
    """Close the region of a query that has ended, as `close_region`.

    `registered` is the registration of the query's run; `before` are events that have to precede the closing.
    Without a registration, this call registers, and waits for the coordinator.
    """
    _require_finished(options)
    registered = registered or register_query(options, may_be_unplanned=True)[1]
    region, checkpoint = options.region, Checkpoint(options.checkpoint_location)
    marker, final = checkpoint.marker(), checkpoint.newest_completed()
    # The last batch belongs to an earlier incarnation.
    if final is not None and marker is not None and final < marker.first:
        final = None
    closed = RegionClosed(final=final, run=registered.run)
    event = region.event(EventType.REGION_CLOSED, registered.incarnation, closed)
    shared_publisher(region.kafka).publish(region.events_topic, [*before, event], region.publish_timeout)
    return final


def rest_region(
    options: SinkOptions, registered: Registered | None, timeout: float, before: Sequence[Event] = ()
) -> None:
    """Publish that a region is idle until its query starts again, so that no commit waits for it.

    Kafka must acknowledge the event within `timeout` seconds. `registered` and `before` are as in
    `end_region`. Raises the errors of `close_region`.
    """
    checkpoint = Checkpoint(options.checkpoint_location)
    marker = checkpoint.marker()
    if marker is None and checkpoint.newest_planned() is not None:
        return  # The marker was deleted since. Only the next query may decide where the numbering begins.
    _require_finished(options)
    if marker is not None and registered is not None and marker.incarnation != registered.incarnation:
        return  # A reset has begun another incarnation since, and its query has not started yet.
    if registered is None:
        limit = min(timeout, options.region.registration_timeout)
        region = replace(options.region, registration_timeout=limit)
        registered = register_query(replace(options, region=region), may_be_unplanned=True)[1]
    region = options.region
    idle = RegionHeartbeat(idle=True, run=registered.run)
    event = region.event(EventType.REGION_HEARTBEAT, registered.incarnation, idle)
    shared_publisher(region.kafka).publish(region.events_topic, [*before, event], timeout)


def _require_finished(options: SinkOptions) -> None:
    """Raise BatchUnfinished if the last planned batch is not completed."""
    checkpoint = Checkpoint(options.checkpoint_location)
    planned, final = checkpoint.newest_planned(), checkpoint.newest_completed()
    if planned != final:
        raise BatchUnfinished(
            f"the region {options.region.name} is not at its end: its query planned batch {planned} and "
            f"completed {'none' if final is None else final}; start the query again, so that it finishes"
        )


def start_incarnation(checkpoint_location: str, first: int) -> str:
    """Record that this sink begins at batch `first` of a query that wrote to another target before.

    The other target may be another sink, or another stream of this one. A stream that already has batches of
    the query refuses the new incarnation. Returns the id of the incarnation. Raises BadCheckpointLocation if
    the recorded incarnation begins at that batch or later, or if there is no query.
    """
    checkpoint = Checkpoint(checkpoint_location)
    query, known = checkpoint.known_query(), checkpoint.marker()
    if known is not None and first <= known.first:
        raise BadCheckpointLocation(
            f"the query in {checkpoint_location} has the incarnation {known.incarnation} from batch "
            f"{known.first} on"
        )
    marker = IncarnationMarker(query=query, incarnation=new_incarnation(), first=first)
    checkpoint.write_marker(marker)
    return marker.incarnation
