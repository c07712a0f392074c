"""Job owners: they start the job again with other regions, and again when that does not go on."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from sluicegate.events.models import Assignment, Parent, Position
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.halves import Halves
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.lineages import TOO_DEEP
from sluicegate.simulator.source import Reading
from sluicegate.simulator.world import World

MOST_REGIONS: Final = 9
PATIENCE: Final = 2
"""Refusals after which the owner does something."""
HOPELESS: Final = 5
"""How often that may change nothing before an operator is to allow deeper refs."""


@dataclass(eq=False)
class Split:
    """Some regions that were ended, and those that follow them."""

    before: Assignment
    ended: list[Driver]
    ends: list[Position | None]
    children: list[Driver]
    instead_of: "Split | None" = None
    """The one before from the same ends, of which nothing was committed that its owner knew of."""
    replaced: "Split | None" = None
    """The one before whose children were never accepted, because they named what they may not."""


@dataclass
class Splits:
    """The assignments of a stream, as its job's owner knows them."""

    world: World
    checker: Checker
    drivers: list[Driver]
    _splits: list[Split] = field(default_factory=list)
    _tries: Counter[int] = field(default_factory=Counter)
    """By assignment, how often the owner has seen to its being refused because others are pending."""
    halves: Halves = field(init=False)

    def __post_init__(self) -> None:
        self.halves = Halves(self.world, self.checker, self.drivers, self._start_anew)

    def split(self, dice: Dice) -> None:
        """Start the job again: one region is split, two are merged, or both."""
        if self._splits and dice.chance(0.4) and self._replace_children():
            return
        fit = [driver for driver in self.drivers if self._may_end(driver)]
        if not fit or len(self.drivers) >= MOST_REGIONS:
            return
        ended = [fit.pop(dice.below(len(fit)))]
        if dice.chance(0.4) and self.halves.begin(ended[0], dice):
            return
        if fit and dice.chance(0.5):
            ended.append(fit.pop(dice.below(len(fit))))
        count = dice.between(1, 2)
        self._follow(ended, [driver.stands() for driver in ended], count)
        self.world.saw(f"split {len(ended)} to {count}")
        if dice.chance(0.1) and not ended[0].completes_later:
            # A job of before is still there, with another log of offsets.
            ended[0].contradict()
            self.world.saw("contradict what others build on")

    def watch(self) -> None:
        """Do something where an opening is refused for its assignment, or what others build on stalls."""
        if any(each.too_deep > PATIENCE and not each.stopped for each in self.drivers):
            self._go_back()
        self.halves.watch()
        if any(driver.outnumbered and not driver.stopped for driver in self.drivers):
            self._start_anew([])
            self.world.saw("started under the next number")
        for split in self._splits:
            running = any(not heir.stopped for heir in self._heirs(split)[1])
            pairs = zip(split.ended, split.ends, strict=True)
            stalled = any(self._never_comes(driver, end) for driver, end in pairs)
            if running and (stalled or any(child.outrun and not child.stopped for child in split.children)):
                self._build_on_less(split)
                return

    def hopeless(self) -> bool:
        """Whether nothing of the owner's helps against an assignment's being refused; told once."""
        number = max(driver.assignment.number for driver in self.drivers)
        lately = [*self.checker.reading.openings.values()][-len(self.drivers) :]
        # Only where the log calls for it: else that would hide a refusal that is wrong.
        if self._tries[number] < HOPELESS or TOO_DEEP not in lately:
            return False
        self._tries[number] = 0
        return True

    def _may_end(self, driver: Driver) -> bool:
        """Whether another region may go on from where this one is."""
        account = self.checker.reading.regions.get(driver.region)
        sound = account is not None and not account.fault and account.live == driver.lineage
        fit = driver.active and not driver.lacking and bool(driver.finished) and driver.newer is None
        return sound and fit and not self.halves.holds(driver)

    def _follow(self, ended: list[Driver], ends: list[Position | None], count: int) -> None:
        """End regions at these checkpoints, and let others follow them."""
        first, before = len(self.drivers), ended[0].assignment
        for driver in ended:
            driver.stopped = True
        names = [f"r{first + number}" for number in range(count)]
        assignment = self._start_anew(names)
        parents = tuple(self._parent(driver, end) for driver, end in zip(ended, ends, strict=True))
        readings = _readings(ended, ends, count)
        children = [
            Driver(self.world, ended[0].job, name, assignment, reading, parents=parents)
            for name, reading in zip(names, readings, strict=True)
        ]
        self.drivers.extend(children)
        self._splits.append(Split(before, ended, ends, children))

    def _start_anew(self, more: list[str]) -> Assignment:
        """Start the job again with the regions that go on, and with more, under the next number."""
        running = [driver for driver in self.drivers if not driver.stopped]
        number = max(driver.assignment.number for driver in self.drivers) + 1
        assignment = Assignment(number=number, regions=(*(driver.region for driver in running), *more))
        for driver in running:
            driver.outnumbered = False
            driver.start_under(assignment)
        self.world.tell("the job starts anew with the regions {}", ", ".join(assignment.regions))
        return assignment

    def _go_back(self) -> None:
        """Run the regions before, under their number, until they have had a full cut."""
        reading = self.checker.reading
        known = reading.next or reading.assignment
        for driver in self.drivers:
            driver.too_deep = 0
        newest = max(driver.assignment.number for driver in self.drivers)
        self._tries[newest] += 1
        if known is None or self.halves.go_back(newest, known.number) or not self._splits:
            return
        last = self._splits[-1]
        if last.replaced is not None and known.number == last.replaced.children[0].assignment.number:
            self._name_others(last, last.replaced)
            return
        if known.number > last.before.number:
            return
        self._splits.pop()
        if last.instead_of is not None:
            self._splits.append(last.instead_of)
        again = last.instead_of.children if last.instead_of else last.ended
        for driver in (*again, *last.children):
            driver.stopped = driver in last.children
        for driver in self.drivers:
            driver.start_under(last.before)
        self.world.tell("the job starts again with the regions {}", ", ".join(last.before.regions))
        self.world.saw("back to the regions before")

    def _name_others(self, last: Split, again: Split) -> None:
        """Go on with the children that were refused: they name what those do that were to replace them."""
        self._splits[-1] = again
        again.ended, again.ends, again.instead_of = last.ended, last.ends, last.instead_of
        readings = _readings(again.ended, again.ends, len(again.children))
        pairs = zip(again.ended, again.ends, strict=True)
        parents = tuple(self._parent(driver, end) for driver, end in pairs)
        assignment = again.children[0].assignment
        for driver in (*last.children, *again.children):
            driver.stopped = driver in last.children
        for child, reading in zip(again.children, readings, strict=True):
            child.begin_anew(parents, reading)
        for driver in self.drivers:
            driver.start_under(assignment)
        self.world.tell("the job starts again with the regions {}", ", ".join(assignment.regions))
        self.world.saw("refused children name others")

    def _never_comes(self, driver: Driver, end: Position | None) -> bool:
        """Whether a region stalls before the checkpoint that others build on, and was told so."""
        account = self.checker.reading.regions[driver.region]
        if end is None or not account.fault or driver.region not in self.world.stalls:
            return False
        return account.ref is None or not account.at_or_beyond(account.ref, end)

    def _build_on_less(self, split: Split) -> None:
        """What others build on is held out, or was passed: new regions follow from what is committed."""
        for child in split.children:
            child.outrun = False
        concerned, gone = self._heirs(split)
        cut = self.world.newest.cut if self.world.newest else {}
        before = split.instead_of
        while before is not None:
            if any(self._is_decided(driver) for driver in before.children):
                self._go_on_from(before, concerned, gone)
                return
            before = before.instead_of
        if any(driver.region in cut for driver in gone):
            return
        roots = [driver for each in concerned for driver in each.ended if driver not in gone]
        ends = [driver.committed() if driver in split.ended else driver.stands() for driver in roots]
        for driver in gone:
            driver.stopped = True
        self._splits = [each for each in self._splits if each not in concerned]
        self._follow(roots, ends, 1)
        self._splits[-1].instead_of = split.instead_of
        if split.instead_of is not None:
            self._splits[-1].before = split.before
        if concerned == [split] and all(child.root is None for child in split.children):
            self._splits[-1].replaced = split
        self.world.saw("built anew on what is committed")

    def _replace_children(self) -> bool:
        """Start again with other regions that follow from the same checkpoints as the last ones."""
        last, cut = self._splits[-1], self.world.newest.cut if self.world.newest else {}
        fresh = [child.generation == 0 and not child.finished and child.opened for child in last.children]
        if not all(new or self._may_end(child) for new, child in zip(fresh, last.children, strict=True)):
            return False
        if any(child.region in cut for child in last.children) or len(self.drivers) >= MOST_REGIONS:
            return False
        for child in last.children:
            child.stopped = True
        self._splits.pop()
        self._follow(last.ended, last.ends, 1)
        self._splits[-1].instead_of = last
        self._splits[-1].before = last.children[0].assignment
        self.world.saw("replaced by others from the same end")
        return True

    def _is_decided(self, driver: Driver) -> bool:
        """Whether anything of a region is decided, by the log."""
        account = self.checker.reading.regions.get(driver.region)
        return account is not None and account.ref is not None

    def _go_on_from(self, split: Split, concerned: list[Split], gone: list[Driver]) -> None:
        """What was to be replaced was decided before: others follow from there."""
        for driver in gone:
            driver.stopped = True
        self._splits = [each for each in self._splits if each not in concerned]
        self._follow(split.children, [driver.stands() for driver in split.children], 1)
        if len(concerned) == 1 and all(child.root is None for child in gone):
            self._splits[-1].replaced = concerned[0]
        self.world.saw("went on from what was to be replaced")

    def _parent(self, driver: Driver, end: Position | None) -> Parent:
        """How those who follow a region say where they go on from."""
        kept = end is not None and (end.lineage, end.checkpoint) in driver.kept
        following = self._following(driver, end) if end is not None and kept else None
        if following is not None:
            # Another region went on from there too: what this one kept begins with its next lineage.
            return Parent(region=driver.region, lineage=following, checkpoint=None)
        lineage = end.lineage if end is not None else driver.root or driver.lineage
        return Parent(region=driver.region, lineage=lineage, checkpoint=end.checkpoint if end else None)

    def _following(self, driver: Driver, end: Position) -> str | None:
        """The lineage with which a region itself went on from there."""
        account = self.checker.reading.regions[driver.region]
        after = account.chain[account.chain.index(end.lineage) + 1 :] if end.lineage in account.chain else []
        return after[0] if after and account.lives[after[0]].start == end.checkpoint else None

    def _heirs(self, split: Split) -> tuple[list[Split], list[Driver]]:
        """All that follows from a split, directly or not."""
        concerned, gone = [split], list(split.children)
        for later in self._splits[self._splits.index(split) + 1 :]:
            if any(driver in gone for driver in later.ended):
                concerned.append(later)
                gone += later.children
        return concerned, gone


def _readings(ended: list[Driver], ends: list[Position | None], count: int) -> list[Reading]:
    """What each of so many regions reads on from these ends."""
    pairs = zip(ended, ends, strict=True)
    shards = [shard for driver, end in pairs for shard in driver.reading_at(end).items()]
    return [dict(shards[place::count]) for place in range(count)]
