"""Incarnation of a query in its checkpoint location: its registration, and the end of the query.

The registration has several steps, between the first batch and the first file. A location with a marker
registers as a plain restart, which may continue before the answer. A location without one asks first, which
changes nothing; then it is marked; only then the incarnation is registered. After a crash between any two
steps, the next start repeats the steps that follow the marker, with the same incarnation and the same base.
"""

import logging
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sluicegate.events.models import Position
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import STREAM_STALLS, Code
from sluicegate.lakes.sequence import raised_floor
from sluicegate.writer_hooks.errors import (
    BadCheckpointLocation,
    BatchUnfinished,
    RegionReplaced,
    RegistrationUnanswered,
)
from sluicegate.writer_hooks.numbering import keys_of, read_floor
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import publish
from sluicegate.writer_hooks.region import Event, Region, Registered
from sluicegate.writer_hooks.registration import (
    Stopped,
    ask,
    ask_until_known,
    coordinator_advice,
    replaced,
    require_accepted,
    require_live,
    running,
)
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker, new_incarnation

_log = logging.getLogger(__name__)

_CONTINUE: Final = (
    "Set the query back to the committed position: `sluicegate region reset --stream {} --region {} "
    "--checkpoint-location {}`, then start the query again"
)
"""Way out of a query that the log does not know."""
_PAUSE: Final = 0.5
"""Seconds between two questions to the stream that the query wrote before."""


class QueryRegistered(NamedTuple):
    """An accepted registration of a query."""

    marker: IncarnationMarker
    registered: Registered
    committed: Position | None
    """Committed position of the region, as of the answer."""


def register_query(
    options: SinkOptions,
    stopped: Stopped = running,
    *,
    may_be_unplanned: bool = False,
    patience: float = math.inf,
) -> QueryRegistered:
    """Register the incarnation of a query, and wait for the answer. Raises HookError.

    `may_be_unplanned`: the query ends without a batch. Else that is an error. `patience`: seconds after which
    an incarnation that has completed a batch continues without an answer.
    """
    region, checkpoint = options.region, CheckpointLocation(options.checkpoint_location)
    # A query that ends writes nothing.
    keys = None if may_be_unplanned else keys_of(options)
    marker = checkpoint.ready_marker(may_be_unplanned=may_be_unplanned)
    if marker is None:
        marker = _begin(options, checkpoint, stopped)
    else:
        _check_owner(options, checkpoint, marker)
        if marker.stream is None or marker.query is None:
            _require_committed_before(options.region, checkpoint, marker, stopped)
            marker = _complete(options, checkpoint, marker)
        if marker.assignment < region.assignment.number:
            marker = _begin_assignment(options, checkpoint, marker, stopped)
    is_known = _has_completed(checkpoint, marker)
    found = _restart(options, checkpoint, marker, stopped, patience if is_known else math.inf)
    highest = read_floor(options, keys)
    return found if highest is None else found._replace(marker=_number(checkpoint, marker, highest))


def _number(checkpoint: CheckpointLocation, marker: IncarnationMarker, highest: int) -> IncarnationMarker:
    """Record the floor of the sequence numbers. `highest` is the highest one after the registration.

    A restart keeps it, because batches may be planned and not committed. It raises the floor if another
    writer has committed higher numbers since.
    """
    floor = highest
    if marker.floor is not None:
        newest = checkpoint.newest_planned()
        place = 1 if newest is None else newest - marker.first + 1
        floor = raised_floor(marker.floor, highest, max(1, place))
    if floor != marker.floor:
        marker = marker.model_copy(update={"floor": floor})
        checkpoint.write_marker(marker)
    return marker


def _restart(
    options: SinkOptions,
    checkpoint: CheckpointLocation,
    marker: IncarnationMarker,
    stopped: Stopped,
    patience: float,
) -> QueryRegistered:
    """Register a marked location. After `patience` seconds it continues without an answer."""
    region, made = options.region, list[Event]()

    def registration() -> Event:
        made.append(_restart_event(region, checkpoint, marker))
        return made[-1]

    try:
        event, answer = ask_until_known(region, registration, stopped, patience=patience)
    except RegistrationUnanswered:
        if patience >= region.registration_timeout or stopped():
            raise
        _log.warning(
            "no coordinator has answered the registration of the region %s of the stream %s within %g s. The "
            "query goes on, because its incarnation has completed batches before. It fails later if the "
            "coordinator refuses the registration. %s",
            *(region.name, region.stream, patience, coordinator_advice(region)),
        )
        return QueryRegistered(marker, Registered(marker.incarnation, made[-1].envelope.id), None)
    require_accepted(region, marker.incarnation, answer)
    registered = Registered(marker.incarnation, event.envelope.id)
    return QueryRegistered(marker, registered, answer.committed)


