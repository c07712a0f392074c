"""Outbox: everything that follows an outcome. The order is record, notifications, view, offsets.

Notifications are part of the record that precedes them. A crash between the two repeats them and never loses
them. Their ids are derived, so consumers recognise a repetition.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

from sluicegate.coordinator.core.effects import Announce, Effect, ReleaseOffsets, WriteRecord, WriteView
from sluicegate.coordinator.core.log_state import Decision, LogState, Savepoint
from sluicegate.coordinator.core.replica import Applied
from sluicegate.coordinator.core.state_record import Due, Notification, StateRecord
from sluicegate.events.envelope import Envelope, LogRecord
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutReverted,
    Head,
    RegionClosed,
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
from sluicegate.events.problems import Problem


class Outbox:
    """The state record that is to be written, and the notifications that are to be sent."""

    def __init__(
        self, stream: str, due: Sequence[Due], interval: int, announced: Mapping[str, Problem], stalls: int
    ) -> None:
        self.due = list(due)
        self._stream = stream
        self._interval = interval
        self._durable = len(due)
        """Number of notifications, from the front, are part of a written record."""
        self._recorded = True
        self._changes = self._writing = 0
        self._written_at: int | None = None
        self._view: StateRecord | None = None
        self._release = False
        self._release_at = 0
        self.announced = dict(announced)
        """By scope, the stall that was announced last."""
        self.stalls_announced = stalls

    @property
    def busy(self) -> bool:
        """True if a record or a notification is still to be written."""
        return self._changes > 0 or bool(self.due)

    def keep_record(self) -> None:
        """Write no record, since a newer release wrote the one that is there."""
        self._recorded = False

    def note_change(self, *, changed: bool = True) -> None:
        """Have a record written."""
        self._changes += changed

    # --- notifications ----------------------------------------------------------------------------

    def read(self, record: LogRecord, applied: Applied, state: LogState) -> None:
        """Announce the effects of a new record."""
        body, made = record.body, applied.resolved
        if made is not None and isinstance(body, CutCommitted):
            self._committed(made, body.snapshot, state)
        elif made is not None and isinstance(body, CutReverted):
            self._add(NotificationType.REVERTED, f"reverted/{body.decision}", body)
        for savepoint in applied.savepoints:
            self._saved(savepoint, state)
        if applied.ended:
            ended = IncarnationsEnded(incarnations=dict(sorted(applied.ended.items())))
            self._add(NotificationType.ENDED, f"ended/{record.offset}", ended)
        match body:
            case CutAbandoned() if applied.ignored is None:
                name = f"abandoned/{body.decision}/{body.attempt}"
                self._add(NotificationType.ABANDONED, name, body)
            case StreamPolicy() | StreamCommand() | RegionClosed():
                # The sender looks at the state.
                self.note_change()

    def answer(self, envelope: Envelope, body: RegistrationAnswered) -> None:
        """Answer a registration."""
        # A registration that is read again may have another answer, once a stall is over.
        name = f"answer/{envelope.id}/{body.problem.identity if body.problem else ''}"
        self._add(NotificationType.REGISTRATION_ANSWERED, name, body, envelope.region, envelope.incarnation)

    def _committed(self, made: Decision, snapshot: Head | None, state: LogState) -> None:
        body = Committed(
            decision=made.id,
            cut=made.cut,
            fallbacks=made.fallbacks,
            listeners={name: each.listeners for name, each in state.regions.items() if each.listeners},
            snapshot=snapshot,
            watermark=made.watermark,
            files=made.files,
        )
        kind = NotificationType.PARTIALLY_COMMITTED if made.fallbacks else NotificationType.COMMITTED
        self._add(kind, f"commit/{made.id}", body)

    def _saved(self, savepoint: Savepoint, state: LogState) -> None:
        body = SavepointTaken(
            name=savepoint.name,
            drained=savepoint.drain,
            decision=state.decided,
            cut=state.cut,
            snapshot=state.snapshot,
            watermark=state.watermark,
        )
        self._add(NotificationType.SAVEPOINT_TAKEN, f"savepoint/{savepoint.name}/{state.decided}", body)

    def stalls(self, problems: list[Problem], applied: int) -> None:
        """Announce each stall once, and its end. The gravest one of a region, or of the stream, counts."""
        current = {each.region or "": each for each in reversed(problems)}
        for scope, problem in current.items():
            known = self.announced.get(scope)
            if known is None or known.identity != problem.identity:
                self._add_stall(problem, applied, ended=False)
        for scope, problem in self.announced.items():
            if scope not in current:
                self._add_stall(problem, applied, ended=True)
        self.announced = current

    def _add_stall(self, problem: Problem, applied: int, *, ended: bool) -> None:
        body = Stalled(problem=problem, ended=ended)
        # A stall may appear again without a record in between.
        self.stalls_announced += 1
        name = f"stalled/{applied}/{self.stalls_announced}/{problem.identity}/{ended}"
        self._add(NotificationType.STALLED, name, body, problem.region or "")

    def _add(
        self, kind: NotificationType, name: str, body: Notification, region: str = "", incarnation: str = ""
    ) -> None:
        identity = hashlib.sha256(f"{self._stream}/{name}".encode()).hexdigest()[:32]
        self.due.append(Due(id=identity, type=kind, region=region, incarnation=incarnation, body=body))
        self._changes += 1

    # --- effects ----------------------------------------------------------------------------------

    def next(self, record: Callable[[], StateRecord], now: int, *, writable: bool) -> Effect | None:
        """Return the next effect, if one is due; a record only while the state may be written."""
        if not self._recorded:
            return Announce(self.due[0]) if self.due else None
        if writable and (self._changes > 0 or self._is_old(now)):
            self._writing = self._changes
            return WriteRecord(record())
        if self._durable > 0:
            return Announce(self.due[0])
        if self._release and now >= self._release_at:
            return ReleaseOffsets()
        return None

    def view(self) -> WriteView | None:
        """Return the write of the newest view, if one is due. Nothing depends on it."""
        return WriteView(self._view) if self._view is not None else None

    def not_released(self, now: int, pause: int) -> None:
        """Release the offsets later: nothing depends on it."""
        self._release_at = now + pause

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
                self.due.pop(0)
                self._durable = max(0, self._durable - 1)
            case WriteView(record) if self._view is record:
                self._view = None
            case ReleaseOffsets():
                self._release = False

    def _is_old(self, now: int) -> bool:
        return self._written_at is not None and now - self._written_at >= self._interval
