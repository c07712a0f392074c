"""The invariants of the protocol, checked after every step against a dumb reading of log and table."""

from dataclasses import dataclass, field

from sluicegate.coordinator.core.effects import Effect, Publish, ReleaseOffsets, WriteRecord
from sluicegate.events.models import CutDecided
from sluicegate.simulator.contents import Contents
from sluicegate.simulator.faulting import Faulting
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.recovery import Recovery
from sluicegate.simulator.timing import Timing
from sluicegate.simulator.told import Told
from sluicegate.simulator.world import World


@dataclass
class Checker:
    """Looks at the world after every step, and at every effect.

    The product does not mark partitions yet, so I6 is checked as: no watermark that a commit carries
    passes what an active region has not committed.
    """

    world: World
    reading: Reading = field(init=False)
    contents: Contents = field(init=False)
    faulting: Faulting = field(init=False)
    told: Told = field(init=False)
    recovery: Recovery = field(init=False)
    timing: Timing = field(init=False)
    _read: int = 0
    _highest: int = 0

    def __post_init__(self) -> None:
        self.reading = Reading(self.world.coverage)
        self.contents = Contents(self.world, self.reading)
        self.faulting = Faulting(self.world, self.reading)
        self.told = Told(self.world, self.reading, self.contents, self.faulting)
        self.recovery = Recovery(self.world, self.reading, self.contents)
        self.timing = Timing(self.world, self.reading)

    def step(self) -> None:
        """Check all that is new."""
        for entry in self.world.log[self._read :]:
            abandoned = len(self.reading.abandoned)
            self.reading.read(entry)
            self.timing.read(entry, abandoned)
            self.contents.read(entry)
            if isinstance(entry.body, CutDecided):
                self._highest = max(self._highest, entry.body.decision)
        self._read = len(self.world.log)
        for verdict in self.contents.look():
            self.told.committed(verdict)
        self.told.look()
        self.recovery.look()

    def effect(self, effect: Effect) -> None:
        """Check what a coordinator has just done."""
        match effect:
            case Publish():
                self.contents.publishes(effect)
            case WriteRecord(record):
                self.step()
                self.recovery.record(record)
            case ReleaseOffsets():
                self.step()
                self.recovery.offsets(self.world.group_offset)

    def highest_decision(self) -> int:
        """The highest decision id in the log, valid or not."""
        return self._highest