def _has_completed(checkpoint: CheckpointLocation, marker: IncarnationMarker) -> bool:
    """Return True if the incarnation has a completed batch: a coordinator has accepted it before."""
    completed = checkpoint.newest_completed()
    return completed is not None and completed >= marker.first


def _restart_event(
    region: Region, checkpoint: CheckpointLocation, marker: IncarnationMarker, *, probe: bool = False
) -> Event:
    """Return the registration of a marked location, with the newest batches that it has planned."""
    planned = checkpoint.planned(marker.first)
    return region.registration(marker.incarnation, marker.base, planned=planned, probe=probe)


def check_location(options: SinkOptions) -> None:
    """Raise BadCheckpointLocation if a query may not start in its location. Changes nothing."""
    checkpoint = CheckpointLocation(options.checkpoint_location)
    marker = checkpoint.ready_marker(may_be_unplanned=True)
    if marker is not None:
        _check_owner(options, checkpoint, marker)


def probe_query(options: SinkOptions) -> None:
    """Ask whether a start of the query would be accepted at present. Changes nothing.

    Raises RegistrationRefused with the reason of the start, and the other errors of `ask`.
    """
    region, checkpoint = options.region, CheckpointLocation(options.checkpoint_location)
    marker = checkpoint.ready_marker(may_be_unplanned=True)
    if marker is None:
        _probe_new(region, new_incarnation(), running)
    elif marker.stream is not None and marker.assignment < region.assignment.number:
        _probe_next(region, checkpoint, marker, running)
    else:
        _require_committed_before(region, checkpoint, marker, running)
        _, answer = ask_until_known(
            region, lambda: _restart_event(region, checkpoint, marker, probe=True), running
        )
        require_accepted(region, marker.incarnation, answer)


def check_live(options: SinkOptions, own: Registered, stopped: Stopped = running) -> RegistrationAnswered:
    """Return the coordinator's answer to a probe, which changes nothing.

    Raises RegionReplaced if the incarnation has ended, or a newer process runs it, and the errors of `ask`.
    """
    region, checkpoint = options.region, CheckpointLocation(options.checkpoint_location)
    marker = checkpoint.marker()
    if marker is None or marker.incarnation != own.incarnation:
        raise RegionReplaced(replaced(region, "its checkpoint location was reset"))
    answer = ask(region, _restart_event(region, checkpoint, marker, probe=True), stopped)
    place = (region.stream, region.name, shlex.quote(options.checkpoint_location))
    require_live(region, own, answer, "its checkpoint location", _CONTINUE.format(*place))
    return answer


def question(options: SinkOptions, own: Registered) -> Event | None:
    """Return the probe of `check_live`; None if the checkpoint location has another incarnation."""
    checkpoint = CheckpointLocation(options.checkpoint_location)
    marker = checkpoint.marker()
    if marker is None or marker.incarnation != own.incarnation:
        return None
    return _restart_event(options.region, checkpoint, marker, probe=True)


# --- incarnations that begin --------------------------------------------------------------------------


def start_incarnation(checkpoint_location: str, first: int, *, unwritten: bool = False) -> str:
    """Record that this sink begins at batch `first` of a query that wrote to another target before.

    The other target may be another sink, or another stream of this one. It must have committed every batch
    before that one. A stream that already has batches of the query refuses the new incarnation. Returns the
    id of the incarnation.

    `first` follows the newest batch that Spark has completed. A batch that is planned and not completed may
    be in the other target already, so the query has to finish it there. `unwritten` states that another sink
    does not have it.

    Raises BadCheckpointLocation if the recorded incarnation begins at that batch or later, if there is no
    query, or if another batch follows. Then nothing is changed, and the text names the right one. Raises
    TypeError if `first` is no whole number.
    """
    if not isinstance(first, int) or isinstance(first, bool):
        raise TypeError(f"first is the number of a batch, and not {first!r}")
    checkpoint = CheckpointLocation(checkpoint_location)
    query, known = checkpoint.known_query(), checkpoint.marker()
    if known is not None and first <= known.first:
        raise BadCheckpointLocation(
            f"the query in {checkpoint_location} has the incarnation {known.incarnation} from batch "
            f"{known.first} on"
        )
    former = (
        f"the stream {known.stream}" if known is not None and known.stream is not None else "the former sink"
    )
    stated = unwritten and known is None
    if first != checkpoint.next_batch() or not (stated or checkpoint.is_at_rest()):
        more = (
            ""
            if known is not None or checkpoint.is_at_rest()
            else (
                f". If you have seen that the former sink does not have batch {checkpoint.next_batch()}, add "
                f"unwritten=True to first={checkpoint.next_batch()}"
            )
        )
        raise BadCheckpointLocation(
            f"the query in {checkpoint_location} does not continue at batch {first}, and rows would be lost "
            f"or written twice. To continue: {checkpoint.format_beginning(former)}{more}"
        )
    before = known.former if known is not None and known.stream is None else known
    marker = IncarnationMarker(query=query, incarnation=new_incarnation(), first=first, former=before)
    checkpoint.write_marker(marker)
    return marker.incarnation


