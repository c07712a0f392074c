"""Orphan events: `files.written` events of a stream that no commit will ever include, by the log.

Pure. There are two kinds, and no later record can change either. A *loser* is an attempt of a checkpoint at
or before the committed position, which the commit does not name. A *discarded* event is of an incarnation
that has ended for good.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sluicegate.coordinator.core.state import LogState, reaches
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutCommitted, Position
from sluicegate.replay.decisions import LoggedDecision, Step


class Arrival(NamedTuple):
    """One `files.written` event of the log."""

    offset: int
    time: int
    event: str
    region: str
    incarnation: str
    checkpoint: int
    writer: str


class Orphan(NamedTuple):
    """An event that no commit will ever include."""

    arrival: Arrival
    reason: str
    since: int
    """Append time in milliseconds of the record that settled it, or of the event itself if that is later."""


_MAY_END = frozenset(
    {
        EventType.REGION_REGISTERED,
        EventType.STREAM_COMMAND,
        EventType.CUT_DECIDED,
        EventType.CUT_REVERTED,
    }
)
"""Events that end incarnations, or bring one back."""


class OrphanEvents:
    """The events of a log that no commit has included so far."""

    def __init__(self, start: LogState) -> None:
        """Make them for a log that is read from a state on."""
        self._start = start
        self._open: dict[tuple[str, str], dict[int, list[Arrival]]] = defaultdict(dict)
        """By region and incarnation, then by checkpoint: events that are neither winners nor known losers."""
        self._losers: list[Orphan] = []
        self._ended: dict[str, int] = {}
        """By incarnation, the append time of the record that ended it, in milliseconds."""
        self._begun = False
        """True once a record was read that the state at the start does not include."""

    def note(self, step: Step, state: LogState) -> None:
        """Apply the effect of one record; `state` is the state after it."""
        record, envelope = step.record, step.record.envelope
        if step.fresh and not self._begun:
            self._begun = True
            self._note_ended(self._start, record.time)
        if envelope.type is EventType.FILES_WRITTEN and (step.fresh or self._is_pending(step)):
            checkpoints = self._open[envelope.region, envelope.incarnation]
            arrival = Arrival(
                record.offset,
                record.time,
                envelope.id,
                envelope.region,
                envelope.incarnation,
                envelope.checkpoint,
                envelope.writer,
            )
            checkpoints.setdefault(envelope.checkpoint, []).append(arrival)
        elif envelope.type in _MAY_END and step.fresh:
            self._note_ended(state, record.time)
        if step.settled is not None and isinstance(step.settled.outcome, CutCommitted):
            self._commit(step.settled, record.time)

    def _note_ended(self, state: LogState, time: int) -> None:
        """Note the incarnations that have ended. The state forgets them; their events stay orphans."""
        for each in state.ended:
            self._ended.setdefault(each, time)
        for each in state.former.suspended if state.former is not None else ():
            # A revert has brought it back.
            self._ended.pop(each, None)

    def orphans(self, state: LogState) -> Iterator[Orphan]:
        """Yield the orphans, as far as the log has been read; `state` is the state there."""
        yield from self._losers
        ended = _ended_for_good([*self._ended, *state.ended], state)
        for (name, incarnation), checkpoints in self._open.items():
            for number, arrivals in checkpoints.items():
                reason, since = None, 0
                if reaches(_committed(state, name), incarnation, number):
                    # It arrived after the decision, which named others.
                    reason = f"checkpoint {number} of region {name} was committed without it"
                elif incarnation in ended and not _may_be_included(state, name, incarnation, number):
                    reason = f"incarnation {incarnation} of region {name} has ended"
                    since = self._ended.get(incarnation, 0)
                for arrival in arrivals if reason is not None else ():
                    yield Orphan(arrival, reason or "", max(since, arrival.time))

    def _is_pending(self, step: Step) -> bool:
        """True if an event that the state before the first record includes was in no decision then."""
        envelope, state = step.record.envelope, self._start
        if envelope.incarnation in state.ended:
            return False
        return not reaches(_committed(state, envelope.region), envelope.incarnation, envelope.checkpoint)

    def _commit(self, settled: LoggedDecision, time: int) -> None:
        """Split the events of a commit's checkpoints into winners, which are dropped here, and losers."""
        winners, number = frozenset(settled.decision.parts), settled.decision.id
        for name, to in settled.decision.moves.items():
            checkpoints = self._open.get((name, to.incarnation), {})
            for checkpoint in [each for each in checkpoints if each <= to.checkpoint]:
                reason = f"decision {number} committed checkpoint {checkpoint} of region {name} without it"
                for arrival in checkpoints.pop(checkpoint):
                    if arrival.offset not in winners:
                        self._losers.append(Orphan(arrival, reason, max(time, arrival.time)))


def _committed(state: LogState, name: str) -> Position | None:
    """Return the region's committed position: a revert may take the one of the open decision back."""
    regions = state.pending.before.regions if state.pending is not None else state.regions
    region = regions.get(name)
    return region.position if region is not None else None


def _ended_for_good(ended: Iterable[str], state: LogState) -> set[str]:
    """Return those of the ended incarnations that neither a withdrawal nor a revert can bring back."""
    former = [state.former, state.pending.before.former if state.pending is not None else None]
    return {*ended}.difference(*(each.suspended for each in former if each is not None))


def _may_be_included(state: LogState, name: str, incarnation: str, number: int) -> bool:
    """True if a checkpoint of an ended incarnation is in the open decision, or may enter a later one."""
    made, region = state.pending, state.regions.get(name)
    if made is not None and reaches(made.moves.get(name), incarnation, number):
        return True
    # Sealed checkpoints of a removed region are still committed, up to its final one.
    if region is None or region.incarnation is None or region.incarnation.id != incarnation:
        return False
    return region.removed and region.final is not None and number <= region.final
