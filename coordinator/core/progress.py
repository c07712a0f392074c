"""Events of drivers: completions, failures, heartbeats, closings."""

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import RegionPhase, RegionState
from sluicegate.events.envelope import Envelope, LogRecord
from sluicegate.events.models import CheckpointCompleted, CheckpointFailed, RegionClosed, RegionHeartbeat
from sluicegate.events.problems import Code, Problem

_SETTLED = Problem(code=Code.SETTLED)
NOT_LIVE = Problem(code=Code.NOT_LIVE)
_REPLAYED = Problem(code=Code.REPLAYED)
_MOST_REASONS = 16_384
"""Characters of the reasons of all regions together."""


def apply(log: Log, record: LogRecord) -> Problem | None:
    """Apply an event of a region's driver; return the reason if it has no effect."""
    envelope, body = record.envelope, record.body
    region = log.state.regions.get(envelope.region)
    if region is None or region.live_incarnation != envelope.incarnation:
        return NOT_LIVE
    if isinstance(body, RegionHeartbeat | RegionClosed) and body.run != region.run:
        # An older process of the same incarnation is still alive, or its event arrives late.
        return NOT_LIVE
    match body:
        case CheckpointCompleted():
            return completed(log, record, body, region)
        case CheckpointFailed():
            return failed(log, envelope, body, region)
        case RegionHeartbeat():
            return heartbeat(log, envelope, body, region)
        case RegionClosed():
            return closed(log, envelope, body, region)
    # What is left are completions that nobody can read.
    if region.covers(envelope.incarnation, envelope.checkpoint):
        return _SETTLED
    log.pending[envelope.region].add_unreadable(envelope.checkpoint, record.offset, record.time)
    region.idle = False
    return None


def completed(log: Log, record: LogRecord, body: CheckpointCompleted, region: RegionState) -> Problem | None:
    """Apply a completion: the first one of a checkpoint counts, replays of it change nothing."""
    name, number = record.envelope.region, record.envelope.checkpoint
    pending, at = log.pending[name], region.position
    settled = region.covers(record.envelope.incarnation, number)
    # The digests of checkpoints before the position are not kept.
    newest = at.digest if settled and at is not None and at.checkpoint == number else None
    known = newest if settled else pending.digest_of(number)
    if known is not None and known != body.source_digest:
        stall(region, pending.problem(Code.COMPLETED_DIFFERENTLY, number))
    if settled or known is not None:
        return _SETTLED if settled else _REPLAYED
    if (problem := pending.complete(number, body, record.offset, record.time)) is not None:
        stall(region, problem)
    begin(region, number)
    _reopen(region, number)
    seal(log, name, record.time)
    return None


def failed(log: Log, envelope: Envelope, body: CheckpointFailed, region: RegionState) -> Problem | None:
    """Stall a region whose files never arrive. The other outcomes are hints; sealed checkpoints stay."""
    number, pending = envelope.checkpoint, log.pending[envelope.region]
    sealed = any(each.position.checkpoint == number for each in pending.sealed)
    if body.outcome != "lost" or sealed or region.covers(envelope.incarnation, number):
        return _SETTLED
    # The state record has the reasons of all regions.
    told = sum(len(each.fault.detail) for each in log.state.regions.values() if each.fault is not None)
    reason = body.reason[: max(0, _MOST_REASONS - told)]
    stall(region, pending.problem(Code.FILES_LOST, number).model_copy(update={"detail": reason}))
    return None


def heartbeat(log: Log, envelope: Envelope, body: RegionHeartbeat, region: RegionState) -> Problem | None:
    """Note the state of the driver. The region's next event contradicts idleness, also a completion.

    An idle heartbeat may be in flight while a checkpoint begins, or be sent by a thread that does not know of
    it yet. So the number that it names decides, and not the order in the log.
    """
    if body.begins is not None:
        begin(region, body.begins)
    elif not body.idle:
        region.idle = False
    elif region.begun is None or (body.after is not None and body.after >= region.begun):
        region.idle = True
    return None


def begin(region: RegionState, number: int) -> None:
    """Note that a checkpoint has begun: the region is not idle until its driver names this one."""
    region.idle = False
    region.begun = number if region.begun is None else max(region.begun, number)


def closed(log: Log, envelope: Envelope, body: RegionClosed, region: RegionState) -> Problem | None:
    """End a region after its final checkpoint."""
    pending, at, final = log.pending[envelope.region], region.position, body.final
    own = at if at is not None and at.incarnation == envelope.incarnation else None
    if own is not None and (final is None or final < own.checkpoint):
        stall(region, pending.problem(Code.FINAL_TOO_OLD, own.checkpoint, other=final))
        return None
    last = pending.last_completed()
    if last is not None and (final is None or last > final):
        # Work has overtaken the closing. Without this rule, a new assignment would read that work again.
        return _SETTLED
    region.phase, region.final = RegionPhase.CLOSED, final
    return None


def _reopen(region: RegionState, number: int) -> None:
    """Undo a closing that work has overtaken: it was the late one of an earlier run."""
    if region.phase is RegionPhase.CLOSED and (region.final is None or number > region.final):
        region.phase, region.final = RegionPhase.LIVE, None


def seal(log: Log, name: str, time: int) -> None:
    """Seal the region's checkpoints that are complete; stall a region of which one never can be."""
    pending = log.pending[name]
    before = len(pending.sealed)
    if (problem := pending.seal(time)) is not None:
        stall(log.state.regions[name], problem)
    if len(pending.sealed) > before:
        # A savepoint that was ordered while the region lagged waits for its next sealed checkpoint.
        log.retarget(name, pending.sealed[0].position)


def stall(region: RegionState, problem: Problem) -> None:
    """Stall a region until a new incarnation registers; the first reason stays."""
    if region.fault is None:
        region.fault = problem
