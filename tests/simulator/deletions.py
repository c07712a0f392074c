"""Checks of deletions: of log records that anything unresolved needs, and of files that may be committed."""

from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.envelope import EventType
from tests.simulator.truth import Truth
from tests.simulator.violation import Violation
from tests.simulator.world import Entry, World

_OF_CHECKPOINTS: Final = (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED)


@dataclass
class Deletions:
    """Everything that is unresolved, by its first event."""

    world: World
    truth: Truth
    _first: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By region, incarnation and checkpoint, the offset of the first event."""
    _needed: list[int] = field(default_factory=list)
    """By offset, the smallest offset that a recovery from there needs."""
    _removed: set[str] = field(default_factory=set)
    """Deleted files that were checked."""

    def read(self, entry: Entry) -> None:
        """Note the first offset that is needed, after the account has read a record."""
        at = entry.envelope
        if at.type in _OF_CHECKPOINTS:
            self._first.setdefault((at.region, at.incarnation, at.checkpoint), entry.offset)
        self._first = {key: first for key, first in self._first.items() if self.truth.is_unresolved(*key)}
        self._needed.append(min(self._first.values(), default=entry.offset + 1))

    def check_records(self) -> None:
        """Check the first offset of the log, and the group's offset."""
        world, needed = self.world, self._needed[-1] if self._needed else 0
        if world.kept is None and world.begin > needed:
            raise Violation("I8", f"records before {world.begin} are deleted, but {needed} is needed")
        if world.released > needed:
            raise Violation("I8", f"the group's offset is {world.released}, but {needed} is needed")

    def check_low_water(self, record: StateRecord) -> None:
        """Check a state record before it is written; the account has read the log."""
        if record.applied < 0:
            return
        needed = self._needed[record.applied]
        if record.low_water > needed:
            raise Violation("I8", f"low-water mark {record.low_water}, but {needed} is needed")

    def check_files(self) -> None:
        """Check the newly deleted files: no snapshot has them, and no decision may include them."""
        fresh = self.world.removed - self._removed
        if not fresh:
            return
        self._removed |= fresh
        for table in (self.world.table, *self.world.further.values()):
            if kept := fresh & table.referenced():
                raise Violation("I9", f"{sorted(kept)} are in {table.name}")
        for entry in self.world.log:
            at = entry.envelope
            if at.id in fresh and self.truth.may_include(at.region, at.incarnation, at.checkpoint, at.id):
                raise Violation("I9", f"{at.id} may still be committed")
