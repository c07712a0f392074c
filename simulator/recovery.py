"""I8 and I9: what a recovery needs is kept, and no file goes away."""

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.simulator.accounts import Pile
from sluicegate.simulator.contents import Contents
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import World


@dataclass
class Recovery:
    """What must still be readable.

    Janitors are not simulated, so I9 is checked as: no operation of ours on the table removes a file.
    """

    world: World
    reading: Reading
    contents: Contents
    _looked: int = 0

    def record(self, record: StateRecord) -> None:
        """I8: the record's low-water mark is in the log, and nothing unresolved is before it."""
        if record.low_water < self.world.log_start:
            raise Violation(
                "I8", f"the record asks for offset {record.low_water}, which retention has removed"
            )
        self._check(record.low_water, f"the record's low-water mark is {record.low_water}", record.applied)

    def offsets(self, offset: int) -> None:
        """I8: the same of the group offset."""
        self._check(offset, f"the group offset is {offset}", offset)

    def gone(self, offset: int) -> None:
        """I8: what retention has removed is needed for nothing any more."""
        envelope = self.world.log[offset].envelope
        for pile in (*self._undecided(), *self._pending()):
            # A checkpoint that was carried begins behind what stood there first.
            named = pile.completion.events if pile.completion is not None else ()
            if envelope.id in named and pile.first <= offset:
                raise Violation("I8", f"the event at offset {offset} is needed, but retention has removed it")

    def _undecided(self) -> Iterator[Pile]:
        for account in self.reading.regions.values():
            for lineage in account.chain:
                yield from account.lives[lineage].open().values()

    def _pending(self) -> Iterator[Pile]:
        for number, verdict in self.reading.valid.items():
            if number > self.contents.committed or (number in self.contents.voided and not verdict.void):
                for region, lineage, checkpoint in verdict.groups:
                    yield self.reading.regions[region].lives[lineage].piles[checkpoint]

    def look(self) -> None:
        """I9: the table only grows."""
        if self.contents.committed != self._looked:
            self._looked = self.contents.committed
            if gone := self.contents.gone():
                raise Violation("I9", f"gone from the table: {gone}")

    def _check(self, mark: int, what: str, applied: int) -> None:
        first = self._first_needed(applied)
        if first is not None and first < mark:
            raise Violation("I8", f"{what}, but the event at offset {first} is needed")

    def _first_needed(self, applied: int) -> int | None:
        """The first offset of what is neither in the table nor void, up to where somebody has read."""
        needed = [
            pile.first
            for pile in (*self._undecided(), *self._pending())
            if not pile.passed and (pile.arrived or pile.completion)
        ]
        return min((offset for offset in needed if offset <= applied), default=None)
