"""Completions and events that ought to have arrived: a region stalls for them once they are overdue.

What comes out of order is filled a moment later, and is no stall. It is one when it still lacks after a
while, and the log has been read to an end fetched after that. All of this is work in hand: no decision
depends on it.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from sluicegate.coordinator.core.book import WAY_OUT, Book
from sluicegate.events.envelope import Envelope

_LOOKS: Final = 10
"""So often in the time after which something is overdue."""
_MOST: Final = 1_000
"""Events of which it is known where they lie, of those without effect and of those that are decided."""

Place = tuple[str, str, int]
"""Region, lineage and checkpoint."""


class _Place(NamedTuple):
    region: str
    lineage: str
    checkpoint: int


class _Lack(NamedTuple):
    """A completed checkpoint that lacks its predecessor's completion, or events that it names."""

    place: _Place
    kind: Literal["predecessor", "events"]


class Overdue:
    """What the completed checkpoints of one stream lack for longer than it takes to arrive."""

    def __init__(self, book: Book, after: int, known: Mapping[str, Place]) -> None:
        """`after` in milliseconds; `known` is where the record says that named events lie."""
        self._book = book
        self._after = after
        self._look_at = 0
        self._since: dict[_Lack, int] = {}
        self._late: set[_Lack] = set()
        """What has lacked for so long, as of the last look."""
        self._overdue: dict[str, list[_Lack]] = {}
        """By region, what lacks though the log was read to an end fetched after it was late."""
        self._lies: dict[_Lack, tuple[str, _Place]] = {}
        """An event that a checkpoint names, and where it lies instead."""
        self._unused = {event: _Place(*place) for event, place in known.items()}
        self._decided: dict[str, _Place] = {}
        """The places of the last decisions' events."""

    @property
    def known(self) -> dict[str, Place]:
        """Where named events lie, for the record: a successor may not read them again."""
        return dict(self._lies.values())

    def unused(self, envelope: Envelope) -> None:
        """Remember where an event lies that has no effect there: somebody may name it elsewhere."""
        _remember(self._unused, envelope.id, _Place(envelope.region, envelope.lineage, envelope.checkpoint))

    def decided(self) -> None:
        """Remember where the events lie that the last decision includes: a later checkpoint may name them."""
        for (region, lineage), ledger in self._book.included.items():
            for number, entry in ledger.checkpoints.items():
                for event in entry.parts:
                    _remember(self._decided, event, _Place(region, lineage, number))

    def look(self, now: int, *, caught_up: bool) -> bool:
        """Look, if it is time. Return whether an end of the log must be fetched from now on."""
        if now < self._look_at:
            return False
        self._look_at = now + max(1, self._after // _LOOKS)
        self._since = {lack: self._since.get(lack, now) for lack in self._lacks()}
        late = {lack for lack, since in self._since.items() if now - since >= self._after}
        fresh = late - self._late
        if caught_up:
            self._overdue = {}
            for lack in sorted(late & self._late):
                self._overdue.setdefault(lack.place.region, []).append(lack)
            self._find()
        self._late = late
        return bool(fresh)

    def reason(self, region: str) -> str | None:
        """Why a region cannot go on for something that is overdue; None if it can."""
        for lack in self._overdue.get(region, ()):
            if (found := self._sentence(lack)) is not None:
                return found
        return None

    def _lacks(self) -> Iterator[_Lack]:
        """The first lack of each kind, of every lineage."""
        for (region, lineage), ledger in self._book.ledgers.items():
            if ledger.gaps:
                yield _Lack(_Place(region, lineage, next(iter(ledger.gaps))), "predecessor")
            number = next((number for number, entry in ledger.checkpoints.items() if entry.missing), None)
            if number is not None:
                yield _Lack(_Place(region, lineage, number), "events")

    def _find(self) -> None:
        """Look where the events lie that are overdue."""
        lies: dict[_Lack, tuple[str, _Place]] = {}
        for lack in (each for found in self._overdue.values() for each in found if each.kind == "events"):
            for event in sorted(self._missing(lack.place)):
                if (place := self._place_of(event)) is not None:
                    lies[lack] = (event, place)
                    break
        self._lies = lies

    def _missing(self, place: _Place) -> set[str]:
        ledger = self._book.ledgers.get((place.region, place.lineage))
        entry = ledger.checkpoints.get(place.checkpoint) if ledger else None
        return entry.missing if entry is not None else set()

    def _place_of(self, event: str) -> _Place | None:
        for ledgers in (self._book.ledgers, self._book.included):
            for (region, lineage), ledger in ledgers.items():
                for number, entry in ledger.checkpoints.items():
                    if event in entry.parts:
                        return _Place(region, lineage, number)
        return self._unused.get(event) or self._decided.get(event)

    def _sentence(self, lack: _Lack) -> str | None:
        region, lineage, number = lack.place
        ledger = self._book.ledgers.get((region, lineage))
        if ledger is None:
            return None
        if lack.kind == "predecessor":
            before = ledger.gaps.get(number)
            return None if before is None else _lacks_predecessor(lack.place, before)
        event, lies = self._lies.get(lack, ("", None))
        if lies is None or event not in self._missing(lack.place):
            return None
        where = "before that lineage was opened"
        if lies != lack.place:
            where = f"for checkpoint {lies.checkpoint} of lineage {lies.lineage} of region {lies.region}"
        return (
            f"region {region}: checkpoint {number} of lineage {lineage} names event {event}, which its "
            f"writer sent {where}, so the checkpoint never becomes complete. "
            f"Correct the writer, and {WAY_OUT}"
        )


def _remember(places: dict[str, _Place], event: str, place: _Place) -> None:
    places.pop(event, None)
    places[event] = place
    if len(places) > _MOST:
        del places[next(iter(places))]


def _lacks_predecessor(place: _Place, before: int) -> str:
    return (
        f"region {place.region}: checkpoint {place.checkpoint} of lineage {place.lineage} follows {before}, "
        "which was never completed in this stream, so it waits. If the query wrote to another stream "
        "before, start it in an empty checkpoint location, with a source that begins right after the "
        f"committed rows; else {WAY_OUT}"
    )
