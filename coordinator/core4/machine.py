"""The state machine of one stream: log records, time and results in, effects out.

It is synchronous and deterministic. It has three kinds of state, each with one writer: the log's (Replica),
the table's (TableProgress), and work in hand. A crash loses the work in hand, and the next reader makes it
again. `poll` hands out every effect that may start now, so an effect that a crash lost is handed out again.
"""

from typing import Final

from sluicegate.coordinator.core4.activity import Activity
from sluicegate.coordinator.core4.answers import Answers
from sluicegate.coordinator.core4.candidate import Candidate
from sluicegate.coordinator.core4.committing import Commit, Outcome
from sluicegate.coordinator.core4.conditions import Conditions
from sluicegate.coordinator.core4.effects import (
    Append,
    Appended,
    Ask,
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
)
from sluicegate.coordinator.core4.heads import head_of, known_head, mismatch
from sluicegate.coordinator.core4.log_state import Decision, LogState
from sluicegate.coordinator.core4.outbox import Outbox
from sluicegate.coordinator.core4.overdue import Overdue
from sluicegate.coordinator.core4.read_barrier import ReadBarrier
from sluicegate.coordinator.core4.recording import Recorder
from sluicegate.coordinator.core4.replica import Applied, Replica
from sluicegate.coordinator.core4.retry import Retries, RetrySlot
from sluicegate.coordinator.core4.settings import MachineSettings
from sluicegate.coordinator.core4.state_record import Condition, StateRecord
from sluicegate.events.problems import Code, Problem
from sluicegate.events.version4 import (
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    EventType,
    LogRecord,
    RegionClosed,
    RegistrationAnswered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.lakes.port import Absent, TableReplaced, TableState, Unproven

NO_DIGEST: Final = ""
"""In place of a digest, in a question about the next decision: it is expected to be absent."""
_OF_OTHERS: Final = frozenset({Code.TABLE_AHEAD, Code.TABLE_CONTRADICTS})
"""Stalls that may come from a record of another coordinator that is still to be read."""


class StreamMachine:
    """The coordinator of one stream, during one assignment of its partition."""

    def __init__(
        self, stream: str, partition: int, record: StateRecord | None, settings: MachineSettings
    ) -> None:
        record = record or StateRecord(stream=stream, applied=-1, low_water=0, state=LogState())
        self.stream = stream
        self.partition = partition
        self.settings = settings
        self.replica = Replica(stream, partition, record.state, record.applied)
        self.table = record.table.model_copy()
        self.low_water = record.low_water
        """The smallest offset that this coordinator reads."""
        self.position = self.low_water
        """The next offset to be read."""
        self.outbox = Outbox(stream, record.due, settings.record_interval, record.announced)
        self._now = 0
        self._blocked: Problem | None = None
        """Reason for which no record from some offset on is applied."""
        self._answer_from = 0
        self._stall: Problem | None = None
        self._stall_seen = False
        """True if the stall was found after the newest registration was read."""
        self._read_barrier = ReadBarrier()
        log = self.replica.log
        self._activity = Activity(log, record, settings.silence)
        self._answers = Answers(self.outbox, record.refused)
        self._candidate = Candidate(log, settings)
        self._overdue = Overdue(log, settings.overdue_after)
        self._retries = Retries(settings.stall_after)
        self._conditions = Conditions(
            log, self._retries, self._overdue, self._candidate.excluded, self._answers.refused
        )
        self._recorder = Recorder(
            self.replica, self.table, self.outbox, self._activity, self._answers.refused, record.applied_id
        )
        self._inspected: TableState | None = None
        self._ready = False
        self._head_at = 0
        """Time of the next question about the table's head."""
        self._head_expired = False
        """True if the inspected head takes the place of the known one, which has expired."""
        self._commit: Commit | None = None
        self._outcome: Outcome | None = None
        """The outcome of the unresolved decision, to be appended and read back."""
        self._read_for = 0
        """The decision for which the log was read to its end, after an answer about others' commits."""
        pauses = (settings.first_pause, settings.longest_pause)
        # Slots are independent: a stuck store delays its own effects alone.
        self._of_end, self._of_table, self._of_log, self._of_view = (
            RetrySlot(f"{stream}/{name}", *pauses) for name in ("end", "table", "log", "view")
        )

    @property
    def ready(self) -> bool:
        """True if the log was read to the end seen at the assignment, and the table agrees."""
        return self._ready

    # --- input: the log ---------------------------------------------------------------------------

    def step(self, record: LogRecord) -> Applied:
        """Apply one record of the log. Offsets must rise."""
        if self._blocked is not None:
            if record.envelope.type is EventType.REGION_REGISTERED and record.offset >= self._answer_from:
                self._answers.refuse(record, self._blocked)
            return Applied(ignored=self._blocked)
        if record.offset < self.low_water:
            return Applied(ignored=Problem(code=Code.SETTLED))
        fresh = record.offset > self.replica.applied
        applied = self.replica.step(record)
        self.position = record.offset + 1
        self._activity.read(record, applied.ignored, self._now)
        if applied.ignored is not None and record.envelope.type is EventType.FILES_WRITTEN:
            self._overdue.unused(record.envelope)
        if fresh:
            # The reactions to earlier records are in the state record.
            self._recorder.applied_id = record.envelope.id
            self._react(record, applied)
        self._candidate.arrived(record.time)
        return applied

    def block(self, problem: Problem, offset: int, *, keep_record: bool = False) -> None:
        """Apply nothing from this offset on; registrations from there on are refused for the problem.

        `keep_record`: a newer release wrote the state record, which stays as it is.
        """
        if keep_record:
            self.outbox.keep_record()
        if self._blocked is None:
            self._blocked, self._answer_from = problem, offset
            self._halt(problem)

    def reached(self, position: int) -> None:
        """Note that everything before `position` in the partition was handed in."""
        if self._blocked is None:
            self.position = max(self.position, position)

    def _react(self, record: LogRecord, applied: Applied) -> None:
        """React to a new record, beside its effect on the log's state."""
        body = record.body
        if applied.answer is not None:
            self._registered(record, applied.answer)
        if applied.resolved is not None:
            self._resolved(applied.resolved, body)
        for savepoint in applied.savepoints:
            self.outbox.saved(savepoint, self.replica.state)
        match body:
            case CutDecided():
                self._candidate.judged(record.offset, self._now, void=applied.ignored is not None)
                self._overdue.decided()
            case CutAbandoned() if applied.ignored is None:
                self._candidate.alignment.abandoned(self._now)
                self.outbox.abandoned(body)
            case StreamPolicy() | StreamCommand():
                if isinstance(body, StreamPolicy):
                    self._candidate.forget_checks()
                # The order may be about the cause of a stall, and its sender reads the state.
                self._candidate.recheck()
                self._of_table.pause(self._now, 0)
                self.outbox.note_change()
            case RegionClosed():
                self.outbox.note_change()

    def _registered(self, record: LogRecord, answer: RegistrationAnswered) -> None:
        self._answers.add(record, answer)
        self._candidate.excluded.pop(record.envelope.region, None)
        if self._stall is not None and not self._ready:
            # The cause may have ended: check again before the registration is refused for it.
            self._stall_seen = False
            self._of_table.pause(self._now, 0)

    def _resolved(self, made: Decision, body: object) -> None:
        self._commit = self._outcome = None
        self._clear_commit_stall()
        self._candidate.resolved(made.parts)
        self._retries.ended("publish", "append")
        if isinstance(body, CutCommitted):
            self.outbox.committed(made, body.snapshot, self.replica.state)
        elif isinstance(body, CutReverted):
            self.outbox.reverted(body)

    # --- input: time ------------------------------------------------------------------------------

    def poll(self, now: int) -> list[Effect]:
        """Hand out the effects that should start now; `now` in milliseconds, never decreasing."""
        if self._ready and now - self._now > self.settings.freeze:
            self._require_end()
        self._now = now
        if self._overdue.look(now, caught_up=self._has_read_all):
            self._require_end()
        self._settle()
        if self._candidate.align(now, acting=self._may_act):
            self._require_end()
        effects: list[Effect] = []
        for slot, find in (
            (self._of_end, self._next_end),
            (self._of_table, self._next_table),
            (self._of_log, self._next_log),
            (self._of_view, self.outbox.view),
        ):
            if slot.is_free(now) and (effect := find()) is not None:
                effects.append(slot.start(effect))
        return effects

    def _require_end(self) -> None:
        """Let nothing happen before the log was read to an end that is fetched from now on."""
        self._read_barrier.require(self._of_end.running)

    @property
    def _has_read_all(self) -> bool:
        return self._blocked is None and self._read_barrier.passed(self.position)

    @property
    def _may_act(self) -> bool:
        """True if decisions may be made and executed."""
        return self._ready and self._has_read_all

    def _settle(self) -> None:
        """Draw the conclusions from all records and results since the last poll."""
        if self._inspected is not None and not self._ready and self._has_read_all:
            self.replica.finish_refill()
            self._become_ready(self._inspected)
        self._candidate.read_upto(self.position)
        if self._ready or (self._stall is not None and self._stall_seen) or self._retries.stalled:
            self._answers.send(None if self._ready else self._stall or self._retries.stall)
        stalls = [each.problem for each in self.conditions() if each.kind == "stall"]
        self.outbox.stalls(stalls, self.replica.applied)

    def _become_ready(self, found: TableState) -> None:
        """Start to act, unless partition, log, table and state record contradict each other."""
        state = self.replica.state
        problem = mismatch(state, found)
        if state.partition is not None and state.partition != self.partition:
            problem = Problem(code=Code.OTHER_PARTITION, number=state.partition, other=self.partition)
        elif self.replica.lost_content:
            problem = Problem(code=Code.LOG_DISCONTINUOUS, number=self.low_water)
        if problem is not None:
            self._halt(problem)
            return
        # Decisions are in the log before they are in the table, so no unknown one precedes this head. The
        # newest known one must precede it: a table that was rolled back lacks it.
        has_newest = state.pending is None and (found.newest_decision or 0) == state.decided
        if has_newest and (self._head_expired or self.table.upto < 0):
            self.table.head, self.table.upto = head_of(found.head), state.decided
            self._head_expired = False
        self._ready = True
        if self._stall is not None and self._commit is None:
            self._stall = None
        if state.assignment is not None:
            self.outbox.note_change()

    # --- effects ----------------------------------------------------------------------------------

    def _next_end(self) -> Effect | None:
        # The table is read first: whatever it shows is in the log, before an end that is fetched afterwards.
        return FetchEnd() if self._inspected is not None and self._read_barrier.unknown else None

    def _next_table(self) -> Effect | None:
        if self._inspected is None:
            return InspectTable()
        if not self._may_act or self._outcome is not None:
            return None
        state = self.replica.state
        if state.pending is not None:
            if self._commit is None or self._commit.decision is not state.pending:
                self._commit = Commit(state.pending, self.table)
            return self._commit.next(state)
        if self._head_due:
            known = known_head(self.table, state)
            return Ask(state.decided + 1, NO_DIGEST, self.table.identity or "", known)
        if self._of_log.running is not None or self.outbox.busy:
            return None
        check = self._candidate.next_check(self._now)
        return check and CheckFiles(
            check.parts, check.allowed_locations, self.table.identity or "", check.names_checked
        )

    @property
    def _head_due(self) -> bool:
        return self._now >= self._head_at or self.table.upto != self.replica.state.decided

    def _next_log(self) -> Effect | None:
        stalled = self._stall is not None or self._retries.stalled
        writable = (self._ready or stalled) and not self._answers.waiting
        effect = self.outbox.next(self.record, self._now, writable=writable)
        if effect is not None or not self._may_act or self._candidate.appended_at is not None:
            return effect
        return self._next_entry()

    def _next_entry(self) -> Append | None:
        """Return the next event of this coordinator: an outcome, the policy, a silent region, a decision."""
        state = self.replica.state
        if self._outcome is not None:
            reverted = isinstance(self._outcome, CutReverted)
            return Append(EventType.CUT_REVERTED if reverted else EventType.CUT_COMMITTED, self._outcome)
        if (policy := self._next_policy()) is not None:
            return Append(EventType.STREAM_POLICY, policy)
        for name, incarnation, body in self._activity.silent(self._now):
            return Append(EventType.REGION_HEARTBEAT, body, name, incarnation)
        if state.pending is not None or self._head_due:
            return None
        entry = self._candidate.next_entry(self._now)
        if isinstance(entry, CutDecided):
            head = {"head": self.table.head}
            return Append(EventType.CUT_DECIDED, entry.model_copy(update=head))
        return Append(EventType.CUT_ABANDONED, entry) if entry is not None else None

    def _next_policy(self) -> StreamPolicy | None:
        """Return the policy of the settings, if the log has another one."""
        logged = self.replica.state.policy
        number = logged.number if logged is not None else 0
        changes: dict[str, object] = {"number": number}
        if self.table.single_region is not None:
            changes["single_region"] = self.table.single_region
        wanted = self.settings.policy.model_copy(update=changes)
        return None if wanted == logged else wanted.model_copy(update={"number": number + 1})

    # --- input: results ---------------------------------------------------------------------------

    def finished(self, effect: Effect, result: Result) -> None:
        """Apply the result of an effect that `poll` handed out; results of forgotten ones have no effect."""
        slots = (self._of_end, self._of_table, self._of_log, self._of_view)
        slot = next((each for each in slots if each.running is effect), None)
        if slot is None:
            return
        if isinstance(result, Retried):
            self._retries.failed(effect, self._now, result.reason)
        else:
            self._retries.succeeded(effect)
        if isinstance(result, Failed):
            self._failed(effect, slot)
            return
        slot.succeeded()
        match effect, result:
            case FetchEnd(), EndOffset(offset):
                self._read_barrier.fetched(effect, offset)
            case InspectTable(), TableState() | TableUnfit():
                self._inspect(result)
            case CheckFiles(), FilesChecked(problems):
                self._candidate.checked(effect, problems, self._now)
            case CheckFiles(), TableReplaced(identity):
                self._halt(Problem(code=Code.TABLE_REPLACED, detail=identity))
            case Append(), Appended(offset):
                self._candidate.appended_at = offset
            case Ask(digest=digest), _ if digest == NO_DIGEST:
                self._head_asked(result)
            case ((Ask() | Publish()), _):
                self._commit_step(effect, result)
            case _:
                self.outbox.done(effect, self._now)

    def _failed(self, effect: Effect, slot: RetrySlot) -> None:
        if isinstance(effect, ReleaseOffsets):
            slot.succeeded()
            self.outbox.not_released(self._now, self.settings.longest_pause)
            return
        if isinstance(effect, Append):
            # The event may be in the log: read to its end before anything else is decided.
            self._require_end()
        slot.failed(self._now)

    def _inspect(self, result: TableState | TableUnfit) -> None:
        if isinstance(result, TableUnfit):
            self._halt(Problem(code=Code.TABLE_UNFIT, detail=result.reason))
            return
        if self.table.identity is None:
            self.table.identity = result.identity
        elif self.table.identity != result.identity:
            self._halt(Problem(code=Code.TABLE_REPLACED, detail=result.identity))
            return
        self.table.single_region = "fixed-buckets" if result.joined else None
        self._inspected = result
        # The log explains this state only up to an end that is fetched after it.
        self._require_end()

    def _head_asked(self, answer: Result) -> None:
        """Apply the answer about the next decision, while nothing is decided."""
        state = self.replica.state
        self._head_at = self._now + self.settings.head_interval
        match answer:
            case Absent(head):
                self.table.contradicted = None
                self._clear_commit_stall()
                if self.table.upto != state.decided or self.table.head != head_of(head):
                    self.table.head, self.table.upto = head_of(head), state.decided
                    self.outbox.note_change()
            case Unproven(reason, expired):
                self._unproven(reason, expired=expired)
            case TableReplaced(identity):
                self._halt(Problem(code=Code.TABLE_REPLACED, detail=identity))
            case _:
                # Another coordinator's decision that is still to be read.
                self._inspect_again()

    def _unproven(self, reason: str, *, expired: bool) -> None:
        """Use an inspected head if the known one has expired; a table that was rolled back stays a stall."""
        known = known_head(self.table, self.replica.state)
        if not expired:
            self.table.contradicted = known
        if expired and not self._head_expired and (known is None or known != self.table.contradicted):
            self._head_expired = True
            self._inspect_again()
            return
        self._head_expired = False
        number = self.replica.state.decided
        code = Code.ABSENCE_UNPROVEN if self.table.contradicted is None else Code.TABLE_CONTRADICTS
        self._stall_commit(Problem(code=code, number=number, detail=reason))

    def _commit_step(self, effect: Ask | Publish, result: Result) -> None:
        commit = self._commit
        if commit is None or commit.decision.id != effect.decision:
            return
        outcome = commit.take(effect, result)
        if isinstance(outcome, Problem):
            self._commit = None
            if outcome.code in _OF_OTHERS and self._read_for != effect.decision:
                # Another coordinator may have resolved it: read the log to an end fetched after the answer.
                self._read_for = effect.decision
                self._require_end()
                return
            self._stall_commit(outcome)
            return
        if outcome is None and isinstance(effect, Publish):
            # An absence is used at once, before another writer moves the head.
            self._of_table.pause(self._now, self.settings.first_pause * min(commit.retries - 1, 20))
        if outcome is not None:
            self._clear_commit_stall()
            self._outcome, self._read_for = outcome, 0

    # --- stalls -----------------------------------------------------------------------------------

    def _halt(self, problem: Problem) -> None:
        """Stall the stream, and check later whether the cause is gone."""
        self._stall, self._stall_seen = problem, True
        self._inspect_again()
        self._of_table.pause(self._now, self.settings.stall_pause)

    def _stall_commit(self, problem: Problem) -> None:
        """Stall commits only: registrations are still answered."""
        self._stall = problem
        self._of_table.pause(self._now, self.settings.stall_pause)

    def _clear_commit_stall(self) -> None:
        if self._ready:
            self._stall = None

    def _inspect_again(self) -> None:
        """Read the table and the log's end as at the start."""
        self._inspected, self._ready = None, False
        self._require_end()

    # --- output -----------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """Return everything that keeps the stream, or a region, from progress; the gravest first."""
        return self._conditions.all(self._stall, max(0, self._of_table.resume_at - self._now))

    def record(self) -> StateRecord:
        """Return the state record as of now."""
        return self._recorder.record(self.position, self.conditions())
