"""The state machine of one stream: log records, time and outcomes in, effects out.

It is synchronous and deterministic. `poll` looks at the state and hands out what should be done next,
so that an effect lost with a crash is simply handed out again.
"""

from dataclasses import replace
from typing import Final

from sluicegate.coordinator.core import owing
from sluicegate.coordinator.core.aging import Aging
from sluicegate.coordinator.core.answers import Answers
from sluicegate.coordinator.core.book import UNOPENED, Book
from sluicegate.coordinator.core.commit import ANEW, Commit, Resolved, Stall, Voided, mending, replaced
from sluicegate.coordinator.core.effects import (
    Append,
    AppendAbandoned,
    AppendDecision,
    Appended,
    AppendPolicy,
    AppendVoided,
    Ask,
    Carry,
    CheckFiles,
    Effect,
    EndOffset,
    Failed,
    FetchEnd,
    FilesChecked,
    InspectTable,
    Publish,
    ReleaseOffsets,
    Result,
    Retried,
    TableUnfit,
    WriteView,
)
from sluicegate.coordinator.core.fence import Fence
from sluicegate.coordinator.core.gauges import waited_for, waiting
from sluicegate.coordinator.core.ignoring import BELOW, STALLED
from sluicegate.coordinator.core.intake import HIGHEST_POLICY, enter
from sluicegate.coordinator.core.lane import Lane
from sluicegate.coordinator.core.openings import start_of
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.overdue import Overdue
from sluicegate.coordinator.core.proposal import Proposal
from sluicegate.coordinator.core.retries import Retries, Retry
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.standing import Standing, reason_of
from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CutAbandoned,
    CutDecided,
    CutVoided,
    LineageCarried,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.lakes.port import Absent, TableReplaced, TableState, Unproven

WAITING_RECORD: Final = 60_000
"""How old a state record gets, in milliseconds, while something sealed waits for regions that owe."""
PROBE: Final = ""
"""Asked for in place of a digest when there is no decision yet, only to see that the next one is absent."""


