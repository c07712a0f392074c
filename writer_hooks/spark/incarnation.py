"""Registration of a query: the steps between its first batch and its first file.

A location with a marker registers as a plain restart. A location without one asks first, which changes
nothing; then it is marked; only then the incarnation is registered. After a crash between any two steps, the
next start repeats the steps that follow the marker, with the same incarnation and the same base.
"""

from collections.abc import Callable
from typing import NamedTuple

from sluicegate.events.models import Position
from sluicegate.events.problems import Code
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.writer_hooks.errors import BadCheckpointLocation, RegionReplaced
from sluicegate.writer_hooks.region import Event, Region
from sluicegate.writer_hooks.registration import (
    ask,
    ask_until_known,
    registration_event,
    require_accepted,
)
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker, new_incarnation
from sluicegate.writer_hooks.spark.options import SinkOptions

Stopped = Callable[[], bool]
"""Function that returns True if the query is being stopped."""

_ENDED = frozenset(
    {
        Code.ASSIGNMENT_DIFFERS,
        Code.ASSIGNMENT_OLDER,
        Code.ASSIGNMENT_WITHDRAWN,
        Code.INCARNATION_ENDED,
        Code.REGION_REMOVED,
    }
)
"""Answers to a probe of the own incarnation which state that it has ended."""


class Registered(NamedTuple):
    """An accepted registration of this driver process."""

    incarnation: str
    run: str
    """Id of the registration."""


def _running() -> bool:
    return False


def register_query(
    options: SinkOptions, stopped: Stopped = _running, *, may_be_unplanned: bool = False
) -> tuple[IncarnationMarker, Registered]:
    """Register the incarnation of a query, and wait for the answer. Raises HookError.

    `may_be_unplanned`: the query ends without a batch. Else that is an error.
    """
    region, checkpoint = options.region, Checkpoint(options.checkpoint_location)
    marker = checkpoint.ready_marker(may_be_unplanned=may_be_unplanned)
    if marker is None:
        marker = _begin(options, checkpoint, stopped)
    else:
        _check_owner(options, checkpoint, marker)
        if marker.stream is None or marker.query is None:
            marker = _complete(options, checkpoint, marker)
        if marker.assignment < region.assignment.number:
            marker = _begin_assignment(options, checkpoint, marker, stopped)
    registration, answer = ask_until_known(region, lambda: restart_event(region, checkpoint, marker), stopped)
    hit(Failpoint.HOOK_ANSWER_AFTER)
    require_accepted(region, marker.incarnation, answer)
    return marker, Registered(marker.incarnation, registration.envelope.id)


def restart_event(
    region: Region, checkpoint: Checkpoint, marker: IncarnationMarker, *, probe: bool = False
) -> Event:
    """Return the registration of a marked location, with the newest batches that it has planned."""
    planned = checkpoint.planned(marker.first)
    return registration_event(region, marker.incarnation, marker.base, planned=planned, probe=probe)


def check_location(options: SinkOptions) -> None:
    """Raise BadCheckpointLocation if a query may not start in its location. Changes nothing."""
    checkpoint = Checkpoint(options.checkpoint_location)
    marker = checkpoint.ready_marker(may_be_unplanned=True)
    if marker is not None:
        _check_owner(options, checkpoint, marker)


def probe_query(options: SinkOptions) -> None:
    """Ask whether a start of the query would be accepted at present. Changes nothing.

    Raises RegistrationRefused with the reason of the start, and the other errors of `ask`.
    """
    region, checkpoint = options.region, Checkpoint(options.checkpoint_location)
    marker = checkpoint.ready_marker(may_be_unplanned=True)
    if marker is None:
        _probe_new(region, new_incarnation(), _running)
    elif marker.stream is not None and marker.assignment < region.assignment.number:
        _probe_next(region, checkpoint, marker, _running)
    else:
        _, answer = ask_until_known(
            region, lambda: restart_event(region, checkpoint, marker, probe=True), _running
        )
        require_accepted(region, marker.incarnation, answer)


def check_live(options: SinkOptions, own: Registered, stopped: Stopped = _running) -> None:
    """Raise RegionReplaced if the incarnation has ended, or a newer process runs it. Changes nothing."""
    region, checkpoint = options.region, Checkpoint(options.checkpoint_location)
    marker = checkpoint.marker()
    if marker is None or marker.incarnation != own.incarnation:
        raise RegionReplaced(_replaced(region, "its checkpoint location was reset"))
    answer = ask(region, restart_event(region, checkpoint, marker, probe=True), stopped)
    if answer.live == own.incarnation:
        if answer.run not in (None, own.run):
            raise RegionReplaced(_replaced(region, "another process runs its checkpoint location"))
        return
    ended = answer.problem is not None and answer.problem.code in _ENDED
    if answer.live is not None or ended:
        raise RegionReplaced(_replaced(region, answer.reason or f"incarnation {answer.live} is live"))


