"""Decisions of a stream's log, in order, by the coordinator's own rules.

Pure: records of the log in, settled decisions out. The log alone determines the valid decisions; the table is
not needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.ignoring import BELOW
from sluicegate.coordinator.core.intake import enter
from sluicegate.coordinator.core.state import Decision, LightState, RegionState, StateRecord
from sluicegate.events.codec import BadBody, RawHeader, read_body, read_envelope
from sluicegate.events.envelope import Envelope, EventType, Poison
from sluicegate.events.models import CutDecided, CutVoided

UNREAD: Final = "cannot be read"


class LogStartsLate(Exception):
    """The decisions of the log depend on events that retention has deleted."""


class Span(NamedTuple):
    """Checkpoints of a lineage that a decision includes: those after `after` up to `upto`."""

    region: str
    lineage: str
    after: int
    upto: int


class Settled(NamedTuple):
    """A valid decision."""

    decision: Decision
    time: int
    """Append time in milliseconds; 0 if the log was read from a later offset."""
    spans: tuple[Span, ...]
    voided: bool
    """True if an empty commit replaced it."""
    open: bool = False
    """True for the last decision, because the log may still void it."""


class Taken(NamedTuple):
    """Effect of one record of the log on the stream."""

    envelope: Envelope
    ignored: str | None
    """Reason for no effect; None if it had one."""
    settled: tuple[Settled, ...] = ()
    """Decisions that no later record can change."""


class Course:
    """State of a stream while its events are applied in order.

    The first event is that of the log, or the one after a state record.
    """

    def __init__(self, stream: str, base: StateRecord | None, begin: int) -> None:
        self.stream = stream
        state = base.state.model_copy(deep=True) if base else LightState()
        self.book = Book(stream, state, base.applied if base else -1)
        self.low_water = base.low_water if base else begin
        self.known_from = state.decided - len(state.pending)
        """Decisions up to this id precede the starting point."""
        self.unreadable: str | None = None
        """Reason why later records are not applied; None if all were."""
        self.last_offset = base.applied if base else -1
        self._times: dict[int, int] = {}
        self._wanted = {decision.offset for decision in state.pending}
        self._spans: tuple[Span, ...] = _spans(self.book, state.pending[-1]) if state.pending else ()

    def start(self) -> tuple[Settled, ...]:
        """Return decisions of the state record without an outcome that later ones have followed."""
        state = self.book.state
        earlier, state.pending = state.pending[:-1], state.pending[-1:]
        return tuple(Settled(decision, 0, (), voided=False) for decision in earlier)

    def take(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Taken | None:
        """Apply one record of the partition; None if it belongs to another stream or cannot be read.

        Raises LogStartsLate.
        """
        envelope = read_envelope(headers)
        if isinstance(envelope, Poison):
            if envelope.newer_version and envelope.stream == self.stream and offset > self.book.applied:
                self.unreadable = self.unreadable or envelope.reason
            return None
        if envelope.stream != self.stream or self.unreadable is not None:
            return None
        if offset < self.low_water:
            return Taken(envelope, BELOW)
        if offset in self._wanted:
            self._times[offset] = time
        taken = self._enter(offset, time, envelope, value)
        self.book.applied = max(self.book.applied, offset)
        self.last_offset = max(self.last_offset, offset)
        self.book.taken.clear()
        return taken

    def finish(self) -> tuple[Settled, ...]:
        """Return the last decision, at the end of the log: nothing has voided it so far."""
        pending = self.book.state.pending
        return (self._settled(pending[-1], voided=False, still_open=True),) if pending else ()

    def _enter(self, offset: int, time: int, envelope: Envelope, value: bytes | None) -> Taken:
        body = None
        if envelope.type is not EventType.FILES_WRITTEN:
            try:
                body = read_body(envelope.type, value)
            except BadBody as error:
                if envelope.type is EventType.CHECKPOINT_COMPLETED:
                    self.book.garbled(offset, time, envelope, str(error))
                return Taken(envelope, UNREAD)
        fresh, state = offset > self.book.applied, self.book.state
        if fresh and isinstance(body, CutDecided) and state.policy is None:
            raise LogStartsLate(
                f"the decision at offset {offset} rests on a policy that stands before the start of the log"
            )
        last = state.pending[-1] if state.pending else None
        ignored = enter(self.book, offset, time, envelope, body)
        if not fresh or ignored is not None or not isinstance(body, CutDecided | CutVoided):
            return Taken(envelope, ignored)
        # Only the last decision can be voided, so a later decision settles it.
        settled = () if last is None else (self._settled(last, voided=isinstance(body, CutVoided), by=body),)
        if isinstance(body, CutDecided):
            state.pending = state.pending[-1:]
            self._times[offset] = time
            self._spans = _spans(self.book, state.pending[-1])
        return Taken(envelope, None, settled)

    def _settled(
        self,
        decision: Decision,
        *,
        voided: bool,
        still_open: bool = False,
        by: CutDecided | CutVoided | None = None,
    ) -> Settled:
        if isinstance(by, CutVoided):
            decision = decision.model_copy(update={"void": (by.region, by.checkpoint)})
        time = self._times.get(decision.offset, 0)
        if not still_open:
            self._times.pop(decision.offset, None)
        return Settled(decision, time, self._spans, voided, still_open)


def _spans(book: Book, decision: Decision) -> tuple[Span, ...]:
    """Return the checkpoints that the decision just applied has included."""
    if decision.before is None:
        return ()
    return tuple(_moved(book, decision.before.regions))


def _moved(book: Book, before: Mapping[str, RegionState]) -> Iterator[Span]:
    for name, region in book.state.regions.items():
        lineages = before[name].lineages if name in before else {}
        for lineage, lived in region.lineages.items():
            after = lineages[lineage].decided if lineage in lineages else None
            if lived.decided is not None and lived.decided != after:
                yield Span(name, lineage, -1 if after is None else after, lived.decided)
