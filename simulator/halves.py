"""A region that is too hot keeps a part of its shards, and another one reads the rest from there on."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate.events.models import Assignment, Parent, Position
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.world import World

StartAnew = Callable[[list[str]], Assignment]
"""Starts the job again with the regions that run, and with these."""


@dataclass(eq=False)
class Half:
    """A region that goes on with less, and the one beside it."""

    driver: Driver
    beside: Driver
    at: Position | None
    """Where both go on from; None: from before the first one's first checkpoint."""
    rest: frozenset[str]
    """The shards that the other one reads."""
    before: Assignment
    number: int
    """The assignment with which the owner did the last to it."""
    reunited: bool = False
    """The other one was given up: the first one reads all the shards again."""
    accepted: bool = False
    """That was accepted before it was given up, so that both can go on from there only."""

    @property
    def key(self) -> tuple[str, int] | None:
        return (self.at.lineage, self.at.checkpoint) if self.at else None


@dataclass
class Halves:
    """Those that may still fall together, as the job's owner knows them."""

    world: World
    checker: Checker
    drivers: list[Driver]
    start_anew: StartAnew
    _open: list[Half] = field(default_factory=list)
    _originals: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._originals = frozenset(driver.region for driver in self.drivers)

    def holds(self, driver: Driver) -> bool:
        """Whether a region may not be ended yet: the owner may have to take its split back."""
        return any(driver in (half.driver, half.beside) for half in self._open)

    def begin(self, driver: Driver, dice: Dice) -> bool:
        """Split a region that may be ended, so that it goes on with a part; False if it cannot."""
        founded = driver.region in self._originals or driver.committed() is not None
        if len(driver.reading) < 2 or not founded:
            return False
        at, before, shards = driver.stands(), driver.assignment, list(driver.reading)
        if at is None:
            return False
        kept = frozenset(shards[: dice.between(1, len(shards) - 1)])
        rest = {shard: number for shard, number in driver.reading.items() if shard not in kept}
        driver.tied = True
        name = f"r{len(self.drivers)}"
        assignment = self.start_anew([name])
        driver.kept[at.lineage, at.checkpoint] = kept
        driver.rewind(at)
        beside = Driver(self.world, driver.job, name, assignment, rest, parents=driver.parents)
        self.drivers.append(beside)
        self._open.append(Half(driver, beside, at, frozenset(rest), before, assignment.number))
        self.world.saw("a region keeps a part of its shards")
        return True

    def watch(self) -> None:
        """Give the other region up where the first one has gone back behind it, or where it never comes."""
        for half in list(self._open):
            if half.reunited:
                self._see_to_the_rest(half)
            elif half.rest <= half.driver.reading.keys():
                # It went back to where it read all the shards, and was told that this is not so easy.
                if half.driver.opened or half.driver.outnumbered:
                    self._reunite(half)
            elif half.beside.outrun:
                self._reunite(half)
                half.driver.rewind(half.driver.committed())
            elif half.beside.root is not None and self._is_passed(half):
                self._open.remove(half)
                half.driver.tied = False

    def go_back(self, newest: int, known: int) -> bool:
        """Undo what was done with the newest assignment, if it was done here and nobody has read it."""
        half = next((half for half in self._open if half.number == newest), None)
        if half is None:
            return False
        if known > half.before.number:
            return True
        if half.reunited:
            half.reunited = half.beside.stopped = False
            half.number = half.before.number
        else:
            half.beside.stopped = True
            del half.driver.kept[half.key]
            self._open.remove(half)
            half.driver.tied = False
        for driver in self.drivers:
            driver.start_under(half.before)
        if half.accepted:
            self._move(half)
        else:
            half.driver.rewind(half.driver.committed() if self._is_passed(half) else half.at)
        self.world.tell("the job starts again with the regions {}", ", ".join(half.before.regions))
        self.world.saw("back to the regions before")
        return True

    def _move(self, half: Half) -> None:
        """Let both go on from where the first one has gone back to."""
        half.accepted = False
        driver, beside, parent = half.driver, half.beside, half.driver.parents[0]
        own = driver.kept[half.key]
        half.at = (
            Position(lineage=parent.lineage, checkpoint=parent.checkpoint)
            if parent.checkpoint is not None
            else None
        )
        read = driver.reading_at(half.at)
        driver.kept[half.key] = own & read.keys()
        driver.rewind(half.at)
        beside.begin_anew(driver.parents, {shard: at for shard, at in read.items() if shard not in own})
        self.world.saw("both go on from further back")

    def _is_passed(self, half: Half) -> bool:
        """Whether the first one was told that where both go on from is committed."""
        told = half.driver.committed()
        if half.at is None:
            return True
        if told is None:
            return False
        order = list(self.checker.reading.regions[half.driver.region].lives)
        place = (order.index(half.at.lineage), half.at.checkpoint)
        return (order.index(told.lineage), told.checkpoint) >= place

    def _reunite(self, half: Half) -> None:
        half.beside.stopped, half.beside.outrun, half.reunited = True, False, True
        half.before, half.accepted = half.driver.assignment, half.driver.opened
        half.number = self.start_anew([]).number
        self.world.saw("started under the next number")

    def _see_to_the_rest(self, half: Half) -> None:
        """Let the first one read on where the other one has come to in the table."""
        driver, beside = half.driver, half.beside
        told = driver.committed()
        if driver.opened and told is not None and half.rest <= driver.reading_at(told).keys():
            order = list(self.checker.reading.regions[driver.region].lives)
            if half.at is None or order.index(told.lineage) > order.index(half.at.lineage):
                self._open.remove(half)
                driver.tied = False
                return
        reached = beside.committed()
        named = any(parent.region == beside.region for parent in driver.parents)
        if driver.opened or driver.opening is not None or named or self._has_taken_over(half):
            return
        if half.rest <= driver.reading.keys() and reached is None:
            return
        if beside.root is not None:
            lineage, checkpoint = (reached.lineage, reached.checkpoint) if reached else (beside.root, None)
            taken = Parent(region=beside.region, lineage=lineage, checkpoint=checkpoint)
            driver.parents = (*driver.parents, taken)
        read = {shard: number for shard, number in driver.reading.items() if shard not in half.rest}
        driver.forget_plan()
        driver.reading = driver.lineage_start = {**read, **beside.reading_at(reached)}
        self.world.saw("took over from the region beside it")

    def _has_taken_over(self, half: Half) -> bool:
        """Whether what the first one goes on from now has the other one's work already."""
        lives = self.checker.reading.regions[half.driver.region].lives
        own = next((each for each in half.driver.parents if each.region == half.driver.region), None)
        order = list(lives)
        before = order[: order.index(own.lineage) + 1] if own is not None and own.lineage in lives else []
        return any(parent.region == half.beside.region for name in before for parent in lives[name].elsewhere)
