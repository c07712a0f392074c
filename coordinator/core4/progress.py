"""Events of writers and drivers: files, completions, failures, heartbeats, closings."""

from sluicegate.coordinator.core4 import commands
from sluicegate.coordinator.core4.log import Log
from sluicegate.coordinator.core4.log_state import RegionState
from sluicegate.coordinator.core4.pending import Part, PendingCheckpoints, Rejected
from sluicegate.events.problems import Code, Problem
from sluicegate.events.version4 import (
    CheckpointCompleted,
    CheckpointFailed,
    Envelope,
    LogRecord,
    RegionClosed,
    RegionHeartbeat,
)

_DUPLICATE = Problem(code=Code.DUPLICATE)
_SETTLED = Problem(code=Code.SETTLED)
_NOT_LIVE = Problem(code=Code.NOT_LIVE)
_REPLAYED = Problem(code=Code.REPLAYED)


def files_written(log: Log, record: LogRecord) -> Problem | None:
    """Apply a `files.written`; return why it has no effect, if it has none."""
    envelope = record.envelope
    region = _live(log, envelope)
    if region is None:
        return _NOT_LIVE
    if region.covers(envelope.incarnation, envelope.checkpoint):
        return _SETTLED
    if not log.pending[envelope.region].add_part(
        envelope.checkpoint, envelope.id, part_of(record), record.time
    ):
        return _DUPLICATE
    region.idle = False
    _seal(log, envelope.region, record.time)
    return None


def part_of(record: LogRecord) -> Part:
    """Return the part that a `files.written` event stands for."""
    envelope = record.envelope
    return Part(
        record.offset, envelope.files, envelope.rows, envelope.writer, envelope.attempt, envelope.bytes
    )


def completed(log: Log, record: LogRecord, body: CheckpointCompleted) -> Problem | None:
    """Apply a completion: the first one of a checkpoint counts, replays of it change nothing."""
    envelope = record.envelope
    region, number = _live(log, envelope), envelope.checkpoint
    if region is None:
        return _NOT_LIVE
    pending = log.pending[envelope.region]
    if region.covers(envelope.incarnation, number):
        at = region.position
        if at is not None and at.checkpoint == number and at.digest != body.source_digest:
            _stall(region, envelope.region, Rejected(number, Code.COMPLETED_DIFFERENTLY), pending)
        return _SETTLED
    known = pending.digest_of(number)
    if known is not None:
        if known != body.source_digest:
            _stall(region, envelope.region, Rejected(number, Code.COMPLETED_DIFFERENTLY), pending)
        return _REPLAYED
    rejected = pending.complete(number, body, record.offset, record.time)
    if rejected is not None:
        _stall(region, envelope.region, rejected, pending)
    region.idle = False
    _reopen(region, number)
    _seal(log, envelope.region, record.time)
    return None


def unreadable(log: Log, record: LogRecord) -> Problem | None:
    """Note a completion whose body cannot be read: its checkpoint waits for another one."""
    envelope = record.envelope
    region = _live(log, envelope)
    if region is None:
        return _NOT_LIVE
    if region.covers(envelope.incarnation, envelope.checkpoint):
        return _SETTLED
    pending = log.pending[envelope.region]
    pending.entry(envelope.checkpoint, record.offset, record.time)
    if pending.digest_of(envelope.checkpoint) is None:
        pending.unreadable.add(envelope.checkpoint)
    region.idle = False
    return None


def failed(log: Log, envelope: Envelope, body: CheckpointFailed) -> Problem | None:
    """Stall a region whose files never arrive. The other outcomes are hints; sealed checkpoints stay."""
    region, number = _live(log, envelope), envelope.checkpoint
    if region is None:
        return _NOT_LIVE
    pending = log.pending[envelope.region]
    sealed = any(each.position.checkpoint == number for each in pending.sealed)
    if body.outcome != "lost" or sealed or region.covers(envelope.incarnation, number):
        return _SETTLED
    _stall(region, envelope.region, Rejected(number, Code.FILES_LOST), pending, body.reason)
    return None


def heartbeat(log: Log, envelope: Envelope, body: RegionHeartbeat) -> Problem | None:
    """Note whether a region has work. Its next event contradicts it, also a completion."""
    region = _live(log, envelope)
    if region is None:
        return _NOT_LIVE
    if body.run != region.run:
        return _NOT_LIVE
    region.idle = body.idle and not body.silent
    return None


def closed(log: Log, envelope: Envelope, body: RegionClosed) -> Problem | None:
    """End a region after its final checkpoint."""
    region = _live(log, envelope)
    if region is None:
        return _NOT_LIVE
    if body.run != region.run:
        return _NOT_LIVE
    at, final = region.position, body.final
    own = at is not None and at.incarnation == envelope.incarnation
    if own and at is not None and (final is None or final < at.checkpoint):
        problem = Rejected(at.checkpoint, Code.FINAL_TOO_OLD, final)
        _stall(region, envelope.region, problem, log.pending[envelope.region])
        return None
    last = log.pending[envelope.region].last_completed()
    if last is not None and (final is None or last > final):
        # Work has overtaken it.
        return _SETTLED
    region.closed, region.final = True, final
    return None


def _live(log: Log, envelope: Envelope) -> RegionState | None:
    region = log.state.regions.get(envelope.region)
    return region if region is not None and region.is_live(envelope.incarnation) else None


def _reopen(region: RegionState, number: int) -> None:
    """Undo a closing that work has overtaken: it was the late one of an earlier run."""
    if region.closed and (region.final is None or number > region.final):
        region.closed, region.final = False, None


def _seal(log: Log, name: str, time: int) -> None:
    pending = log.pending[name]
    before = len(pending.sealed)
    rejected = pending.seal(time)
    if rejected is not None:
        _stall(log.state.regions[name], name, rejected, pending)
    if len(pending.sealed) > before:
        commands.note_sealed(log, name)


def _stall(
    region: RegionState, name: str, rejected: Rejected, pending: PendingCheckpoints, detail: str = ""
) -> None:
    """Stall a region until a new incarnation registers; the first reason stays."""
    if region.fault is None:
        region.fault = Problem(
            code=rejected.code,
            region=name,
            incarnation=pending.incarnation,
            checkpoint=rejected.checkpoint,
            other=rejected.other,
            names=(rejected.writer,) if rejected.writer else (),
            detail=detail,
        )
