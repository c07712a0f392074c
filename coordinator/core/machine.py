"""The state machine of one stream: log records, time and results in, effects out.

It is synchronous and deterministic. It has three kinds of state, each with one writer: the log's (Replica),
the table's (TableProgress), and work in hand. A crash loses the work in hand, and the next reader makes it
again. `poll` hands out every effect that may start now, so an effect that a crash lost is handed out again.
"""

from collections.abc import Sequence
from typing import Final

from sluicegate.coordinator.core import effects
from sluicegate.coordinator.core.activity import Activity
from sluicegate.coordinator.core.commit import OF_OTHERS, Committing
from sluicegate.coordinator.core.conditions import Conditions
from sluicegate.coordinator.core.effects import Effect, MachineSettings, Result, Retries, RetrySlot
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.proposal import Candidate
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.core.table import asked_decision
from sluicegate.events.envelope import CHECKPOINT_COMPLETED, FILES_WRITTEN, EventType, LogRecord
from sluicegate.events.models import StreamCommand, StreamPolicy
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import Absent, Ahead, TableReplaced, TableState, Unproven

_OF_WORK: Final = (FILES_WRITTEN, CHECKPOINT_COMPLETED)
"""Most events. Nothing reacts to one, except if it reaches a savepoint."""
_EXCLUSIONS: Final = (Code.FILES_EXCLUDED, Code.TABLE_UNUSABLE)
"""Stalls of regions by which a coordinator left them out of a cut."""
_BELOW: Final = Applied(ignored=Problem(code=Code.SETTLED))
"""The effect of a record before the low-water mark."""


