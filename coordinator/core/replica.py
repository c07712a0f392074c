"""Replica: the fold of a stream's log. Coordinators, replay, commands and the simulator share it.

`apply` is the only writer of LogState. `refill` reads records again that a state record already includes, and
collects the pending checkpoints of it; it changes nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate.coordinator.core import commands, cuts, decisions, progress, registration
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import Decision, LogState, Savepoint, reaches
from sluicegate.coordinator.core.pending import PendingCheckpoints
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import (
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of one record."""

    ignored: Problem | None = None
    """Reason for which it has no effect; None if it has one."""
    answer: RegistrationAnswered | None = None
    """The answer to a registration or a probe, as of its offset."""
    resolved: Decision | None = None
    """The decision that got its outcome."""
    savepoints: tuple[Savepoint, ...] = ()
    """Savepoints and drains that are reached."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """By region, the live incarnation that an order has ended."""


_APPLIED = Applied()


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
        self._refilling = self.log.state.pending is not None
        self._refilled: dict[str, PendingCheckpoints] = {}

    @property
    def state(self) -> LogState:
        """Return the state as of `applied`."""
        return self.log.state

    def step(self, record: LogRecord) -> Applied:
        """Apply a record, or refill from it if the state includes it. Offsets must rise."""
        if record.offset <= self._recorded:
            # The state has the effect of this record; only the pending checkpoints are not part of it.
            self.refill(record)
            return Applied()
        self.finish_refill()
        return self.apply(record)

    # --- the fold of the log ----------------------------------------------------------------------

    def apply(self, record: LogRecord) -> Applied:
        """Apply one record that the state does not include yet."""
        self.applied = record.offset
        if record.envelope.type is EventType.FILES_WRITTEN:
            # Most events are of this type, and none of them answers, resolves, ends or reaches anything.
            ignored = progress.apply(self.log, record)
            return _APPLIED if ignored is None else Applied(ignored)
        body, answer, resolved = record.body, None, None
        # What a registration ends, its answer says.
        ordered = isinstance(body, StreamCommand | CutReverted)
        lived = self._live() if ordered else {}
        if isinstance(body, RegionRegistered):
            ignored, answer = self._register(record, body)
        elif body is None and record.envelope.type is EventType.REGION_REGISTERED:
            ignored = Problem(code=Code.REGISTRATION_UNREADABLE, region=record.envelope.region)
            answer = RegistrationAnswered(
                registration=record.envelope.id,
                accepted=False,
                problem=ignored,
                decision=self.state.decided,
            )
        elif isinstance(body, CutCommitted | CutReverted):
            made = self.state.pending
            ignored = self._resolve(body)
            resolved = made if ignored is None else None
        else:
            ignored = self._apply(record)
        ended = dict(lived.items() - self._live().items()) if ordered else {}
        return Applied(ignored, answer, resolved, tuple(commands.reached(self.log)), ended)

    def _live(self) -> dict[str, str]:
        """Return the live incarnations by region."""
        regions = self.state.regions.items()
        return {name: each.live_incarnation for name, each in regions if each.live_incarnation is not None}

    def _apply(self, record: LogRecord) -> Problem | None:
        envelope, body, log = record.envelope, record.body, self.log
        match body:
            case CheckpointCompleted() | CheckpointFailed() | RegionHeartbeat() | RegionClosed():
                return progress.apply(log, record)
            case StreamPolicy():
                return self._set_policy(body)
            case StreamCommand():
                return commands.obey(log, record.offset, body)
            case CutDecided() | CutAbandoned():
                return self._decide(record.offset, body)
            case None if envelope.type is EventType.CHECKPOINT_COMPLETED:
                return progress.apply(log, record)
        return Problem(code=Code.UNEXPECTED)

    def _decide(self, offset: int, body: CutDecided | CutAbandoned) -> Problem | None:
        if isinstance(body, CutDecided):
            problem = cuts.problem_of(self.log, body)
            if problem is None:
                decisions.decide(self.log, offset, body)
        else:
            problem = cuts.abandonment_problem(self.log, body)
            if problem is None:
                decisions.abandon(self.log, body)
        return problem

    def _register(
        self, record: LogRecord, body: RegionRegistered
    ) -> tuple[Problem | None, RegistrationAnswered]:
        """Judge a registration; return the reason if it has no effect, and the answer."""
        envelope, state = record.envelope, self.state
        problem = registration.judge(self.log, envelope, body)
        region = state.regions.get(envelope.region)
        lives = region is not None and region.live_incarnation == envelope.incarnation
        if region is not None and lives and region.run == envelope.id:
            # The same event again, and its effect still holds: it is answered, not judged.
            problem = None
        elif problem is None and not body.probe:
            registration.accept(self.log, record.offset, envelope, body)
            state.partition = self.partition if state.partition is None else state.partition
        region = state.regions.get(envelope.region)
        live = region.live_incarnation if region is not None else None
        # A plain restart of a stalled region has its effect; the answer names the stall.
        stall = region.fault if region is not None and live == envelope.incarnation else None
        return problem, RegistrationAnswered(
            registration=envelope.id,
            accepted=problem is None and stall is None,
            problem=problem or stall,
            decided=self.log.position(envelope.region),
            live=live,
            run=region.run if region is not None and live is not None else None,
            source_offsets=region.source_offsets if region is not None else None,
            decision=state.decided,
        )

    def _resolve(self, body: CutCommitted | CutReverted) -> Problem | None:
        problem = decisions.outcome_problem(self.log, body)
        if problem is not None:
            return problem
        if isinstance(body, CutCommitted):
            decisions.commit(self.log, body)
        else:
            decisions.revert(self.log, body)
        return None

    def _set_policy(self, body: StreamPolicy) -> Problem | None:
        held = self.state.policy
        if held is not None and body.number <= held.number:
            return Problem(code=Code.STALE_POLICY, number=body.number, other=held.number)
        self.state.policy = body
        return None

    # --- reading again ----------------------------------------------------------------------------

    def refill(self, record: LogRecord) -> None:
        """Collect a pending checkpoint's event from a record that the state includes."""
        envelope, body = record.envelope, record.body
        found = self._place_of(record)
        if found is None:
            return
        if envelope.type is EventType.FILES_WRITTEN:
            found.add_part(envelope.checkpoint, envelope.id, progress.part_of(record), record.time)
        elif isinstance(body, CheckpointCompleted):
            if found.digest_of(envelope.checkpoint) is None:
                found.complete(envelope.checkpoint, body, record.offset, record.time)
        elif body is None and envelope.type is EventType.CHECKPOINT_COMPLETED:
            found.add_unreadable(envelope.checkpoint, record.offset, record.time)
        found.seal(record.time)

    def _place_of(self, record: LogRecord) -> PendingCheckpoints | None:
        """Return the pending checkpoints of an event; None if the state does not need it any more."""
        envelope = record.envelope
        if envelope.type not in (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED):
            return None
        name, number = envelope.region, envelope.checkpoint
        if self._is_included(record):
            return self._included(name)
        region = self.state.regions.get(name)
        if region is None or region.incarnation is None or region.incarnation.id != envelope.incarnation:
            return None
        if record.offset < region.incarnation.from_offset or region.covers(envelope.incarnation, number):
            return None
        if not region.live and (region.final is None or number > region.final):
            return None
        return self.log.pending[name]

    def _is_included(self, record: LogRecord) -> bool:
        """True if the unresolved decision needs the event."""
        made, envelope = self.state.pending, record.envelope
        if made is None or record.offset > made.offset or envelope.region not in made.moves:
            return False
        before, to = made.before.regions[envelope.region], made.moves[envelope.region]
        return (
            reaches(to, envelope.incarnation, envelope.checkpoint)
            and not before.covers(envelope.incarnation, envelope.checkpoint)
            and before.incarnation is not None
            and record.offset >= before.incarnation.from_offset
        )

    def _included(self, name: str) -> PendingCheckpoints:
        """Return the collection of a region's checkpoints that the unresolved decision includes."""
        if name not in self._refilled and self.state.pending is not None:
            made = self.state.pending
            self._refilled[name] = PendingCheckpoints(
                made.moves[name].incarnation, made.before.regions[name].position
            )
        return self._refilled[name]

    def finish_refill(self) -> None:
        """Close the collection of the unresolved decision's content: everything recorded was read."""
        made = self.state.pending if self._refilling else None
        self._refilling = False
        for name, to in made.moves.items() if made is not None else ():
            found = self._included(name)
            if all(each.position != to for each in found.sealed):
                self.lost_content = True
                continue
            self.log.included[name] = found.split(to)