def _replaced(region: Region, reason: str) -> str:
    return (
        f"this driver does not write the region {region.name} of the stream {region.stream} any more: "
        f"{reason}. Nothing of this batch counts. If another driver was started there, leave this one "
        "stopped; else start the query again, in a new driver"
    )


# --- incarnations that begin ----------------------------------------------------------------------


def _begin(options: SinkOptions, checkpoint: Checkpoint, stopped: Stopped) -> IncarnationMarker:
    """Mark a location that has no incarnation, after a probe.

    A region that has a position is refused, because its source would be read again from the start. The option
    `assignment.after` states that the source begins at that cut, while no later decision exists.
    """
    # Without it the location cannot be marked: fail before the wait.
    checkpoint.known_query()
    incarnation = new_incarnation()
    base = _probe_new(options.region, incarnation, stopped)
    return _mark(options, checkpoint, incarnation, base, first=0)


def _probe_new(region: Region, incarnation: str, stopped: Stopped) -> Position | None:
    """Return the base of an incarnation in a location without one. Raises RegistrationRefused."""
    _, answer = ask_until_known(
        region, lambda: registration_event(region, incarnation, None, probe=True), stopped
    )
    after = region.assignment.after
    differs = answer.problem is not None and answer.problem.code is Code.BASE_DIFFERS
    if differs and after and answer.decision == after:
        return answer.decided
    require_accepted(region, incarnation, answer)
    return None


def _begin_assignment(
    options: SinkOptions, checkpoint: Checkpoint, marker: IncarnationMarker, stopped: Stopped
) -> IncarnationMarker:
    """Mark a location that continues in the next assignment, after a probe.

    Its source continues after its last completed batch. So that batch must be the region's position.
    """
    incarnation, base, first = _probe_next(options.region, checkpoint, marker, stopped)
    return _mark(options, checkpoint, incarnation, base, first)


def _probe_next(
    region: Region, checkpoint: Checkpoint, marker: IncarnationMarker, stopped: Stopped
) -> tuple[str, Position | None, int]:
    """Return id, base and first batch of the location's next incarnation. Raises RegistrationRefused."""
    incarnation = new_incarnation()
    completed, base, first = checkpoint.newest_completed(), marker.base, marker.first
    if completed is not None and completed >= first:
        first = completed + 1
        base = checkpoint.predecessor(marker, first)
    _, answer = ask_until_known(
        region, lambda: registration_event(region, incarnation, base, probe=True), stopped
    )
    require_accepted(region, incarnation, answer)
    return incarnation, base, first


def _complete(options: SinkOptions, checkpoint: Checkpoint, marker: IncarnationMarker) -> IncarnationMarker:
    """Add the query and its region to a marker that was written before they were known."""
    region, query = options.region, checkpoint.known_query()
    number = region.assignment.number if marker.stream is None else marker.assignment
    known = {"query": query, "stream": region.stream, "region": region.name, "assignment": number}
    marker = marker.model_copy(update=known)
    checkpoint.write_marker(marker)
    return marker


def _mark(
    options: SinkOptions, checkpoint: Checkpoint, incarnation: str, base: Position | None, first: int
) -> IncarnationMarker:
    region = options.region
    marker = IncarnationMarker(
        query=checkpoint.known_query(),
        incarnation=incarnation,
        base=base,
        first=first,
        stream=region.stream,
        region=region.name,
        assignment=region.assignment.number,
    )
    checkpoint.write_marker(marker)
    return marker


def _check_owner(options: SinkOptions, checkpoint: Checkpoint, marker: IncarnationMarker) -> None:
    """Refuse a location whose batches belong to another stream or region."""
    location, region = options.checkpoint_location, options.region
    if marker.stream not in (None, region.stream):
        old, first = marker.stream, checkpoint.newest_planned()
        raise BadCheckpointLocation(
            f"the query in {location} wrote to the stream {old} so far, not to {region.stream}. If the "
            f"option stream is wrong, correct it. To continue in the new stream, let all before batch "
            f"{first} be committed in {old}, and record that: "
            f"sluicegate.writer_hooks.start_incarnation(location, first={first}). If batch {first} is "
            f"committed in {old} too, start the query in that stream once more, so that it finishes the "
            "batch, which would be written twice else. Or use a new checkpoint location, with a source that "
            "begins right after the committed rows"
        )
    if marker.region not in (None, region.name):
        raise BadCheckpointLocation(
            f"the query in {location} wrote the region {marker.region} of the stream {marker.stream} so far, "
            f"not {region.name}. If the option region is wrong, correct it. To divide the stream into other "
            "regions, end this one, and start the queries in empty checkpoint locations with a higher "
            "assignment, its option assignment.after, and sources that begin where this one has ended"
        )