def _begin(options: SinkOptions, checkpoint: CheckpointLocation, stopped: Stopped) -> IncarnationMarker:
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
    _, answer = ask_until_known(region, lambda: region.registration(incarnation, None, probe=True), stopped)
    after = region.assignment.after
    differs = answer.problem is not None and answer.problem.code is Code.BASE_DIFFERS
    if differs and after and answer.decision == after:
        return answer.committed
    require_accepted(region, incarnation, answer)
    return None


def _begin_assignment(
    options: SinkOptions, checkpoint: CheckpointLocation, marker: IncarnationMarker, stopped: Stopped
) -> IncarnationMarker:
    """Mark a location that continues in the next assignment, after a probe.

    Its source continues after its last completed batch. So that batch must be the region's position.
    """
    incarnation, base, first = _probe_next(options.region, checkpoint, marker, stopped)
    return _mark(options, checkpoint, incarnation, base, first)


def _probe_next(
    region: Region, checkpoint: CheckpointLocation, marker: IncarnationMarker, stopped: Stopped
) -> tuple[str, Position | None, int]:
    """Return id, base and first batch of the location's next incarnation. Raises RegistrationRefused."""
    incarnation = new_incarnation()
    completed, base, first = checkpoint.newest_completed(), marker.base, marker.first
    if completed is not None and completed >= first:
        first = completed + 1
        base = checkpoint.predecessor(marker, first)
    _, answer = ask_until_known(region, lambda: region.registration(incarnation, base, probe=True), stopped)
    require_accepted(region, incarnation, answer)
    return incarnation, base, first


def _require_committed_before(
    region: Region, checkpoint: CheckpointLocation, marker: IncarnationMarker, stopped: Stopped
) -> None:
    """Wait until the stream before has committed all batches before this one's first.

    The location does not continue in that stream, so nothing of it would be written again. Raises
    BadCheckpointLocation after the registration timeout.
    """
    former = marker.former
    if marker.stream is not None or former is None or former.stream is None or former.region is None:
        return
    place = replace(region, stream=former.stream, name=former.region)
    assignment = region.assignment.model_copy(
        update={"number": former.assignment, "regions": (former.region,)}
    )
    place = replace(place, assignment=assignment)
    expected, until = (
        checkpoint.predecessor(former, marker.first),
        time.monotonic() + region.registration_timeout,
    )
    while True:
        answer = ask(place, place.registration(new_incarnation(), None, probe=True), stopped)
        code = answer.problem.code if answer.problem is not None else None
        # The log of a stalled stream may be older than its table, so a later batch may be committed.
        if answer.committed == expected and answer.unresolved is None and code not in STREAM_STALLS:
            return
        unknown = code is Code.UNKNOWN_STREAM
        if unknown or stopped() or time.monotonic() + _PAUSE >= until:
            break
        time.sleep(_PAUSE)
    at = "nothing" if answer.committed is None else f"checkpoint {answer.committed.checkpoint}"
    why = f" ({answer.reason.rstrip('.')})" if unknown or code in STREAM_STALLS else ""
    raise BadCheckpointLocation(
        f"the query may not begin in the stream {region.stream} at batch {marker.first} yet: of its region "
        f"{former.region}, the stream {former.stream} has committed {at}{why}, and not exactly what is "
        f"before that batch. Start it again when `sluicegate status --stream {former.stream}` shows "
        f"checkpoint {marker.first - 1} as committed. If that never comes, use a new checkpoint location, "
        "with a source that begins right after the committed rows"
    )


def _complete(
    options: SinkOptions, checkpoint: CheckpointLocation, marker: IncarnationMarker
) -> IncarnationMarker:
    """Add the query and its region to a marker that was written before they were known."""
    region, query = options.region, checkpoint.known_query()
    number = region.assignment.number if marker.stream is None else marker.assignment
    known = {"query": query, "stream": region.stream, "region": region.name, "assignment": number}
    known |= {"former": None}
    marker = marker.model_copy(update=known)
    checkpoint.write_marker(marker)
    return marker