class StreamMachine:
    """The coordinator's core for one stream, during one assignment of its partition."""

    def __init__(
        self, stream: str, partition: int, record: StateRecord | None, settings: MachineSettings
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.settings = settings
        self._now = 0
        state = record.state.model_copy(deep=True) if record else LightState()
        self.book = Book(stream, state, record.applied if record else -1)
        self._applied_id = record.applied_id if record else None
        self.low_water = record.low_water if record else 0
        """Nothing before this offset is needed."""
        self.position = self.low_water
        """The next offset to be read."""
        self.outbox = Outbox(stream, list(record.due) if record else [], settings.record_interval)
        self.stall: Stall | None = None
        self._unreadable: str | None = None
        self._answer_from = 0
        self._fence = Fence()
        self._proposal = Proposal(self.book, settings.alignment_timeout, settings.stall_pause)
        self._standing = Standing(stream)
        self._ready = False
        self._aging = Aging(self.book, settings.carry_after)
        self._overdue = Overdue(self.book, settings.overdue_after, record.misplaced if record else {})
        self._answers = Answers(dict(record.refused) if record else {})
        self.heard = dict(record.heard) if record else {}
        """By region, the append time of the last event that its job sent."""
        self._heartbeats = dict(record.heartbeats) if record else {}
        """By region, the milliseconds between two of its heartbeats."""
        self._commit: Commit | None = None
        self._voided: Voided | None = None
        """The oldest decision's void is in the table; its event is still to be logged and read."""
        self._retries = Retries(settings.stall_after)
        pauses = (settings.first_pause, settings.longest_pause)
        self._table, self._log, self._view, self._end = (
            Lane(f"{stream}/{name}", *pauses) for name in ("table", "log", "view", "end")
        )
        self._stall_seen = False
        """Whether the stall was found after the last opening was read."""

    # --- inputs -----------------------------------------------------------------------------------

    def arrived(self, offset: int, time: int, envelope: Envelope, body: Body | None) -> str | None:
        """Take a log record; `time` is its append time. Returns why it has no effect, if it has none.

        The body of a `files.written` is not needed. Offsets must not decrease.
        """
        if self._unreadable is not None:
            if envelope.type is EventType.REGION_OPENED and offset >= self._answer_from:
                self._answers.note(envelope, self._unreadable)
            return STALLED
        if offset < self.low_water:
            return BELOW
        ignored = enter(self.book, offset, time, envelope, body)
        if ignored is not None and envelope.type is EventType.FILES_WRITTEN:
            self._overdue.unused(envelope)
        if envelope.region and envelope.origin is None and ignored != UNOPENED:
            self.heard[envelope.region] = time
            if isinstance(body, RegionHeartbeat):
                self._note_interval(envelope.region, body)
        if offset > self.book.applied:
            self.book.applied = offset
            self._applied_id = envelope.id
            if body is not None:
                self._react(time, envelope, body, ignored)
            if isinstance(body, CutDecided):
                self._overdue.decided()
                self._proposal.judged(offset, self._now, void=ignored is not None)
        self.position = offset + 1
        self._proposal.arrived(time)
        return ignored

    def _note_interval(self, region: str, said: RegionHeartbeat) -> None:
        """Keep the time to the next heartbeat; the last one of a query that has ended names none."""
        if said.interval is not None:
            self._heartbeats[region] = said.interval
        elif said.idle:
            self._heartbeats.pop(region, None)

    def garbled(self, offset: int, time: int, envelope: Envelope, problem: str) -> None:
        """Take a record whose body cannot be read, other than a `files.written`: who waits for it is told."""
        if offset < self.low_water or self._unreadable is not None:
            return
        if envelope.type is EventType.CHECKPOINT_COMPLETED:
            self.book.garbled(offset, time, envelope, problem)
        elif envelope.type is EventType.REGION_OPENED and offset > self.book.applied:
            self._answers.note(envelope, problem)
        if offset > self.book.applied:
            self.book.applied = offset
            self._applied_id = envelope.id
        self.position = offset + 1

    def unreadable(self, offset: int, reason: str) -> None:
        """What stands at this offset cannot be taken in, so nothing behind it may be: the stream stalls.

        A record that only a newer release reads.
        """
        if self._unreadable is None and offset > self.book.applied:
            self._unreadable = reason
            self._answer_from = offset
            self._halt(Stall(reason))

    def lost(self, reason: str, end: int, *, keep_record: bool = False) -> None:
        """Stall from the start: what stands in the log does not continue the record.

        Openings from `end` on are refused for it. A record of a newer release is kept as it is.
        """
        if keep_record:
            self.outbox.keep_record()
        if self._unreadable is None:
            self._unreadable = reason
            self._answer_from = end
            self._halt(Stall(reason))

    def reached(self, position: int) -> None:
        """Everything before `position` in the partition has been handed in."""
        if self._unreadable is None:
            self.position = max(self.position, position)

    def poll(self, now: int) -> list[Effect]:
        """Hand out what should be started now; `now` in milliseconds, never decreasing."""
        if self._ready and now - self._now > self.settings.freeze:
            self._fence.doubt(self._end.running)
        self._now = now
        if self._overdue.look(now, caught_up=self._has_read_all()):
            self._fence.doubt(self._end.running)
        self._settle()
        if self._proposal.align(now, acting=self._may_act()):
            self._fence.doubt(self._end.running)
        if self._aging.look(now, self._proposal.clock.time(now), self.position - 1):
            self._retries.ended("carry")
        wanted = self._standing.inspected or self._aging.due
        effects: list[Effect] = []
        if self._end.free(now) and wanted and self._fence.unknown:
            effects.append(self._end.start(FetchEnd()))
        if self._table.free(now) and (table := self._next_table()) is not None:
            effects.append(self._table.start(table))
        if self._log.free(now) and (entry := self._next_log()) is not None:
            effects.append(self._log.start(entry))
        if self._rests(now):
            # What failed before is not wanted any more.
            self._retries.ended("check", "append")
        if self._retries.take_change():
            self.outbox.show(self.record, self._retries.for_record(), self.stall_reason)
        if self._view.free(now) and (view := self.outbox.view()) is not None:
            effects.append(self._view.start(view))
        return effects

    def finished(self, effect: Effect, result: Result) -> None:
        """Take the outcome of an effect that `poll` handed out; outcomes of forgotten ones are ignored."""
        lane = self._lane_of(effect)
        if lane is None:
            return
        if not isinstance(effect, WriteView):
            # The view has no part in what is decided, nor in when (I10).
            self._proposal.reconsider()
        if isinstance(result, Failed):
            self._failed(effect, lane, result.reason)
            return
        lane.succeeded()
        self._took_effect(effect, result)
        match effect, result:
            case FetchEnd(), EndOffset(offset):
                self._fence.fetched(effect, offset)
            case InspectTable(), TableState() | TableUnfit():
                self._inspect(result)
            case CheckFiles(), FilesChecked(problems):
                self._proposal.checked(effect, problems, self._now)
            case CheckFiles(), TableReplaced(identity):
                self._halt(replaced(self.stream, identity))
            case (
                (AppendPolicy() | AppendDecision() | AppendAbandoned() | AppendVoided() | Carry()),
                Appended(offset),
            ):
                decided = isinstance(effect, AppendDecision | AppendAbandoned)
                self._proposal.logged(offset, candidate=decided)
            case Ask(digest=digest), _ if digest == PROBE:
                self._probed(result)
            case ((Ask() | Publish()), _):
                self._commit_step(effect, result)
            case _:
                self.outbox.done(effect, self._now)

    def _failed(self, effect: Effect, lane: Lane, reason: str) -> None:
        """Have an effect tried again that was not seen to succeed."""
        self._retries.failed(effect, self._now, reason)
        match effect:
            case ReleaseOffsets():
                lane.succeeded()
                self.outbox.not_released(self._now, self.settings.longest_pause)
                return
            case CheckFiles():
                # When it can be checked again, more may be possible.
                self._proposal.drop()
            case Carry():
                self._aging.look_again()
            case _ if isinstance(effect, Append):
                # It may stand in the log: nothing is decided before the log has been read to its end.
                self._fence.doubt(self._end.running)
                self._proposal.drop()
        lane.failed(self._now)

    def _took_effect(self, effect: Effect, result: Result) -> None:
        """Take note that an effect fails no more, or that a publication has to be asked about."""
        if isinstance(result, Retried):
            self._retries.failed(effect, self._now, result.reason)
        else:
            self._retries.succeeded(effect)

    def record(self) -> StateRecord:
        """The state record as of now."""
        return StateRecord(
            stream=self.stream,
            applied=self.book.applied,
            applied_id=self._applied_id,
            low_water=self.book.low_water(self.position),
            state=self.book.state.model_copy(deep=True),
            due=list(self.outbox.due),
            stalled=self.stall_reason,
            joined=owing.joined(self.book),
            waits=waited_for(self.book),
            refused=dict(self._answers.refused),
            misplaced=self._overdue.known,
            heard={name: at for name, at in self.heard.items() if name in self.book.state.regions},
            heartbeats={name: each for name, each in self._heartbeats.items() if name in self.heard},
            waiting=waiting(self.book),
            retries=self._retries.for_record(),
        )

    @property
    def ready(self) -> bool:
        """Whether the log has been read to the end that was seen at the assignment, and the table agrees."""
        return self._ready

    @property
    def stall_reason(self) -> str | None:
        """Why the stream, or a region of it, does not go on; None if nothing is wrong. A pause is nothing."""
        if self.stall is not None:
            return self.stall.reason
        if self._retries.stall is not None:
            return self._retries.stall
        if self.book.state.blocked is not None and not self.book.state.paused:
            return self.book.state.blocked
        faults = [reason for name in self.book.state.regions if (reason := self._waits(name))]
        return next(iter([*faults, *self._proposal.barred.values()]), None)

    @property
    def paused(self) -> str | None:
        """Who has paused the stream, and how it goes on; None if nobody has."""
        return self.book.state.blocked if self.book.state.paused else None

    @property
    def retries(self) -> tuple[Retry, ...]:
        """The effects that failed and are tried again, the oldest first."""
        return self._retries.open

    # --- log records ------------------------------------------------------------------------------

    def _react(self, time: int, envelope: Envelope, body: Body, ignored: str | None) -> None:
        """Do what a new record calls for, beside what it made of the book."""
        match body:
            case RegionOpened():
                self._opened(envelope, body, ignored)
            case StreamPolicy():
                self._retries.ended("append")
                self._proposal.recheck()
            case CheckpointCompleted() if ignored is None:
                # What was refused was another query's, or is mended.
                self._answers.forget(envelope.region)
            case RegionClosed():
                self.outbox.note_change()
            case LineageCarried():
                self._retries.ended("carry")
                self.outbox.note_change()
                if ignored is None:
                    self._aging.carried(envelope.region, envelope.lineage)
                else:
                    self._aging.look_again()
            case StreamCommand():
                # The order may be about what the table stalls for; and who asks for the state sees it.
                self._table.pause(self._now, 0)
                self.outbox.note_change()
                if body.command in ("remove", "accept") and body.region is not None:
                    self._answers.forget(body.region)
            case CutDecided() | CutAbandoned() | CutVoided() if ignored is None:
                self._retries.ended("append")
                self._proposal.drop()
                if isinstance(body, CutAbandoned):
                    self._proposal.alignment.abandoned(time)
                    self.outbox.abandoned(body)
                if isinstance(body, CutVoided):
                    self._void(body)

    def _void(self, body: CutVoided) -> None:
        if self._voided is not None:
            self.book.state.snapshot = self._voided.snapshot.id
        self._resume()
        self.outbox.voided(body)

    def _opened(self, envelope: Envelope, body: RegionOpened, problem: str | None) -> None:
        if problem is None:
            self._proposal.recheck(envelope.region)
            if self.book.state.partition is None:
                self.book.state.partition = self.partition
        start = start_of(self.book, envelope) if problem is None else None
        self._answers.note(envelope, problem, body.table, start)
        if self.stall is not None and not self._ready:
            # The cause may be gone: look again before the opening is refused for it.
            self._stall_seen = False
            self._table.pause(self._now, 0)

    # --- what comes next --------------------------------------------------------------------------

    def _settle(self) -> None:
        """Draw the conclusions of what has been read and done since the last poll."""
        caught_up = self._fence.passed(self.position)
        if self._standing.inspected and caught_up:
            self._standing.read_to_end(self.book.state)
        if self._standing.inspected and caught_up and not self._ready and self._unreadable is None:
            self._become_ready()
        self._proposal.read(self.position)
        if self._answers.due and (self._ready or (self.stall is not None and self._stall_seen)):
            halted = self.stall.reason if self.stall is not None and not self._ready else None
            self._answers.give(self.book, self.outbox, self.settings.policy.allowed_locations, halted)
        for name in self.book.state.regions:
            self.outbox.stalled(name, self._waits(name) or self._proposal.barred.get(name), self.book.applied)
        reason = self.stall.reason if self.stall else self._retries.stall or self.book.state.blocked
        self.outbox.stalled(None, reason, self.book.applied)
        for order in self.book.taken:
            self.outbox.saved(order, self.book.state)
        self.book.taken.clear()

    def _waits(self, region: str) -> str | None:
        """Why a region cannot go on before somebody does something; None if it can."""
        return self.book.waits(region) or self._overdue.reason(region)

    def _become_ready(self) -> None:
        known = self.book.state.partition
        if known is not None and known != self.partition:
            self._halt(
                Stall(
                    f"the stream's events stand in partition {known}, but it is now assigned to partition "
                    f"{self.partition}: the events topic has grown, and Kafka does not shrink one. The way "
                    f"out: {ANEW}"
                )
            )
            return
        problem = self._standing.problem(self.book.state)
        if problem is not None:
            self._halt(Stall(problem))
            return
        self._ready = True
        if self.stall is not None and not self.stall.committing:
            self.stall = None
        if self.book.state.assignment is not None:
            self.outbox.note_change()

    def _next_table(self) -> Effect | None:
        if not self._standing.inspected:
            return InspectTable()
        if not self._may_act():
            return None
        state = self.book.state
        if self._voided is not None:
            return None
        if state.pending:
            if self._commit is None or self._commit.decision is not state.pending[0]:
                self._commit = Commit(state.pending[0], self.stream)
            return self._commit.next(state, self._standing.proves(state))
        if self._probe_due:
            return Ask(state.decided + 1, PROBE, state.table or "", self._standing.proves(state))
        if self._log.running is not None or self.outbox.busy:
            return None
        return self._proposal.next_check(self._now)

    @property
    def _probe_due(self) -> bool:
        return self._now >= self._standing.probe_at

    def _next_log(self) -> Effect | None:
        # A record hides what it has applied from the next reader, so no opening in it may be unanswered.
        stalled = self.stall is not None or self._retries.stall is not None
        writable = (self._ready or stalled) and not self._answers.due
        owed = not self.book.state.pending and self.book.waits_for_others()
        most = min(self.settings.record_interval, WAITING_RECORD) if owed else None
        effect = self.outbox.next(self.record, self._now, writable=writable, interval=most)
        if effect is not None or not self._has_read_all() or self._proposal.logged_at is not None:
            return effect
        entry = self._next_entry() if self._may_act() else None
        if entry is None and self._aging.due and not self._is_deciding():
            return self._aging.take(self._proposal.clock.time(self._now), self.position - 1)
        return entry

    def _next_entry(self) -> Effect | None:
        """What the log lacks: a void that is in the table, the policy, a decision."""
        if self._voided is not None:
            return self._next_void()
        wanted = self.settings.policy.model_copy(update={"joined": self._standing.joined or ""})
        held = self.book.state.policy
        higher = held.number + 1 if held else 1
        if higher <= HIGHEST_POLICY and (
            held is None or wanted.model_copy(update={"number": held.number}) != held
        ):
            return AppendPolicy(wanted.model_copy(update={"number": higher}))
        return None if self._probe_due else self._proposal.next_entry(self._now)

    def _next_void(self) -> AppendVoided | None:
        """The void that is in the table goes to the log, once the order for it has been read."""
        pending = self.book.state.pending
        if not pending or pending[0].void is None:
            return None
        region, checkpoint = pending[0].void
        return AppendVoided(CutVoided(decision=pending[0].id, region=region, checkpoint=checkpoint))

    def _is_deciding(self) -> bool:
        """Whether a cut may be on its way, which is better than carrying what it has."""
        idle = self.book.state.pending or not self._may_act() or not self._table.free(self._now)
        return not idle and self._proposal.has_work

    def _has_read_all(self) -> bool:
        """Whether the log is read to its known end."""
        return self._unreadable is None and self._fence.passed(self.position)

    def _rests(self, now: int) -> bool:
        """Whether the table and the log could have been used, and nothing was wanted of them."""
        return self._may_act() and self._table.free(now) and self._log.free(now) and not self.outbox.busy

    def _may_act(self) -> bool:
        """Whether decisions may be made and executed: the log is read to its known end, nothing stalls."""
        return self._ready and self._has_read_all()

    # --- outcomes ---------------------------------------------------------------------------------

    def _inspect(self, result: TableState | TableUnfit) -> None:
        if isinstance(result, TableUnfit):
            self._halt(Stall(result.reason))
            return
        stall = self._standing.inspect(self.book.state, result)
        if stall is not None:
            self._halt(stall)
            return
        # What the table shows is in the log only up to an end that is fetched after it.
        self._fence.doubt(self._end.running)

    def _probed(self, answer: Result) -> None:
        """Move the recorded snapshot on while nothing is decided, before the table's history forgets it."""
        state = self.book.state
        match answer:
            case Absent(head):
                self._standing.probe_at = self._now + self.settings.probe_interval
                if self.stall is not None and self.stall.committing:
                    self.stall = None
                if head != state.recorded or state.contradicted is not None:
                    state.recorded, state.contradicted = head, None
                    self.outbox.note_change()
            case Unproven():
                if self._recall(answer.expired):
                    return
                said = f"it cannot be proven what is in the table: {reason_of(state, answer)}"
                self.stall = Stall(f"{said}. {mending(self.stream)}", committing=True)
                self._table.pause(self._now, self.settings.stall_pause)
            case TableReplaced(identity):
                self._halt(replaced(self.stream, identity))
            case _:
                # Another coordinator's decision that is still to be read.
                self._standing.probe_at = self._now + self.settings.probe_interval
                self._inspect_again()

    def _inspect_again(self) -> None:
        """See the table and the log as at the start: whether they go together is told there."""
        self._standing.inspected = False
        self._ready = False
        self._fence.doubt(self._end.running)

    def _recall(self, expired: bool) -> bool:
        """Find another snapshot to prove an absence from; False: there is none."""
        found = self._standing.recall(self.book.state, expired=expired)
        if found == "inspect":
            self._fence.doubt(self._end.running)
        return found != "lost"

    def _commit_step(self, effect: Ask | Publish, result: Result) -> None:
        if self._commit is None:
            return
        state = self.book.state
        if isinstance(result, Unproven):
            if self._recall(result.expired):
                return
            result = replace(result, reason=reason_of(state, result))
        outcome = self._commit.take(effect, result, state)
        if isinstance(outcome, Stall):
            self.stall = outcome
            self._commit = None
            self._table.pause(self._now, self.settings.stall_pause)
            return
        if self._commit.retries:
            self._table.pause(self._now, self.settings.first_pause * min(self._commit.retries - 1, 20))
        if isinstance(outcome, Voided):
            self._voided = outcome
        if isinstance(outcome, Resolved):
            decision = state.pending.pop(0)
            if not state.pending:
                self.book.forget_included()
            state.committed = max(state.committed, decision.id)
            state.snapshot = outcome.snapshot.id if outcome.snapshot else None
            self._proposal.committed(decision)
            self._resume()
            self.outbox.committed(decision, outcome.snapshot)
            for order in decision.savepoint.orders if decision.savepoint else ():
                self.outbox.saved(order, state, decision)

    def _resume(self) -> None:
        """The commit that was under way is over."""
        if self.stall is not None and self.stall.committing:
            self.stall = None
        self._retries.ended("publish")
        self._commit = self._voided = None

    def _halt(self, stall: Stall) -> None:
        """Stall the stream, and look again later whether the cause is gone."""
        self.stall = stall
        self._stall_seen = True
        self._inspect_again()
        self._table.pause(self._now, self.settings.stall_pause)

    def _lane_of(self, effect: Effect) -> Lane | None:
        for lane in (self._table, self._log, self._view, self._end):
            if lane.running is effect:
                return lane
        return None
