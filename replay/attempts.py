"""Attempts of a stream that no commit will include, by the log: losing attempts, and replaced work.

Pure. An event is orphaned once no later record can change that. There are two cases. A decision that is in
the table includes its checkpoint without naming the event. Or its checkpoint follows the end of a replaced
lineage; such an end only ever moves back. Events judged before the reading began are not judged again.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from sluicegate.events.envelope import EventType
from sluicegate.replay.course import Course, Settled, Taken

Lived = tuple[str, str]
"""Region and lineage."""


class Arrival(NamedTuple):
    """One `files.written` event of the log."""

    offset: int
    time: int
    event: str
    region: str
    lineage: str
    checkpoint: int
    writer: str


class Orphan(NamedTuple):
    """An attempt that no commit will include, as far as the log has been read."""

    arrival: Arrival
    reason: str
    since: int
    """Append time in milliseconds of the record that settled it, or of the event itself if that is later."""


class Attempts:
    """Open and losing attempts of a course."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._judged = course.book.applied
        """Events up to this offset were judged before the reading began, if their checkpoint was decided."""
        self._open: dict[Lived, dict[int, list[Arrival]]] = defaultdict(dict)
        self._named: dict[tuple[str, str, int], frozenset[str]] = {}
        self._losers: list[tuple[Arrival, int, int]] = []
        """The arrival, the decision that left it out, and the time in milliseconds of that decision."""
        self._ends: dict[Lived, tuple[int, int]] = {}
        """The last valid checkpoint of each replaced lineage, and the replacement time in milliseconds."""

    def note(self, offset: int, time: int, taken: Taken) -> None:
        """Apply the effect of one record on the stream."""
        envelope = taken.envelope
        if envelope.type is EventType.FILES_WRITTEN:
            arrival = Arrival(
                offset,
                time,
                envelope.id,
                envelope.region,
                envelope.lineage,
                envelope.checkpoint,
                envelope.writer,
            )
            self._arrived(arrival, copied=envelope.origin is not None)
        elif envelope.type is EventType.CHECKPOINT_COMPLETED:
            self._completed(offset, envelope.region, envelope.lineage, envelope.checkpoint)
        elif envelope.type is EventType.REGION_OPENED and taken.ignored is None:
            self._note_ends(time)
        for settled in taken.settled:
            self.passed(settled, time)

    def orphans(self, committed: int, low_water: int) -> Iterator[Orphan]:
        """Return the orphans, if the table has the decisions up to `committed`.

        Only events before `low_water` count, because no recovery reads them again.
        """
        for arrival, decision, time in self._losers:
            if decision <= committed and arrival.offset < low_water:
                why = f"checkpoint {arrival.checkpoint} is committed without it (by decision {decision})"
                yield Orphan(arrival, why, max(time, arrival.time))
        for (region, lineage), checkpoints in self._open.items():
            end, time = self._end(region, lineage)
            for number, arrivals in checkpoints.items():
                if end is None or number <= end:
                    continue
                why = f"lineage {lineage} of region {region} was replaced behind checkpoint {end}"
                if end < 0:
                    why = f"lineage {lineage} of region {region} was replaced before its first checkpoint"
                for arrival in arrivals:
                    if arrival.offset < low_water:
                        yield Orphan(arrival, why, max(time, arrival.time))

    def _arrived(self, arrival: Arrival, *, copied: bool) -> None:
        region = self._course.book.state.regions.get(arrival.region)
        lived = region.lineages.get(arrival.lineage) if region else None
        if lived is None or arrival.offset < lived.opened_at:
            # A producer may send it again after its lineage opens, so nothing is settled yet.
            return
        decided = -1 if lived.decided is None else lived.decided
        if arrival.checkpoint > decided:
            checkpoints = self._open[arrival.region, arrival.lineage]
            checkpoints.setdefault(arrival.checkpoint, []).append(arrival)
        elif arrival.offset > self._judged and not copied:
            # A winner always precedes its decision in the log; only a carried copy of it may follow.
            self._losers.append((arrival, self._course.book.state.decided, arrival.time))

    def _completed(self, offset: int, region: str, lineage: str, checkpoint: int) -> None:
        """Note the events that a completion names, if it is the first of its checkpoint."""
        ledger = self._course.book.ledgers.get((region, lineage))
        entry = ledger.checkpoints.get(checkpoint) if ledger is not None else None
        if entry is not None and entry.completion is not None and entry.completion.offset == offset:
            self._named[region, lineage, checkpoint] = frozenset(entry.completion.body.events)

    def _note_ends(self, time: int) -> None:
        for name, region in self._course.book.state.regions.items():
            for lineage, lived in region.lineages.items():
                held = self._ends.get((name, lineage))
                if lived.limit is not None and (held is None or lived.limit < held[0]):
                    self._ends[name, lineage] = (lived.limit, time)

    def _end(self, region: str, lineage: str) -> tuple[int | None, int]:
        limit = self._course.book.state.regions[region].lineages[lineage].limit
        return limit, self._ends.get((region, lineage), (0, 0))[1]

    def passed(self, settled: Settled, time: int) -> None:
        """Split the attempts that a decision includes into winners, which are dropped here, and losers.

        Calling it again for the same decision changes nothing.
        """
        if settled.voided:
            return
        taken, number = frozenset(settled.decision.parts), settled.decision.id
        since = max(settled.time, 0) or time
        for span in settled.spans:
            checkpoints = self._open.get((span.region, span.lineage), {})
            for checkpoint in [each for each in checkpoints if span.after < each <= span.upto]:
                named = self._named.pop((span.region, span.lineage, checkpoint), None)
                for arrival in checkpoints.pop(checkpoint):
                    if named is not None and arrival.event not in named and arrival.offset not in taken:
                        self._losers.append((arrival, number, since))