class StreamMachine:
    """The coordinator of one stream, during one assignment of its partition."""

    ready = False
    """True if the log was read to the end seen at the assignment, and the table agrees."""
    _now = 0
    _blocked: Problem | None = None
    """Reason for which no record from some offset on is applied."""
    _answer_from = 0
    """Registrations from this offset on are refused while records are blocked."""
    _required_end: int | None = None
    """End of the log that must be read before anything is decided; None: it is still to be fetched."""
    _early_fetch: Effect | None = None
    """A fetch that began before an end was last required: its end does not count."""
    _stall: Problem | None = None
    """Stall of the whole stream (not `ready`), or of its commits alone (`ready`)."""
    _stall_seen = False
    """True if the stall was found after the newest registration was read."""
    _inspected: TableState | None = None
    warnings: Sequence[Condition] = ()
    """Conditions that the caller has found; nothing waits for their end."""
    _head_at = 0
    """Time of the next question about the table's head."""
    _names_at = 0
    """Time at which the catalog is read again, if the log lacks a further table of the settings."""
    _head_expired = False
    """True if the known head has expired: the inspected one takes its place if that is proven."""
    _patience = 0
    """Milliseconds between two polls that count as a standstill."""
    _read_for = 0
    """The decision for which the log was read to its end, after an answer about others' commits."""

    def __init__(
        self, stream: str, partition: int, record: StateRecord | None, settings: MachineSettings
    ) -> None:
        record = record or StateRecord(stream=stream, applied=-1, low_water=0, state=LogState())
        self.settings, self._patience = settings, settings.freeze
        self.replica = Replica(stream, partition, record.state, record.applied)
        self.table = record.table.model_copy()
        self.low_water = record.low_water
        """The smallest offset that this coordinator reads."""
        self.position = self.low_water
        """The next offset to be read."""
        log = self.replica.log
        self.activity = Activity(log, record, settings.silence)
        self.outbox = Outbox(record, log, self.table, self.activity, settings.record_interval)
        excluded = {name: each for name, each in record.announced.items() if each.code in _EXCLUSIONS}
        self._candidate = Candidate(log, settings, excluded)
        self._committing = Committing(self.table)
        self._retries = Retries(settings.stall_after)
        shown = self._candidate.excluded, self.outbox.refused, self.activity.strays
        self._conditions = Conditions(log, self._retries, *shown, settings)
        pauses = (settings.first_pause, settings.longest_pause)
        # Slots are independent: a stuck store delays its own effects alone.
        names = ("end", "table", "log", "view", "offsets")
        self._slots = [RetrySlot(f"{stream}/{name}", *pauses) for name in names]
        self._of_end, self._of_table, self._of_log, self._of_view, self._of_offsets = self._slots

    # --- input: the log ---------------------------------------------------------------------------

    def step(self, record: LogRecord) -> Applied:
        """Apply one record of the log. Offsets must rise."""
        if self._blocked is not None:
            if record.envelope.type is EventType.REGION_REGISTERED and record.offset >= self._answer_from:
                self.outbox.refuse(record, self._blocked)
            return Applied(ignored=self._blocked)
        if record.offset < self.low_water:
            return _BELOW
        fresh = record.offset > self.replica.applied
        applied = self.replica.step(record)
        self.position = record.offset + 1
        if applied.ignored is not None and applied.ignored.code is Code.SKIPPED_LATE:
            self.block(applied.ignored, record.offset, keep_record=True)
            return applied
        if fresh and record.skipped:
            # Its region stalls, or its registration is refused: the driver looks at the state.
            self.outbox.note_change()
        elif fresh:
            self.activity.observe(record, applied.ignored, self._now)
        if fresh:
            # The reactions to earlier records are in the state record.
            self.outbox.applied_id = record.envelope.id
        if fresh and (record.skipped or applied.savepoints or record.envelope.type not in _OF_WORK):
            self._react(record, applied)
        self._conditions.log_time = record.time
        self._candidate.arrived()
        return applied

    def block(self, problem: Problem, offset: int, *, keep_record: bool = False) -> None:
        """Apply nothing from this offset on; registrations from there on are refused for the problem.

        `keep_record`: a newer release wrote the state record, which stays as it is.
        """
        if keep_record:
            self.outbox.keep_record()
        if self._blocked is None:
            self._blocked, self._answer_from = problem, offset
            self._stall_stream(problem)

    def reached(self, position: int) -> None:
        """Note that everything before `position` in the partition was handed in."""
        if self._blocked is None:
            self.position = max(self.position, position)

    def _react(self, record: LogRecord, applied: Applied) -> None:
        """React to a new record, beside its effect on the log's state."""
        self.outbox.observe(record, applied)
        self._candidate.observe(record, applied, self._now)
        self._committing.observe(record, applied)
        if isinstance(record.body, StreamPolicy | StreamCommand):
            # The order may be about the cause of a stall.
            self._of_table.pause(self._now, 0)
            if applied.ignored is None and isinstance(record.body, StreamCommand) and record.body.head:
                # The statement takes the place of known heads: compare the whole table with the log.
                self._inspect_again()
        if applied.resolved is not None:
            self._stall = None if self.ready else self._stall
            # What was tried again was about this decision: its publication, or the append of its outcome.
            self._retries.ended("publish", "append")
        if applied.answer is not None and self._stall is not None and not self.ready:
            # The cause may have ended: check again before the registration is refused for it.
            self._stall_seen = False
            self._of_table.pause(self._now, 0)

    # --- input: time ------------------------------------------------------------------------------

    def poll(self, now: int) -> list[Effect]:
        """Hand out the effects that should start now; `now` in milliseconds, never decreasing."""
        if self.ready and (gap := now - self._now) > self._patience:
            # The process stood still, and another coordinator may have acted. One that is always slow would
            # never act: it is patient until it does.
            self._require_end()
            self._patience = 2 * gap
        self._now = now
        if self._conditions.check(now, caught_up=self.has_read_all):
            self._require_end()
        # First the conclusions, then the timers: a timer must see everything that was read.
        self._settle()
        if self._may_act:
            self._patience = self.settings.freeze
        if self._candidate.align(now, [*self.activity.silent(now)], acting=self._may_act):
            self._require_end()
        started: list[Effect] = []
        for slot, find in (
            (self._of_end, self._next_end),
            (self._of_table, self._next_table),
            (self._of_log, self._next_log),
            (self._of_view, self.outbox.view),
            (self._of_offsets, self.outbox.offsets),
        ):
            if slot.is_free(now) and (effect := find()) is not None:
                slot.running = effect
                started.append(effect)
        return started

    def _require_end(self) -> None:
        """Decide and execute nothing (see `_may_act`) before an end fetched from now on was read."""
        self._required_end, self._early_fetch = None, self._of_end.running

    @property
    def has_read_all(self) -> bool:
        return self._blocked is None and self._is_past_barrier

    @property
    def _is_past_barrier(self) -> bool:
        return self._required_end is not None and self.position >= self._required_end

    @property
    def _may_act(self) -> bool:
        """True if decisions may be made and executed."""
        return self.ready and self.has_read_all

    def _settle(self) -> None:
        """Draw the conclusions from all records and results since the poll before."""
        if self._inspected is not None and not self.ready and self.has_read_all:
            self._become_ready(self._inspected)
        self._candidate.read_upto(self.position)
        if self.ready or (self._stall is not None and self._stall_seen) or self._retries.stall:
            self.outbox.send_answers(None if self.ready else self._stall or self._retries.stall)
        self.outbox.note_change(changed=self.activity.settle(self._now))
        self.outbox.stalls(self._conditions.stalls(self._stall), self.replica.applied, self._is_over)

    def _is_over(self, stall: Problem) -> bool:
        """True if a stall that a predecessor announced has certainly ended.

        Part of the causes is work in hand, which each coordinator finds out again.
        """
        if not self._may_act:
            return False
        if stall.region is not None:
            return self._conditions.is_over(stall)
        if self.replica.state.unresolved is not None or self._head_due:
            return False
        return stall.code is not Code.RETRYING or not self._candidate.has_unchecked

    def _become_ready(self, found: TableState) -> None:
        """Start to act, unless partition, log, table and state record contradict each other."""
        state = self.replica.state
        self.replica.finish_refill()
        if problem := self.replica.problem(self.low_water) or self.table.mismatch(state, found):
            if problem.code is Code.TABLE_CONTRADICTS:
                self.table.contradicted = state.snapshot
            self._stall_stream(problem)
            return
        # Decisions are in the log before they are in the table: no unknown one precedes this head. The newest
        # known one must: a table that is rolled back lacks it, whatever head an operator named before.
        before = asked_decision(state) - 1
        seen = (found.newest_decision or 0) == before and (
            not state.unresolved or found.newest_made == before
        )
        if seen and (self._head_expired or self.table.upto < before):
            self.table.prove(found.head, before)
            self._head_expired = False
        self.ready = True
        refused = self._stall is not None and self._stall.code is Code.COMMIT_REFUSED
        # A refusal lasts until the next try.
        self._stall = self._stall if refused or self._committing.under_way else None
        self.outbox.note_change(changed=state.assignment is not None)

    # --- effects ----------------------------------------------------------------------------------

    def _next_end(self) -> Effect | None:
        # The table is read first: whatever it shows is in the log, before an end that is fetched afterwards.
        return effects.FetchEnd() if self._inspected is not None and self._required_end is None else None

    def _next_table(self) -> Effect | None:
        if self._inspected is None:
            return effects.InspectTable()
        if not self._may_act or self._committing.outcome is not None:
            return None
        state = self.replica.state
        stuck = state.unresolved is None or (self._stall or self._retries.stall) is not None
        if stuck and self._now >= self._names_at and self._inspected.has_unusable:
            # A refused decision, or the question about one, may wait for the new name of a table.
            self._inspect_again()
            return effects.InspectTable()
        if state.unresolved is not None:
            return self._committing.next(state, self._inspected)
        if self._head_due:
            table = state.table or self.table.identity or ""
            known = self.table.known_head(state, self._inspected)
            return effects.Ask(state.decided + 1, effects.NO_DIGEST, table, known)
        if isinstance(self._of_log.running, effects.Append) or self.outbox.has_outcome:
            # Outcomes are recorded and announced before the next cut is checked. Answers take their turn:
            # while Kafka is slow, drivers ask again.
            return None
        return self._candidate.next_check(self._now, self.table.identity or "")

    @property
    def _head_due(self) -> bool:
        return self._now >= self._head_at or self.table.upto != self.replica.state.decided

    def _next_log(self) -> Effect | None:
        may_append = self._may_act and self._candidate.appended_at is None and not self.outbox.has_outcome
        if may_append and (entry := self._next_append()) is not None:
            return entry
        writable = self.ready or (self._stall or self._retries.stall) is not None
        return self.outbox.next(self.record, self._now, writable=writable)

    def _next_append(self) -> effects.Append | None:
        """Return the next event of this coordinator: an outcome, the policy, a silent region, a decision."""
        state = self.replica.state
        if not self._candidate.may_append(self._now):
            return None
        if (entry := self._committing.next_append()) is not None:
            return entry
        tables = self._inspected.tables if self._inspected is not None else {}
        policy = self.settings.policy_to_log(state.policy, self.table.single_region, tables, state.tables)
        if policy is not None:
            return effects.Append(EventType.STREAM_POLICY, policy)
        if (entry := self.activity.next_append(self._now)) is not None:
            return entry
        if state.unresolved is not None or self._head_due:
            return None
        return self._candidate.next_append(self._now, self.table.head)

    # --- input: results ---------------------------------------------------------------------------

    def finished(self, effect: Effect, result: Result) -> None:
        """Apply the result of an effect that `poll` handed out; results of forgotten ones have no effect."""
        slot = next((each for each in self._slots if each.running is effect), None)
        if slot is None:
            return
        self._retries.finished(effect, result, self._now)
        if isinstance(result, effects.Failed):
            slot.failed(self._now)
            if isinstance(effect, effects.Append):
                # The event may be in the log: read to its end before anything else is decided.
                self._require_end()
            return
        slot.succeeded()
        match effect, result:
            case effects.FetchEnd(), effects.EndOffset(offset):
                self._required_end = None if effect is self._early_fetch else offset
            case effects.InspectTable(), TableState() | effects.TableUnfit():
                self._inspect(result)
            case effects.CheckFiles(), effects.FilesChecked():
                self._candidate.checked(effect, result, self._now)
            case effects.CheckFiles(), TableReplaced(identity):
                self._stall_stream(Problem(code=Code.TABLE_REPLACED, detail=identity))
            case effects.Append(), effects.Appended(offset):
                self._candidate.appended(offset, self._now)
            case effects.Ask(digest=digest), _ if digest == effects.NO_DIGEST:
                self._head_asked(effect, self._committing.believed(result))
            case ((effects.Ask() | effects.Publish()), _):
                self._commit_step(effect, self._committing.believed(result))
            case _:
                self.outbox.done(effect, self._now)

    def _inspect(self, result: TableState | effects.TableUnfit) -> None:
        if isinstance(result, effects.TableUnfit):
            self._stall_stream(Problem(code=Code.TABLE_UNFIT, detail=result.reason))
            return
        # The log's identity counts: a coordinator without a record may have met another table first.
        self.table.identity = self.replica.state.table or self.table.identity or result.identity
        if self.table.identity != result.identity:
            self._stall_stream(Problem(code=Code.TABLE_REPLACED, detail=result.identity))
            return
        self.table.single_region = "fixed-buckets" if result.joined else None
        self._inspected, self._names_at = result, self._now + self.settings.head_interval
        # The log explains this state only up to an end that is fetched after it.
        self._require_end()

    def _head_asked(self, effect: effects.Ask, answer: Result) -> None:
        """Apply the answer about what was the next decision. Another coordinator may have made it since."""
        state, before = self.replica.state, effect.decision - 1
        match answer:
            case Absent(head):
                # Any other answer leaves the question due, and so nothing is decided.
                self._head_at = self._now + self.settings.head_interval
                self._head_expired = False
                self.table.contradicted = None
                self._stall = None if self.ready else self._stall
                if self.table.upto != before or self.table.head != head:
                    self.table.prove(head, before)
                    self.outbox.note_change()
            case Unproven():
                self._unproven(effect, answer)
            case TableReplaced(identity):
                self._stall_stream(Problem(code=Code.TABLE_REPLACED, detail=identity))
            case _ if before < state.decided:
                # Another coordinator's decision, which was read meanwhile.
                return
            case _ if self._read_for == state.decided + 1:
                newest = answer.decision if isinstance(answer, Ahead) else self._read_for
                self._stall_commit(Problem(code=Code.TABLE_AHEAD, number=state.decided, other=newest))
            case _:
                # Another coordinator's decision that is still to be read.
                self._read_for = state.decided + 1
                self._inspect_again()

    def _unproven(self, effect: effects.Ask, answer: Unproven) -> None:
        """Use the inspected head once if the known one has expired; a table rolled back stays a stall."""
        known, asked = effect.known, effect.decision
        problem = self.table.unproven(answer, known, asked - 1, asked)
        if answer.expired and not self._head_expired and (known is None or known != self.table.contradicted):
            self._head_expired = True
            self._inspect_again()
            return
        self._stall_commit(problem)

    def _commit_step(self, effect: effects.Ask | effects.Publish, result: Result) -> None:
        if isinstance(result, Absent) and self._inspected and self._inspected.newest_made == effect.decision:
            # It was in the table, which was rolled back since; the decisions before may be gone, too.
            self._inspect_again()
            return
        problem = self._committing.apply(effect, result)
        if problem is None:
            if self._committing.outcome is not None:
                self._stall = None if self.ready else self._stall
            elif apart := self._committing.apart:
                self._stall = Problem(code=Code.TABLES_APART, number=effect.decision, names=tuple(apart))
            elif isinstance(effect, effects.Publish) and self._committing.under_way:
                # An absence is used at once, before another writer moves the head.
                pause = self.settings.first_pause * min(self._committing.retries - 1, 20)
                self._of_table.pause(self._now, pause)
        elif problem.code in OF_OTHERS and self._read_for != effect.decision:
            # Another coordinator may have resolved it: read the log to an end fetched after the answer.
            self._read_for = effect.decision
            self._require_end()
        else:
            self._stall_commit(problem)

    # --- stalls -----------------------------------------------------------------------------------

    def _stall_stream(self, problem: Problem) -> None:
        """Stall the stream, and inspect the table again later."""
        self._stall, self._stall_seen = problem, True
        self._inspect_again()
        self._of_table.pause(self._now, self.settings.stall_pause)

    def _stall_commit(self, problem: Problem) -> None:
        """Stall commits only: registrations are still answered."""
        self._stall = problem
        self._of_table.pause(self._now, self.settings.stall_pause)

    def _inspect_again(self) -> None:
        """Read the table and the log's end as at the start."""
        self._inspected, self.ready = None, False
        self._require_end()

    # --- output -----------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """Return everything that keeps the stream, or a region, from progress; the gravest first."""
        retry_in = max(0, self._of_table.resume_at - self._now)
        return [*self._conditions.all(self._stall, retry_in), *self.warnings]

    def record(self) -> StateRecord:
        """Return the state record as of now."""
        return self.outbox.record(self.replica.applied, self.position, self.conditions())
