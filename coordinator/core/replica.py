"""Replica: the fold of a stream's log. Coordinators, replay, commands and the simulator share it.

`apply` is the only writer of LogState. `refill` reads records again that a state record already includes, and
collects the pending checkpoints of it; it changes nothing else.
"""

from sluicegate.coordinator.core import commands, cuts, registration, savepoints
from sluicegate.coordinator.core.log import Applied, Log, PendingCheckpoints
from sluicegate.coordinator.core.state import (
    MOST_KNOWN_TABLES,
    Decline,
    LogState,
    RegionPhase,
    RegionState,
    SkippedRecord,
    reaches,
)
from sluicegate.events.envelope import (
    CHECKPOINT_COMPLETED,
    FILES_WRITTEN,
    PER_REGION,
    Envelope,
    EventType,
    LogRecord,
)
from sluicegate.events.models import (
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    KnownTable,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
    TableVersion,
)
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem

# Events of drivers: completions, failures, heartbeats, closings.

_SETTLED = Problem(code=Code.SETTLED)
NOT_LIVE = Problem(code=Code.NOT_LIVE)
_REPLAYED = Problem(code=Code.REPLAYED)
_MOST_REASONS = 16_384
"""Characters of the reasons of all regions together."""


def apply_driver_event(log: Log, record: LogRecord) -> Problem | None:
    """Apply an event of a region's driver; return the reason if it has no effect."""
    envelope, body = record.envelope, record.body
    region = log.state.region(envelope.region)
    if region.live_incarnation != envelope.incarnation:
        return NOT_LIVE
    match body:
        case CheckpointCompleted():
            return completed(log, record, body, region)
        case RegionHeartbeat() | RegionClosed() if body.run != region.run:
            # An older process of the same incarnation is still alive, or its event arrives late.
            return NOT_LIVE
        case CheckpointFailed():
            return failed(log, record, body, region)
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


def failed(log: Log, record: LogRecord, body: CheckpointFailed, region: RegionState) -> Problem | None:
    """Note that a checkpoint is declined, or stall a region whose files never arrive; sealed ones stay."""
    envelope = record.envelope
    number, pending = envelope.checkpoint, log.pending[envelope.region]
    # The chain of completions may pass over a number: it is settled as well.
    sealed = any(each.position.checkpoint >= number for each in pending.sealed)
    if sealed or region.covers(envelope.incarnation, number):
        return _SETTLED
    reason = body.reason[: max(0, _MOST_REASONS - _told(log))]
    if body.outcome == "declined" and body.run != region.run:
        # A process that has ended, or that was replaced, says nothing about this one.
        return NOT_LIVE
    if body.outcome == "declined":
        region.declined = Decline(checkpoint=number, at=record.time, code=body.code, reason=reason)
        return None
    stall(region, pending.problem(Code.FILES_LOST, number).model_copy(update={"detail": reason}))
    return None


def _told(log: Log) -> int:
    """Return the characters of the reasons of all regions: the state record has them."""
    regions = log.state.regions.values()
    faults = sum(len(each.fault.detail) for each in regions if each.fault is not None)
    return faults + sum(len(each.declined.reason) for each in regions if each.declined is not None)


def heartbeat(log: Log, envelope: Envelope, body: RegionHeartbeat, region: RegionState) -> Problem | None:
    """Note the state of the driver. The region's next event contradicts idleness, also a completion.

    An idle heartbeat may be in flight while a checkpoint begins, or be sent by a thread that does not know of
    it yet. So the number that it names decides, and not the order in the log.
    """
    if body.begins is not None:
        region.rests = False
        begin(region, body.begins)
    elif not body.idle:
        region.rests = region.idle = False
    elif region.begun is None or (body.after is not None and body.after >= region.begun):
        region.idle = True
    return None


def begin(region: RegionState, number: int) -> None:
    """Note that a checkpoint has begun: the region is not idle until its driver names this one."""
    # An assignment to a field of a model takes long.
    if region.idle:
        region.idle = False
    if region.begun is None or number > region.begun:
        region.begun = number


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
        if log.state.regions[name].declined is not None:
            log.state.regions[name].declined = None
        # A savepoint that was ordered while the region lagged waits for its next sealed checkpoint.
        savepoints.retarget(log.state, name, pending.sealed[0].position, sealed_later=True)