def _mark(
    options: SinkOptions, checkpoint: CheckpointLocation, incarnation: str, base: Position | None, first: int
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


def _check_owner(options: SinkOptions, checkpoint: CheckpointLocation, marker: IncarnationMarker) -> None:
    """Refuse a location whose batches belong to another stream or region."""
    location, region = options.checkpoint_location, options.region
    if marker.stream not in (None, region.stream):
        raise BadCheckpointLocation(
            f"the query in {location} wrote to the stream {marker.stream} so far, not to {region.stream}. If "
            "the option stream is wrong, correct it. To continue in the new stream: "
            f"{checkpoint.format_beginning(f'the stream {marker.stream}')}. Or use a new checkpoint "
            "location, with a source that begins right after the committed rows"
        )
    if marker.region not in (None, region.name):
        raise BadCheckpointLocation(
            f"the query in {location} wrote the region {marker.region} of the stream {marker.stream} so far, "
            f"not {region.name}. If the option region is wrong, correct it. To divide the stream into other "
            "regions, end this one, and start the queries in empty checkpoint locations with a higher "
            "assignment, its option assignment.after, and sources that begin where this one has ended"
            f"{checkpoint.format_unwritten()}"
        )


# --- queries that end ---------------------------------------------------------------------------------


def close_region(options: Mapping[str, str], stopped: Stopped = running) -> int | None:
    """Publish the end of a region, and return its final checkpoint (None: it never completed one).

    `options` are those of the query's sink, `checkpointLocation` among them. The query must not be running. A
    query that runs again in the same checkpoint location opens its region again. Repeated calls are allowed.
    The call registers, and waits for the coordinator, until `stopped` returns True. Raises BatchUnfinished if
    Spark has planned a batch that it has not completed, and the errors of a registration.
    """
    return end_region(SinkOptions.parse(options), None, stopped=stopped)


def end_region(
    options: SinkOptions,
    registered: Registered | None,
    before: Sequence[Event] = (),
    stopped: Stopped = running,
) -> int | None:
    """Close the region of a query that has ended, as `close_region`.

    `registered` is the registration of the query's run; `before` are events that have to precede the closing.
    Without a registration, this call registers, and waits for the coordinator.
    """
    _require_finished(options)
    registered = registered or register_query(options, stopped, may_be_unplanned=True).registered
    region, checkpoint = options.region, CheckpointLocation(options.checkpoint_location)
    marker, final = checkpoint.marker(), checkpoint.newest_completed()
    # The last batch belongs to an earlier incarnation.
    if final is not None and marker is not None and final < marker.first:
        final = None
    publish(region, [*before, region.closing(registered, final)])
    return final


def rest_region(
    options: SinkOptions,
    registered: Registered | None,
    timeout: float,
    before: Sequence[Event] = (),
    stopped: Stopped = running,
) -> None:
    """Publish that a region is idle until its query starts again, so that no commit waits for it.

    Kafka must acknowledge the event within `timeout` seconds. `registered` and `before` are as in
    `end_region`. Raises the errors of `close_region`.
    """
    checkpoint = CheckpointLocation(options.checkpoint_location)
    marker = checkpoint.marker()
    if marker is None and checkpoint.newest_planned() is not None:
        return  # The marker was deleted since. Only the next query may decide where the numbering begins.
    newest = _require_finished(options)
    if marker is not None and registered is not None and marker.incarnation != registered.incarnation:
        return  # A reset has begun another incarnation since, and its query has not started yet.
    if registered is None:
        limit = min(timeout, options.region.registration_timeout)
        region = replace(options.region, registration_timeout=limit)
        limited = replace(options, region=region)
        registered = register_query(limited, stopped, may_be_unplanned=True).registered
    region = options.region
    publish(region, [*before, region.heartbeat(registered, idle=True, after=newest)], timeout)


def _require_finished(options: SinkOptions) -> int | None:
    """Return the newest batch, None if there is none. Raise BatchUnfinished if it is not completed."""
    checkpoint = CheckpointLocation(options.checkpoint_location)
    planned, final = checkpoint.newest_planned(), checkpoint.newest_completed()
    if planned != final:
        raise BatchUnfinished(
            f"the region {options.region.name} is not at its end: its query planned batch {planned} and "
            f"completed {'none' if final is None else final}; start the query again, so that it finishes"
        )
    return final
