"""Outbox: everything that follows an event. The order is record, notifications, view, offsets.

Notifications are part of the record that precedes them, until the next record. So a restart repeats those of
the newest record, and never loses one. Their ids are derived, so consumers recognise a repetition.

A record hides the registrations that it includes from the next reader. So none is written while their answers
wait.
"""

import hashlib
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from sluicegate.coordinator.core.activity import Activity
from sluicegate.coordinator.core.effects import (
    Announce,
    Effect,
    ReleaseOffsets,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.log import Applied, Log
from sluicegate.coordinator.core.state import Decision, LogState, Savepoint
from sluicegate.coordinator.core.state_record import Condition, Due, NotificationBody, StateRecord, Waiting
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutReverted,
    RegionClosed,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    NotificationType,
    RegistrationAnswered,
    SavepointTaken,
    Stalled,
)
from sluicegate.events.problems import Code, Problem

_OF_DECISIONS: Final = (Code.BASE_UNRESOLVED, Code.ASSIGNMENT_UNRESOLVED)
"""Refusals that the outcome of a decision ends."""


_OUTCOMES: Final = (
    NotificationType.COMMITTED,
    NotificationType.PARTIALLY_COMMITTED,
    NotificationType.REVERTED,
)

_MOST_DUE: Final = 100
"""Notifications in one record, which has a limit. Registrations pile up while no coordinator answers them."""
_LARGEST_DUE: Final = 128 << 10
"""Characters of JSON of all notifications in one record: an answer may name many regions."""
_MOST_REFUSED: Final = 100
"""Regions whose refusal is shown."""
_LARGEST_SHOWN: Final = 128 << 10
"""Characters of JSON of all conditions in one record, the gravest first; of announced stalls, too."""
_MOST_NAMES: Final = 10
_LONGEST_NAME: Final = 200
_LONGEST_DETAIL: Final = 200


def _shortened(problem: Problem) -> Problem:
    """Return a problem for the status alone, as short as a sentence needs it."""
    names = tuple(name[:_LONGEST_NAME] for name in problem.names[:_MOST_NAMES])
    return problem.model_copy(update={"names": names, "detail": problem.detail[:_LONGEST_DETAIL]})


def _bare(problem: Problem) -> Problem:
    """Return what is needed to know a stall again that was announced."""
    return problem.model_copy(update={"names": (), "detail": "", "cause": None})


def _shown(conditions: list[Condition]) -> list[Condition]:
    """Return the gravest conditions, as many as a record has room for, and at least one."""
    found = accumulate(len(each.model_dump_json()) for each in conditions)
    room = sum(size <= _LARGEST_SHOWN for size in found)
    return conditions[: max(1, room)]


def _remembered(announced: dict[str, Problem]) -> dict[str, Problem]:
    """Return the stalls that were announced; without their details if those are too many for a record."""
    if sum(len(each.model_dump_json()) for each in announced.values()) <= _LARGEST_SHOWN:
        return dict(announced)
    return {scope: _bare(problem) for scope, problem in announced.items()}


