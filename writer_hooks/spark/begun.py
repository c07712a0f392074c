"""Registration of a query that runs: before its first file, and again when its incarnation is in doubt.

A batch after a pause takes "idle" back here, too: its beginning is in the log before a task gets a row.
"""

import logging
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.writer_hooks.backpressure import NAMES as BACKPRESSURE
from sluicegate.writer_hooks.errors import BadOption, RegionReplaced
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.registration import Stopped
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live, register_query
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.upload.options import refuse_uploads

_PATIENCE: Final = 5.0
"""Seconds for an answer to a restart, which continues without one. The listener reads a later answer."""

_log = logging.getLogger(__name__)


def require_registered(
    options: SinkOptions,
    given: Mapping[str, str],
    key: str,
    registry: Registry,
    checkpoint: Checkpoint,
    began: Callable[[], None] = lambda: None,
) -> IncarnationMarker:
    """Return the marker of a query that is registered by this run. The first call of a run waits for that.

    On return, the region is not idle as long as the batch runs: the log has its beginning if a heartbeat may
    have said idle before.

    `given` are the options as the user gave them; `key` names the query, or its stream, in the registry;
    `checkpoint` is its location. `began` is called after the registration of a run. Raises HookError.
    """
    # The listener may register, or say idle, at the same time. The later registration of the two would be
    # unknown to the process that made the earlier one.
    with registry.registering(key):
        registered, stopped = registry.registered(key), partial(registry.stopped, key)
        found = registry.incarnation(key) if registered is None else None
        marker = _check_began(checkpoint, registered, found)
        if registered is None or marker is None:
            marker, registered, committed = register_query(options, stopped, patience=_PATIENCE)
            began()
            registry.put(key, given, registered, committed)
            # A registration is a beginning, and heartbeats of the one before do not count any more.
            registry.take_idle_back(key)
        else:
            if registry.take_doubt(key):
                check_live(options, registered, stopped)
            _state_beginning(options, registered, key, registry, checkpoint)
    return marker


def _state_beginning(
    options: SinkOptions, registered: Registered, key: str, registry: Registry, checkpoint: Checkpoint
) -> None:
    """Publish that the newest planned batch begins, if a heartbeat may have said idle. Raises HookError.

    The number is needed, because a heartbeat that is in flight may come after this event in the log. Spark
    calls the sink again at the end of a batch: no heartbeat says idle until then.
    """
    if not registry.may_be_idle(key):
        return
    number, region = checkpoint.newest_planned(), options.region
    body = RegionHeartbeat(begins=number, run=registered.run)
    event = region.event(EventType.REGION_HEARTBEAT, registered.incarnation, body)
    shared_publisher(region.kafka).publish(region.events_topic, [event], region.publish_timeout)
    registry.take_idle_back(key)


def require_registered_alone(
    options: SinkOptions,
    key: str,
    known: MutableMapping[str, Registered],
    stopped: Stopped = lambda: False,
    began: Callable[[], None] = lambda: None,
) -> IncarnationMarker:
    """Return the marker as `require_registered` does, without a listener. `known` belongs to this process.

    Raises BadOption for asynchronous uploads and limits of commits, and the errors of `require_registered`.
    """
    refuse_uploads(
        options.uploads,
        "without attach, nobody reports files that are lost with their machine. Call "
        "sluicegate.writer_hooks.attach(spark) before the query starts",
    )
    if options.backpressure.is_limited:
        raise BadOption(
            f"the options {', '.join(BACKPRESSURE)} need sluicegate.writer_hooks.attach(spark), which learns "
            "of commits: call it once, before the query starts, or leave the options out"
        )
    marker = _check_began(Checkpoint(options.checkpoint_location), known.get(key))
    if marker is not None:
        return marker
    marker, known[key], _ = register_query(options, stopped)
    began()
    _log.warning(
        "sluicegate.writer_hooks.attach(spark) was not called: the region %s sends no heartbeats, so it "
        "holds back commits while its source is idle, and is not closed when a bounded source ends",
        options.region.name,
    )
    return marker


def _check_began(
    checkpoint: Checkpoint, registered: Registered | None, began: str | None = None
) -> IncarnationMarker | None:
    """Return the marker of a run that is registered, None if it is not.

    Raises RegionReplaced if the location has another incarnation than the run began with: it was reset.
    """
    marker = checkpoint.marker()
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
