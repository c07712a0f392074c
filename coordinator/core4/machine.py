"""The state machine of one stream: log records, time and results in, effects out.

It is synchronous and deterministic. It has three kinds of state, each with one writer: the log's (Replica),
the
table's (TableProgress), and work in hand, which is lost with a crash and is made again. `poll` hands out
everything that should start now, so an effect that a crash lost is simply handed out again.
"""

from typing import Final

from sluicegate.coordinator.core4.candidate import Candidate
from sluicegate.coordinator.core4.committing import Commit, Outcome, head_of, known_head
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
from sluicegate.coordinator.core4.outbox import Outbox
from sluicegate.coordinator.core4.overdue import Overdue
from sluicegate.coordinator.core4.read_barrier import ReadBarrier
from sluicegate.coordinator.core4.replica import Applied, Replica
from sluicegate.coordinator.core4.retry import Retries, RetrySlot
from sluicegate.coordinator.core4.settings import MachineSettings
from sluicegate.coordinator.core4.state_record import Condition, StateRecord, TableProgress, Waiting
from sluicegate.events.problems import Code, Problem
from sluicegate.events.version4 import (
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    EventType,
    LogRecord,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    RegistrationAnswered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.lakes.port import Absent, TableReplaced, TableState, Unproven

NO_DIGEST: Final = ""
"""Asked for in place of a digest while nothing is decided, to see that the next decision is absent."""
_OF_OTHERS: Final = frozenset({Code.TABLE_AHEAD, Code.TABLE_CONTRADICTS})
_HEARTBEATS: Final = 3
"""So many heartbeats of an idle region may be missing."""


class StreamMachine:
    """The coordinator of one stream, during one assignment of its partition."""

    def __init__(
        self, stream: str, partition: int, record: StateRecord | None, settings: MachineSettings
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.settings = settings
        self.replica = Replica(
            stream, partition, record.state if record else None, record.applied if record else -1
        )
        self.table = record.table.model_copy() if record else TableProgress()
        self.low_water = record.low_water if record else 0
        """Nothing before this offset is needed."""
        self.position = self.low_water
        """The next offset to be read."""
        self.heard = dict(record.heard) if record else {}
        self.outbox = Outbox(
            stream,
            list(record.due) if record else [],
            settings.record_interval,
            record.announced if record else None,
        )
        self.refused = dict(record.refused) if record else {}
        self._now = 0
        self._applied_id = record.applied_id if record else None
        self._intervals = dict(record.intervals) if record else {}
        self._heard_at: dict[str, int] = {}
        """By region, when its newest event was read, by the own clock."""
        self._blocked: Problem | None = None
        """Why nothing after some offset may be applied."""
        self._answer_from = 0
        self._unanswered: list[tuple[LogRecord, RegistrationAnswered]] = []
        self._stall: Problem | None = None
        self._stall_seen = False
        """Whether the stall was found after the newest registration was read."""
        self._read_barrier = ReadBarrier()
        self._candidate = Candidate(self.replica.log, settings)
        self._overdue = Overdue(self.replica.log, settings.overdue_after)
        self._inspected: TableState | None = None
        self._ready = False
        self._head_at = 0
        self._recall = False
        """Whether the known head has expired, so that the inspected one takes its place."""
        self._commit: Commit | None = None
        self._outcome: Outcome | None = None
        """The outcome of the unresolved decision, to be appended and read back."""
        self._doubted = 0
        """The decision for which the log was read to its end after an answer about others' commits."""
        self._retries = Retries(settings.stall_after)
        pauses = (settings.first_pause, settings.longest_pause)
        self._of_table, self._of_log, self._of_view, self._of_end = (
            RetrySlot(f"{stream}/{name}", *pauses) for name in ("table", "log", "view", "end")
        )

    @property
    def ready(self) -> bool:
        """Return whether the log was read to the end seen at the assignment, and the table agrees."""
        return self._ready

    # --- input: the log ---------------------------------------------------------------------------

    def step(self, record: LogRecord) -> Applied:
        """Take one record of the log. Offsets must rise."""
        if self._blocked is not None:
            if record.envelope.type is EventType.REGION_REGISTERED and record.offset >= self._answer_from:
                refusal = RegistrationAnswered(
                    registration=record.envelope.id, accepted=False, problem=self._blocked
                )
                self._unanswered.append((record, refusal))
            return Applied(ignored=self._blocked)
        if record.offset < self.low_water:
            return Applied(ignored=Problem(code=Code.SETTLED))
        fresh = record.offset > self.replica.applied
        applied = self.replica.step(record)
        self.position = record.offset + 1
        self._hear(record, applied)
        if applied.ignored is not None and record.envelope.type is EventType.FILES_WRITTEN:
            self._overdue.unused(record.envelope)
        if fresh:
            self._applied_id = record.envelope.id
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

    def _hear(self, record: LogRecord, applied: Applied) -> None:
        """Note that a region's driver is alive."""
        name, body, live = record.envelope.region, record.body, applied.ignored
        if not name or (live is not None and live.code is Code.NOT_LIVE):
            return
        if isinstance(body, RegionHeartbeat):
            if body.silent:
                return
            if body.interval is not None:
                self._intervals[name] = body.interval
            elif body.idle:
                # The last heartbeat of a query that has ended: no other one is expected.
                self._intervals.pop(name, None)
        self.heard[name], self._heard_at[name] = record.time, self._now

    def _react(self, record: LogRecord, applied: Applied) -> None:
        """Do everything that a new record calls for, beside its effect on the log's state."""
        body = record.body
        if applied.answer is not None:
            self._registered(record, applied.answer)
        if applied.resolved is not None:
            self._resolved(applied, body)
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
                # The order may be about the cause of a stall, and who asks for the state sees it.
                self._candidate.recheck()
                self._of_table.pause(self._now, 0)
                self.outbox.note_change()
            case RegionClosed():
                self.outbox.note_change()

    def _registered(self, record: LogRecord, answer: RegistrationAnswered) -> None:
        self._unanswered.append((record, answer))
        self._candidate.excluded.pop(record.envelope.region, None)
        if self._stall is not None and not self._ready:
            # The cause may be gone: check again before the registration is refused for it.
            self._stall_seen = False
            self._of_table.pause(self._now, 0)

    def _resolved(self, applied: Applied, body: object) -> None:
        made = applied.resolved
        if made is None:
            return
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
            self._doubt()
        self._now = now
        if self._overdue.look(now, caught_up=self._has_read_all):
            self._doubt()
        self._settle()
        if self._candidate.align(now, acting=self._may_act):
            self._doubt()
        effects: list[Effect] = []
        if self._of_end.is_free(now) and self._inspected is not None and self._read_barrier.unknown:
            effects.append(self._of_end.start(FetchEnd()))
        if self._of_table.is_free(now) and (table := self._next_table()) is not None:
            effects.append(self._of_table.start(table))
        if self._of_log.is_free(now) and (entry := self._next_log()) is not None:
            effects.append(self._of_log.start(entry))
        if self._of_view.is_free(now) and (view := self.outbox.view()) is not None:
            effects.append(self._of_view.start(view))
        return effects

    def _doubt(self) -> None:
        """Require an end of the log that is fetched from now on."""
        self._read_barrier.doubt(self._of_end.running)

    @property
    def _has_read_all(self) -> bool:
        return self._blocked is None and self._read_barrier.passed(self.position)

    @property
    def _may_act(self) -> bool:
        """Return whether decisions may be made and executed."""
        return self._ready and self._has_read_all

    def _settle(self) -> None:
        """Draw the conclusions of everything that was read and done since the last poll."""
        if self._inspected is not None and not self._ready and self._has_read_all:
            self.replica.finish_refill()
            self._become_ready(self._inspected)
        self._candidate.read_upto(self.position)
        waits = not self._ready and (self._stall is None or not self._stall_seen)
        if self._unanswered and (not waits or self._retries.stalled):
            self._answer()
        stalls = [each.problem for each in self.conditions() if each.kind == "stall"]
        self.outbox.stalls(stalls, self.replica.applied)

    def _become_ready(self, found: TableState) -> None:
        problem = self._readiness_problem(found)
        if problem is not None:
            self._halt(problem)
            return
        state = self.replica.state
        # Decisions are in the log before they are in the table, so this head holds no unknown one. It must be
        # seen to hold the newest known one, since a table that was rolled back lacks it.
        holds_newest = state.pending is None and (found.newest_decision or 0) == state.decided
        if holds_newest and (self._recall or self.table.upto < 0):
            self.table.head, self.table.upto = head_of(found.head), state.decided
            self._recall = False
        self._ready = True
        if self._stall is not None and self._commit is None:
            self._stall = None
        if state.assignment is not None:
            self.outbox.note_change()

    def _readiness_problem(self, found: TableState) -> Problem | None:
        """Return why log, table and state record do not go together."""
        state = self.replica.state
        if state.partition is not None and state.partition != self.partition:
            return Problem(code=Code.OTHER_PARTITION, number=state.partition, other=self.partition)
        if self.replica.lost_content:
            return Problem(code=Code.LOG_DISCONTINUOUS, number=self.low_water)
        if state.table is not None and state.table != found.identity:
            return Problem(code=Code.TABLE_REPLACED, detail=found.identity)
        newest, asked = found.newest_decision, state.pending.id if state.pending else state.decided + 1
        vouched = state.proof is not None and state.proof.decision == asked
        if newest is not None and newest > state.decided and not vouched:
            return Problem(code=Code.TABLE_AHEAD, number=state.decided, other=newest)
        return None

    def _answer(self) -> None:
        halted = None if self._ready else self._stall or self._retries.stall
        for record, verdict in self._unanswered:
            answer = verdict
            if halted is not None:
                answer = verdict.model_copy(update={"accepted": False, "problem": halted})
            region = record.envelope.region
            if not (isinstance(record.body, RegionRegistered) and record.body.probe):
                self.refused.pop(region, None)
                if answer.problem is not None:
                    self.refused[region] = answer.problem
            self.outbox.answer(record.envelope, answer)
        self._unanswered = []

    # --- effects ----------------------------------------------------------------------------------

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
        # A record hides what it includes from the next reader, so it leaves no registration unanswered.
        stalled = self._stall is not None or self._retries.stalled
        writable = (self._ready or stalled) and not self._unanswered
        effect = self.outbox.next(self.record, self._now, writable=writable)
        if effect is not None or not self._may_act or self._candidate.appended_at is not None:
            return effect
        return self._next_entry()

    def _next_entry(self) -> Append | None:
        """Return what the log lacks: an outcome, the policy, news of a silent region, a decision."""
        state = self.replica.state
        if self._outcome is not None:
            reverted = isinstance(self._outcome, CutReverted)
            return Append(EventType.CUT_REVERTED if reverted else EventType.CUT_COMMITTED, self._outcome)
        if (policy := self._next_policy()) is not None:
            return Append(EventType.STREAM_POLICY, policy)
        for name, region in state.regions.items():
            if region.incarnation is not None and region.run and self._is_silent(name):
                body = RegionHeartbeat(idle=False, silent=True, run=region.run or "")
                return Append(EventType.REGION_HEARTBEAT, body, name, region.incarnation.id)
        if state.pending is not None or self._head_due:
            return None
        entry = self._candidate.next_entry(self._now)
        if isinstance(entry, CutDecided):
            head = {"head": self.table.head}
            return Append(EventType.CUT_DECIDED, entry.model_copy(update=head))
        return Append(EventType.CUT_ABANDONED, entry) if entry is not None else None

    def _next_policy(self) -> StreamPolicy | None:
        """Return the policy of the settings, if the log has another one."""
        held = self.replica.state.policy
        wanted = self.settings.policy.model_copy(update={"number": held.number if held else 0})
        if self.table.single_region is not None:
            wanted = wanted.model_copy(update={"single_region": self.table.single_region})
        if held == wanted:
            return None
        return wanted.model_copy(update={"number": held.number + 1 if held else 1})

    def _is_silent(self, name: str) -> bool:
        """Return whether an idle region's driver has missed its heartbeats."""
        interval = self._intervals.get(name)
        if interval is None or not self.replica.log.is_idle(name):
            return False
        heard = self._heard_at.setdefault(name, self._now)
        return self._now - heard > max(self.settings.silence, _HEARTBEATS * interval)

    # --- input: results ---------------------------------------------------------------------------

    def finished(self, effect: Effect, result: Result) -> None:
        """Take the result of an effect that `poll` handed out; results of forgotten ones are ignored."""
        slots = (self._of_table, self._of_log, self._of_view, self._of_end)
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
            # It may be in the log: nothing is decided before the log was read to its end.
            self._doubt()
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
        # What the table shows is in the log only up to an end that is fetched after it.
        self._doubt()

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
        if expired and not self._recall and (known is None or known != self.table.contradicted):
            self._recall = True
            self._inspect_again()
            return
        self._recall = False
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
            if outcome.code in _OF_OTHERS and self._doubted != effect.decision:
                # Another coordinator may have resolved it: read the log to an end fetched after the answer.
                self._doubted = effect.decision
                self._doubt()
                return
            self._stall_commit(outcome)
            return
        if outcome is None and isinstance(effect, Publish):
            # An absence is used at once, before another writer moves the head.
            self._of_table.pause(self._now, self.settings.first_pause * min(commit.retries - 1, 20))
        if outcome is not None:
            self._clear_commit_stall()
            self._outcome, self._doubted = outcome, 0

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
        self._doubt()

    # --- output -----------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """Return everything that keeps the stream, or a region, from progress; the gravest first."""
        found: list[Condition] = []
        state = self.replica.state
        if self._stall is not None:
            retry = max(0, self._of_table.resume_at - self._now)
            found.append(Condition(kind="stall", problem=self._stall, retry_in=retry))
        found += self._retries.conditions()
        if state.paused:
            found.append(Condition(kind="pause", problem=Problem(code=Code.PAUSED)))
        faults = [region.fault for region in state.regions.values() if region.fault is not None]
        problems = [*faults, *self._overdue.problems(), *self._candidate.excluded.values()]
        found += [Condition(kind="stall", problem=each) for each in problems]
        regions = state.assignment.regions if state.assignment else ()
        refused = [each for name, each in self.refused.items() if not regions or name in regions]
        found += [Condition(kind="refusal", problem=each) for each in refused]
        waits = tuple(self.replica.log.lagging())
        if waits and any(self.replica.log.sealed(name) for name in state.regions):
            found.append(Condition(kind="wait", problem=Problem(code=Code.WAITS_FOR_REGIONS, names=waits)))
        return found

    def record(self) -> StateRecord:
        """Return the state record as of now."""
        state = self.replica.state
        return StateRecord(
            stream=self.stream,
            applied=self.replica.applied,
            applied_id=self._applied_id,
            low_water=self.replica.log.low_water(self.position),
            state=state.model_copy(deep=True),
            table=self.table.model_copy(),
            due=list(self.outbox.due),
            conditions=self.conditions(),
            announced=dict(self.outbox.announced),
            refused=dict(self.refused),
            heard={name: at for name, at in self.heard.items() if name in state.regions},
            intervals=dict(self._intervals),
            waiting=self._waiting(),
        )

    def _waiting(self) -> dict[str, Waiting]:
        found: dict[str, Waiting] = {}
        for name, pending in self.replica.log.pending.items():
            parts = [part for each in pending.checkpoints.values() for part in each.parts.values()]
            if parts:
                since = min(each.first_time for each in pending.checkpoints.values())
                files, rows = sum(each.files for each in parts), sum(each.rows for each in parts)
                found[name] = Waiting(files=files, rows=rows, since=since)
        return found