class Outbox:
    """Answers that wait, the state record to be written, and the notifications to be sent."""

    def __init__(
        self, record: StateRecord, log: Log, table: TableProgress, activity: Activity, interval: int
    ) -> None:
        """`record` is the one that the machine starts from; `interval`: milliseconds between two records."""
        self.due = list(record.due)
        self._length = sum(map(_length, self.due))
        self.announced = dict(record.announced)
        """By scope, the stall that was announced last."""
        self._inherited = set(record.announced)
        """Scopes of stalls that a predecessor announced, and that this coordinator has not judged yet."""
        self.refused = dict(record.refused)
        """By region, the refusal of its newest registration by the rules of the log; for status."""
        self._stalls = record.stalls
        self.applied_id = record.applied_id
        """Id of the newest record that was applied."""
        self._adoption = record.adoption
        self._log, self._table, self._activity = log, table, activity
        self._interval = interval
        self._answers: list[tuple[LogRecord, RegistrationAnswered]] = []
        """Answers to registrations, until log and table were read."""
        self._unread: list[tuple[LogRecord, RegistrationAnswered]] = []
        """Refusals of registrations after a record at which the log cannot be read on."""
        self._durable = len(record.due)
        """Number of notifications, from the front, that are part of a written record."""
        self._recorded = True
        self._changes = self._writing = 0
        self._written_at: int | None = None
        self._view: StateRecord | None = None
        self._release = False

    @property
    def busy(self) -> bool:
        """True if a record or a notification is still to be written."""
        return self._changes > 0 or bool(self.due)

    @property
    def has_outcome(self) -> bool:
        """True if the outcome of a decision is still to be recorded or announced."""
        return any(each.type in _OUTCOMES for each in self.due)

    def keep_record(self) -> None:
        """Write no record, since a newer release wrote the one that is there."""
        self._recorded = False

    def note_change(self, *, changed: bool = True) -> None:
        """Have a record written."""
        self._changes += changed

    # --- answers ----------------------------------------------------------------------------------

    def refuse(self, record: LogRecord, problem: Problem) -> None:
        """Keep the answer to a registration that cannot be judged.

        It has no position: the log may have moved the region since the last record that was read.
        """
        registration = record.envelope.id
        answer = RegistrationAnswered(registration=registration, accepted=False, problem=problem)
        self._unread.append((record, answer))

    def send_answers(self, stall: Problem | None) -> None:
        """Send all answers; a stall of the stream turns them into refusals."""
        refusals = {} if stall is None else {"accepted": False, "problem": stall}
        judged = [(record, verdict.model_copy(update=refusals)) for record, verdict in self._answers]
        for record, answer in [*judged, *self._unread]:
            envelope = record.envelope
            # A registration that is read again may have another answer, once a stall is over.
            name = f"answer/{envelope.id}/{answer.problem.identity if answer.problem else ''}"
            kind = NotificationType.REGISTRATION_ANSWERED
            self._add(kind, name, answer, envelope.region, envelope.incarnation)
            if isinstance(record.body, RegionRegistered) and record.body.probe:
                # A probe changes nothing, not even the status.
                continue
            self.refused.pop(envelope.region, None)
            problem = answer.problem
            if problem is None or stall is not None:
                # A stall is a condition of its own.
                continue
            if self._log.state.unresolved is not None or problem.code not in _OF_DECISIONS:
                self.refused[envelope.region] = _shortened(problem)
                if len(self.refused) > _MOST_REFUSED:
                    # Anybody can ask for a region of any name.
                    del self.refused[next(iter(self.refused))]
        self._answers, self._unread = [], []

    # --- notifications ----------------------------------------------------------------------------

    def observe(self, record: LogRecord, applied: Applied) -> None:
        """Announce the effects of a new record."""
        body, made = record.body, applied.resolved
        if applied.answer is not None:
            self._answers.append((record, applied.answer))
        if made is not None:
            # The refusal of a driver that asks again is over, also if that one has given up.
            for name in [name for name, each in self.refused.items() if each.code in _OF_DECISIONS]:
                del self.refused[name]
        if made is not None and isinstance(body, CutCommitted):
            self._committed(made, body)
        elif made is not None and isinstance(body, CutReverted):
            self._add(NotificationType.REVERTED, f"reverted/{body.decision}/{body.digest}", body)
        for savepoint in applied.savepoints:
            self._saved(savepoint)
        if applied.ended:
            ended = IncarnationsEnded(incarnations=dict(sorted(applied.ended.items())))
            self._add(NotificationType.ENDED, f"ended/{record.offset}", ended)
        match body:
            case CutAbandoned() if applied.ignored is None:
                name = f"abandoned/{body.decision}/{body.attempt}/{record.offset}"
                self._add(NotificationType.ABANDONED, name, body)
            case StreamPolicy() | StreamCommand() | RegionClosed():
                # The sender looks at the state.
                self.note_change()

    def _committed(self, made: Decision, outcome: CutCommitted) -> None:
        regions = self._log.state.regions
        body = Committed(
            decision=made.id,
            cut=made.cut,
            fallbacks=made.fallbacks,
            listeners={name: each.listeners for name, each in regions.items() if each.listeners},
            snapshot=outcome.snapshot,
            watermark=made.watermark,
            files=made.files,
            tables=self._log.state.vector,
            summary=outcome.summary,
        )
        kind = NotificationType.PARTIALLY_COMMITTED if made.fallbacks else NotificationType.COMMITTED
        self._add(kind, f"commit/{made.id}/{made.digest}", body)

    def _saved(self, savepoint: Savepoint) -> None:
        state = self._log.state
        body = SavepointTaken(
            name=savepoint.name,
            drained=savepoint.drain,
            decision=state.decided,
            cut=state.cut,
            snapshot=state.snapshot,
            tables=state.vector,
            watermark=state.watermark,
            discarded=tuple(savepoint.discarded),
        )
        self._add(NotificationType.SAVEPOINT_TAKEN, f"savepoint/{savepoint.name}/{savepoint.offset}", body)

    def stalls(self, problems: list[Problem], applied: int, is_over: Callable[[Problem], bool]) -> None:
        """Announce each stall once, and its end. The gravest one of a region, or of the stream, counts.

        `is_over` judges a stall that a predecessor announced, and that this coordinator has not found yet.
        """
        current = {each.region or "": each for each in reversed(problems)}
        self._inherited -= {*current, *(name for name in self._inherited if is_over(self.announced[name]))}
        current |= {name: self.announced[name] for name in self._inherited}
        for scope, problem in current.items():
            known = self.announced.get(scope)
            if known is None or known.identity not in (problem.identity, _bare(problem).identity):
                self._add_stall(problem, applied, ended=False)
        for scope, problem in self.announced.items():
            if scope not in current:
                self._add_stall(problem, applied, ended=True)
        self.announced = current

    def _add_stall(self, problem: Problem, applied: int, *, ended: bool) -> None:
        body = Stalled(problem=problem, ended=ended)
        # A stall may appear again without a record in between.
        self._stalls += 1
        name = f"stalled/{applied}/{self._stalls}/{problem.identity}/{ended}"
        self._add(NotificationType.STALLED, name, body, problem.region or "")

    def _add(
        self,
        kind: NotificationType,
        name: str,
        body: NotificationBody,
        region: str = "",
        incarnation: str = "",
    ) -> None:
        identity = hashlib.sha256(f"{self._log.stream}/{name}".encode()).hexdigest()[:32]
        due = Due(id=identity, type=kind, region=region, incarnation=incarnation, body=body)
        self.due.append(due)
        self._length += _length(due)
        self._changes += 1

    # --- the record -------------------------------------------------------------------------------

    def record(self, applied: int, position: int, conditions: list[Condition]) -> StateRecord:
        """Return the state record as of the offset `applied`, if everything before `position` was read."""
        state, heard = self._log.state, self._activity.heard
        return StateRecord(
            stream=self._log.stream,
            applied=applied,
            applied_id=self.applied_id,
            adoption=self._adoption,
            low_water=self._log.low_water(position),
            # Effects in flight keep the record, and the state changes meanwhile.
            state=LogState.model_validate(state.model_dump()),
            table=self._table.model_copy(),
            due=list(self.due),
            conditions=_shown(conditions),
            announced=_remembered(self.announced),
            stalls=self._stalls,
            refused=dict(self.refused),
            heard={name: at for name, at in heard.items() if name in state.regions},
            intervals=dict(self._activity.intervals),
            waiting=_waiting(self._log),
        )

    # --- effects ----------------------------------------------------------------------------------

    def next(self, record: Callable[[], StateRecord], now: int, *, writable: bool) -> Effect | None:
        """Return the next effect, if one is due; a record only while the state may be written."""
        if not self._recorded:
            return Announce(self.due[0]) if self.due else None
        if writable and (len(self.due) > _MOST_DUE or self._length > _LARGEST_DUE):
            # The next reader reads the log from the record before, and announces these again.
            return Announce(self.due[0])
        if writable and not (self._answers or self._unread) and (self._changes > 0 or self._is_old(now)):
            self._writing = self._changes
            return WriteRecord(record())
        return Announce(self.due[0]) if self._durable > 0 else None

    def view(self) -> WriteView | None:
        """Return the write of the newest view, if one is due. Nothing depends on it."""
        return WriteView(self._view) if self._view is not None else None

    def offsets(self) -> ReleaseOffsets | None:
        """Return the release of offsets, if one is due. Nothing depends on it."""
        return ReleaseOffsets() if self._release and not self.busy else None

    def done(self, effect: Effect, now: int) -> None:
        """Note an effect that is durable."""
        match effect:
            case WriteRecord(record):
                self._changes -= self._writing
                self._durable = len(record.due)
                self._written_at = now
                self._view = record
                self._release = True
            case Announce():
                self._length -= _length(self.due.pop(0))
                self._durable = max(0, self._durable - 1)
            case WriteView(record) if self._view is record:
                self._view = None
            case ReleaseOffsets():
                self._release = False

    def _is_old(self, now: int) -> bool:
        return self._written_at is not None and now - self._written_at >= self._interval


def _length(due: Due) -> int:
    return len(due.model_dump_json())


def _waiting(log: Log) -> dict[str, Waiting]:
    """Return, by region, the files that are in no decision."""
    found: dict[str, Waiting] = {}
    for name, pending in log.pending.items():
        checkpoints = pending.checkpoints.values()
        if any(each.parts for each in checkpoints):
            since = min(each.first_time for each in checkpoints)
            files, rows = sum(each.files for each in checkpoints), sum(each.rows for each in checkpoints)
            found[name] = Waiting(files=files, rows=rows, since=since)
    return found
