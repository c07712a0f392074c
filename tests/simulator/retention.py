"""Deletion of log records: by coordinators, step by step, and by others, who restore them later."""

from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import deletion_start
from tests.simulator.dice import Dice
from tests.simulator.world import World

_WINDOWS: Final = (0, 0, 5, 30)
"""Number of newest records that the replay window keeps."""


@dataclass
class Pass:
    """One pass of the retention of one process, between two of its steps."""

    start: int
    """The offset before which it deletes."""
    former: tuple[int, ...]
    """Keys of the base records that it found."""
    deleted: bool = False


@dataclass
class Retention:
    """The passes under way. A crash ends one after any step; a process that stood still continues."""

    world: World
    passes: list[Pass] = field(default_factory=list)
    _overwritten: dict[int, str] = field(default_factory=dict)
    """Base records that somebody has overwritten, by key."""

    def delete(self, acknowledged: int, dice: Dice) -> bool:
        """Take a step of a pass, or begin one; return True if records were deleted.

        `acknowledged` is the low-water mark of the newest record that the process has written or read.
        """
        begin = self.world.begin
        if self.passes and dice.chance(0.4):
            self._advance(dice.pick(self.passes))
        elif (made := self._begin(acknowledged, dice)) is not None:
            self.passes.append(made)
            for _ in range(dice.pick((0, 1, 2, 2))):
                self._advance(made)
            del self.passes[:-3]
        return self.world.begin > begin

    def _begin(self, acknowledged: int, dice: Dice) -> Pass | None:
        """Write the base record, and read it back."""
        world = self.world
        if world.record is None:
            return None
        record = StateRecord.model_validate_json(world.record)
        kept_from = len(world.log) - dice.pick(_WINDOWS)
        start = deletion_start([acknowledged, record.low_water], kept_from, world.begin)
        if start is None:
            return None
        former = tuple(world.bases)
        world.bases[start] = world.record
        world.tell("base record for a log from {}", start)
        return Pass(start, former)

    def _advance(self, made: Pass) -> None:
        """Delete the records, or the base records of logs that began earlier."""
        world = self.world
        if not made.deleted:
            made.deleted = True
            world.begin = max(world.begin, made.start)
            world.tell("records deleted before {}", made.start)
            return
        self.passes.remove(made)
        for start in made.former:
            if start < made.start:
                world.bases.pop(start, None)

    def expire(self, dice: Dice) -> bool:
        """Lose records that are still needed, as by a time limit of the topic; there is a backup of it."""
        world = self.world
        if world.kept is not None or world.record is None or world.begin >= len(world.log):
            return False
        world.kept = world.begin
        world.begin = dice.between(world.begin + 1, len(world.log))
        world.tell("records lost before {}", world.begin)
        return True

    def overwrite(self, older: str) -> bool:
        """Have an older record in the place of the newest base record; there is a backup of the topic.

        No coordinator does that: the record that it copies needs nothing before the key. The backup has the
        base record, too: a coordinator that stood still after it had read its own back deletes records then.
        """
        world, start = self.world, max(self.world.bases, default=None)
        if start is None or world.kept is not None:
            return False
        if StateRecord.model_validate_json(older).low_water >= start:
            return False
        self._overwritten[start] = world.bases[start]
        world.bases[start], world.kept = older, 0
        world.tell("the base record for {} is an older record", start)
        return True

    def restore(self) -> bool:
        """Restore the topics from the backup."""
        world = self.world
        if world.kept is None:
            return False
        world.begin, world.kept = world.kept, None
        world.bases |= self._overwritten
        self._overwritten.clear()
        world.tell("topic restored from {}", world.begin)
        world.saw("topic restored")
        return True