def stall(region: RegionState, problem: Problem) -> None:
    """Stall a region until a new incarnation registers; the first reason stays."""
    if region.fault is None:
        region.fault = problem


_APPLIED = Applied()
NEVER = TableVersion()


class Replica:
    """The log of one stream, applied up to an offset."""

    def __init__(self, stream: str, partition: int, state: LogState | None = None, applied: int = -1) -> None:
        """`state` is that of a state record: every record at or before the offset `applied` is in it."""
        self.partition = partition
        self.log = Log(stream, state.model_copy(deep=True) if state is not None else LogState())
        self.applied = applied
        self.lost_content = False
        """True if records are gone that the unresolved decision of the state record needs."""
        self._recorded = applied
        self._included: set[tuple[int, str]] = set()
        """Records that only a newer release reads, by offset and digest, and whose effect the state has."""
        self._refilling = applied >= 0

    @property
    def state(self) -> LogState:
        """Return the state as of `applied`."""
        return self.log.state

    def problem(self, low_water: int) -> Problem | None:
        """Return the reason if this log, read to its end from `low_water` on, is not the stream's."""
        first = self.state.partition
        if first is not None and first != self.partition:
            return Problem(code=Code.OTHER_PARTITION, number=first, other=self.partition)
        return Problem(code=Code.LOG_DISCONTINUOUS, number=low_water) if self.lost_content else None

    def step(self, record: LogRecord) -> Applied:
        """Apply a record, or refill from it if the state includes it. Offsets must rise."""
        if record.offset <= self._recorded and record.skipped:
            self._include(record)
            return _APPLIED
        if record.offset <= self._recorded:
            # The state has the effect of this record; only the pending checkpoints are not part of it.
            self.refill(record)
            return _APPLIED
        self.finish_refill()
        return self.apply(record)

    # --- the fold of the log ----------------------------------------------------------------------

    def apply(self, record: LogRecord) -> Applied:
        """Apply one record that the state does not include yet."""
        self.applied = record.offset
        if record.skipped:
            return self._skip(record)
        if record.envelope.type is FILES_WRITTEN:
            # Most events are of this type, and none of them answers, resolves, ends or reaches anything.
            ignored = self._add_files(record)
            return _APPLIED if ignored is None else Applied(ignored)
        if record.envelope.type is CHECKPOINT_COMPLETED:
            if record.envelope.writer and record.body is not None:
                # A completion with files is a `files.written`, and a completion that names it: itself.
                self._add_files(record)
            ignored = apply_driver_event(self.log, record)
            if self.log.taken:
                self._keep_for_revert(record)
            reached = savepoints.reached(self.log)
            return (
                _APPLIED if ignored is None and not reached else Applied(ignored, savepoints=tuple(reached))
            )
        made, answer = self.state.unresolved, None
        # What a registration ends, its answer says.
        ordered = isinstance(record.body, StreamCommand | CutReverted)
        lived = self._live() if ordered else {}
        if record.envelope.type is EventType.REGION_REGISTERED:
            ignored, answer = self._register(record)
        else:
            ignored = self._apply(record)
        # Nothing but a valid outcome ends an unresolved decision.
        resolved = made if self.state.unresolved is None else None
        ended = dict(lived.items() - self._live().items()) if ordered else {}
        return Applied(ignored, answer, resolved, tuple(savepoints.reached(self.log)), ended)

    def _add_files(self, record: LogRecord) -> Problem | None:
        """Add the files of one writer attempt to their checkpoint; return the reason if it has no effect."""
        envelope, log = record.envelope, self.log
        name = envelope.region
        region = log.state.region(name)
        if region.live_incarnation != envelope.incarnation:
            return NOT_LIVE
        pending = log.pending[name]
        if (problem := pending.add_part(record)) is not None:
            if log.taken:
                self._keep_for_revert(record)
            return problem
        if region.idle:
            region.idle = False
        if pending.checkpoints[envelope.checkpoint].body is not None:
            # Without its completion, a checkpoint seals nothing.
            seal(log, name, record.time)
        return None

    def _live(self) -> dict[str, str]:
        """Return the live incarnations by region."""
        return {name: life for name, each in self.state.regions.items() if (life := each.live_incarnation)}

    def _apply(self, record: LogRecord) -> Problem | None:
        """Apply any other record; return the reason if it has no effect."""
        log = self.log
        match record.body:
            case StreamPolicy() as body:
                return self._set_policy(body)
            case StreamCommand(offset=int(), digest=str()) as body if self._has(body):
                return Problem(code=Code.SKIPPED_LATE, number=body.offset, other=record.offset)
            case StreamCommand() as body:
                return commands.obey(log, record.offset, body)
            case CutDecided() as body:
                return cuts.decide(log, record.offset, record.time, body)
            case CutAbandoned() as body:
                return cuts.abandon(log, body)
            case CutCommitted() | CutReverted() as body:
                return cuts.resolve(log, body)
            case None:
                return Problem(code=Code.UNEXPECTED)
        return apply_driver_event(log, record)

    def _register(self, record: LogRecord) -> tuple[Problem | None, RegistrationAnswered]:
        """Judge a registration; return the reason if it has no effect, and the answer."""
        envelope, body, state = record.envelope, record.body, self.state
        if not isinstance(body, RegionRegistered):
            code, detail = Code.REGISTRATION_UNREADABLE, record.unreadable
            unreadable = Problem(code=code, region=envelope.region, detail=detail)
            return unreadable, self._answer(envelope, unreadable)
        problem = registration.judge(self.log, record.offset, envelope, body)
        region = state.region(envelope.region)
        if region.live_incarnation == envelope.incarnation and region.run == envelope.id:
            # The same event again, and its effect still holds: it is answered, not judged.
            problem = None
        elif problem is None and not body.probe:
            registration.accept(self.log, record.offset, envelope, body)
            state.partition = self.partition if state.partition is None else state.partition
        region = state.region(envelope.region)
        # A plain restart of a stalled region has its effect; the answer names the stall.
        stall = region.fault if region.live_incarnation == envelope.incarnation else None
        return problem, self._answer(envelope, problem or stall)

    def _answer(self, envelope: Envelope, problem: Problem | None) -> RegistrationAnswered:
        """Return the answer to a registration, also a refusal, with the position at this place of the log."""
        state, name = self.state, envelope.region
        region, committed = state.region(name), state.committed(name)
        live = region.live_incarnation
        return RegistrationAnswered(
            registration=envelope.id,
            accepted=problem is None,
            problem=problem,
            committed=committed.position,
            unresolved=state.unresolved_of(name),
            live=live,
            run=region.run if live is not None else None,
            source_offsets=committed.source_offsets,
            decision=state.decided,
        )

    def _has(self, body: StreamCommand) -> bool:
        """True if an order skips a record whose effect the state has: a newer release has applied it."""
        return body.command == "skip" and (body.offset, body.digest) in self._included

    def _include(self, record: LogRecord) -> None:
        """Note a record that only a newer release reads, at or before the offset of the state.

        The state has whatever effect it had there. If that is not the one of a skipped record, a newer
        release has applied it, and an order comes too late.
        """
        if all(each.offset != record.offset for each in self.state.skipped):
            self._included.add((record.offset, record.skipped))

    def _skip(self, record: LogRecord) -> Applied:
        """Read over a record that only a newer release reads, since an order names it.

        It has no effect. But a driver believes what it has said there, so its region stalls.
        """
        envelope, offset, state = record.envelope, record.offset, self.state
        state.skipped.append(SkippedRecord(offset=offset, digest=record.skipped))
        problem = Problem(code=Code.RECORD_SKIPPED, region=envelope.region or None, number=offset)
        if envelope.type is EventType.REGION_REGISTERED:
            if not envelope.id:
                return Applied(problem)
            # Nothing stalls: its driver has read nothing yet.
            refused = Problem(code=Code.REGISTRATION_UNREADABLE, region=envelope.region or None)
            return Applied(problem, self._answer(envelope, refused))
        if envelope.type in PER_REGION and envelope.type is not EventType.REGION_HEARTBEAT:
            # In the newer version, an attribute can have another name: then it may be of any region.
            for name in [envelope.region] if envelope.region else list(state.regions):
                region = state.region(name)
                life = region.live_incarnation
                if life is not None and envelope.incarnation in ("", life):
                    # Whatever it stalls for already: what this record may have stated holds the watermark.
                    region.fault = problem.model_copy(update={"region": name, "incarnation": life})
        return Applied(problem)

    def _set_policy(self, body: StreamPolicy) -> Problem | None:
        held = self.state.policy.number
        if body.number != held + 1:
            # Whoever sends the next one counts on this number, so it cannot be any higher one.
            return Problem(code=Code.STALE_POLICY, number=body.number, other=held)
        state = self.state
        state.policy = body
        for name, terms in body.tables.items():
            known = state.tables.get(name)
            same = known is not None and known.terms.identity == terms.identity
            state.tables[name] = KnownTable(terms=terms, newest=known.newest if known and same else NEVER)
        left_out = [name for name in state.tables if name not in body.tables]
        for name in left_out[: max(0, len(state.tables) - MOST_KNOWN_TABLES)]:
            del state.tables[name]
        return None

    # --- reading again ----------------------------------------------------------------------------

    def refill(self, record: LogRecord) -> None:
        """Collect a pending checkpoint's event from a record that the state includes."""
        found = self._place_of(record)
        if found is not None:
            _collect(found, record)
            found.seal(record.time)

    def _place_of(self, record: LogRecord) -> PendingCheckpoints | None:
        """Return the pending checkpoints of an event; None if the state does not need it any more."""
        envelope, made = record.envelope, self.state.unresolved
        if envelope.type is not FILES_WRITTEN and envelope.type is not EventType.CHECKPOINT_COMPLETED:
            return None
        name, number = envelope.region, envelope.checkpoint
        if made is not None and reaches(made.moves.get(name), envelope.incarnation, number):
            return self.log.taken[name] if _is_after(made.before.regions[name], record) else None
        region = self.state.region(name)
        if not _is_after(region, record):
            return None
        if not region.accepts_checkpoints and (region.final is None or number > region.final):
            return None
        return self.log.pending[name]

    def finish_refill(self) -> None:
        """End the collection of what the state record leaves out: everything recorded was read."""
        if not self._refilling:
            return
        self._refilling = False
        log, made, regions = self.log, self.state.unresolved, self.state.regions
        self.lost_content = made is not None and any(
            found.tail != made.moves[name] for name, found in log.taken.items()
        )
        # The end of a region discards what is not sealed. Checkpoint numbers may be left out, so some of that
        # is before the final checkpoint.
        ended = [pending for name, pending in log.pending.items() if not regions[name].accepts_checkpoints]
        if made is not None:
            ended += [
                each for name, each in log.taken.items() if not made.before.regions[name].accepts_checkpoints
            ]
        for pending in ended:
            pending.keep_sealed()

    def _keep_for_revert(self, record: LogRecord) -> None:
        """Collect an event that only the unresolved decision settles: after a revert, it counts.

        A reader that starts after the revert collects it, too.
        """
        envelope, made = record.envelope, self.state.unresolved
        name, place = envelope.region, (envelope.incarnation, envelope.checkpoint)
        live, found = self.state.region(name).live_incarnation, self.log.taken.get(name)
        if made is None or found is None or live != envelope.incarnation:
            return
        if reaches(made.moves[name], *place) and not made.before.regions[name].covers(*place):
            _collect(found, record)


def _collect(found: PendingCheckpoints, record: LogRecord) -> None:
    """Add an event of a writer, or a completion, without its effect on the state."""
    envelope, body = record.envelope, record.body
    if envelope.type is FILES_WRITTEN or (envelope.writer and body is not None):
        found.add_part(record)
    if envelope.type is FILES_WRITTEN:
        return
    if body is None:
        found.add_unreadable(envelope.checkpoint, record.offset, record.time)
    elif isinstance(body, CheckpointCompleted) and found.digest_of(envelope.checkpoint) is None:
        found.complete(envelope.checkpoint, body, record.offset, record.time)


def _is_after(region: RegionState, record: LogRecord) -> bool:
    """True if an event is one of the region's incarnation, and after its position."""
    life, envelope = region.incarnation, record.envelope
    if life is None or life.id != envelope.incarnation or record.offset < life.from_offset:
        return False
    return not region.covers(envelope.incarnation, envelope.checkpoint)
