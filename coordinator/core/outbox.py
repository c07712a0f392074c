"""What follows an outcome, in this order: the record, the notifications in it, the view, the offsets.

Notifications stand in the record that precedes them, so a crash between the two repeats and never
drops them; their ids are derived, so that a repetition is recognised.
"""

import hashlib
from collections.abc import Callable

from sluicegate.coordinator.core.effects import Announce, Effect, ReleaseOffsets, WriteRecord, WriteView
from sluicegate.coordinator.core.state import Decision, Due, LightState, Notice, Order, Retrying, StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutVoided,
    OpeningAnswered,
    Position,
    SavepointTaken,
    StreamStalled,
)
from sluicegate.lakes.port import SnapshotRef


class Outbox:
    """The state record that is to be written and the notifications that are to be sent."""

    def __init__(self, stream: str, due: list[Due], interval: int) -> None:
        self._stream = stream
        self._interval = interval
        self.due = due
        self._durable = len(due)
        """How many notifications, from the front, stand in a written record."""
        self._recorded = True
        self._changes = 0
        self._writing = 0
        self._written_at: int | None = None
        self._view: StateRecord | None = None
        self._release = False
        self._release_at = 0
        self._shown: StateRecord | None = None
        """The last record that was written."""
        self._told: dict[str | None, str] = {}

    @property
    def busy(self) -> bool:
        """Whether a record or a notification is still to be written."""
        return self._changes > 0 or bool(self.due)

    def keep_record(self) -> None:
        """Write no record: what stands there is a newer release's. Notifications go out without one."""
        self._recorded = False

    def note_change(self) -> None:
        """Have a record written."""
        self._changes += 1

    def answer(
        self, envelope: Envelope, refusal: str | None, committed: Position | None, start: Position | None
    ) -> None:
        """Answer an opening."""
        body = OpeningAnswered(
            opening=envelope.id,
            accepted=refusal is None,
            reason=refusal or "",
            committed=committed,
            start=start if refusal is None else None,
        )
        # What was refused for a stall may be accepted when it is read again: other content, another id.
        self._add(EventType.OPENING_ANSWERED, f"answer/{envelope.id}/{refusal or ''}", body, envelope)

    def committed(self, decision: Decision, snapshot: SnapshotRef | None) -> None:
        """Tell that a commit is visible."""
        partial = bool(decision.fallbacks)
        body = CutCommitted(
            decision=decision.id,
            cut=decision.cut,
            fallbacks=decision.fallbacks,
            snapshot=snapshot.id if snapshot else None,
            watermark=decision.watermark,
            files=decision.files,
            forced=decision.forced,
            listeners=decision.listeners,
        )
        event_type = EventType.CUT_PARTIALLY_COMMITTED if partial else EventType.CUT_COMMITTED
        self._add(event_type, f"commit/{decision.id}", body)

    def abandoned(self, body: CutAbandoned) -> None:
        """Tell that a forced full cut did not come about."""
        self._add(EventType.CUT_ABANDONED, f"abandoned/{body.decision}/{body.attempt}", body)

    def voided(self, body: CutVoided) -> None:
        """Tell that a decision was given up."""
        self._add(EventType.CUT_VOIDED, f"voided/{body.decision}", body)

    def saved(self, order: Order, state: LightState, by: Decision | None = None) -> None:
        """Tell that a savepoint is taken, by this decision or by what is committed already."""
        refs = {name: region.ref for name, region in state.regions.items() if region.ref is not None}
        body = SavepointTaken(
            name=order.name,
            drained=order.drain,
            decision=state.committed,
            cut=by.cut if by else refs,
            snapshot=state.snapshot,
            watermark=by.watermark if by else state.watermark,
        )
        self._add(EventType.SAVEPOINT_TAKEN, f"savepoint/{order.name}/{state.committed}", body)

    def stalled(self, region: str | None, reason: str | None, applied: int) -> None:
        """Tell once that the stream, or a region, is stalled for this reason."""
        if reason is None:
            if self._told.pop(region, None) is not None:
                # Who asks for the state sees that it is over.
                self._changes += 1
        elif self._told.get(region) != reason:
            self._told[region] = reason
            body = StreamStalled(reason=reason, region=region)
            self._add(EventType.STREAM_STALLED, f"stalled/{region or ''}/{applied}/{reason}", body)

    def next(
        self, record: Callable[[], StateRecord], now: int, *, writable: bool, interval: int | None = None
    ) -> Effect | None:
        """The next effect, if one is due; a record only when the state may be written.

        With an interval the record is renewed that often, if that is more often than usual.
        """
        if not self._recorded:
            return Announce(self.due[0]) if self.due else None
        if writable and (self._changes > 0 or self._stale(now, interval)):
            self._writing = self._changes
            return WriteRecord(record())
        if self._durable > 0:
            return Announce(self.due[0])
        if self._release and now >= self._release_at:
            return ReleaseOffsets()
        return None

    def view(self) -> WriteView | None:
        """The write of the newest view, if one is due. It holds nothing else back."""
        return WriteView(self._view) if self._view is not None else None

    def show(self, record: Callable[[], StateRecord], retries: list[Retrying], stalled: str | None) -> None:
        """Have a view written that shows what is tried again, though no record can or need be written."""
        base = self._shown or record()
        if {each.effect for each in base.retries} - {each.effect for each in retries}:
            # Who reads the record would take what is over for something that lasts.
            self._changes += 1
        self._view = base.model_copy(update={"retries": retries, "stalled": stalled})

    def not_released(self, now: int, pause: int) -> None:
        """The offsets were not released: nothing waits for them, so they are tried again at leisure."""
        self._release_at = now + pause

    def done(self, effect: Effect, now: int) -> None:
        """Take note of an effect that is durable."""
        match effect:
            case WriteRecord(record):
                self._changes -= self._writing
                self._durable = len(record.due)
                self._written_at = now
                self._view = self._shown = record
                self._release = True
            case Announce():
                self.due.pop(0)
                self._durable = max(0, self._durable - 1)
            case WriteView(record) if self._view is record:
                self._view = None
            case ReleaseOffsets():
                self._release = False

    def _stale(self, now: int, interval: int | None) -> bool:
        return self._written_at is not None and now - self._written_at >= (interval or self._interval)

    def _add(
        self,
        event_type: EventType,
        name: str,
        body: Notice,
        envelope: Envelope | None = None,
    ) -> None:
        identity = hashlib.sha256(f"{self._stream}/{name}".encode()).hexdigest()[:32]
        region = envelope.region if envelope else (getattr(body, "region", None) or "")
        lineage = envelope.lineage if envelope else ""
        self.due.append(Due(id=identity, type=event_type, region=region, lineage=lineage, body=body))
        self._changes += 1
