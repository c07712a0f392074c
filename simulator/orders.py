"""What operators and job owners order: by way of the log, or by starting the job anew."""

from dataclasses import dataclass, field, replace

from sluicegate.coordinator.core.machine import MachineSettings
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Parent, StreamCommand, StreamPolicy, StreamStalled
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.world import STREAM, World

MOST_REGIONS = 7


@dataclass
class Orders:
    """The people around a stream."""

    world: World
    fleet: Fleet
    checker: Checker
    drivers: list[Driver]
    halted: bool = False
    _splits: list[tuple[Assignment, list[Driver], list[Driver]]] = field(default_factory=list)
    """Of each re-split: the assignment before, the regions that it ended, and those that follow them."""

    def command(self, **what: object) -> None:
        """Append an order to the log."""
        body = StreamCommand.model_validate(what)
        self.world.append(Envelope(self.world.new_id("c"), EventType.STREAM_COMMAND, STREAM), body)

    def pause(self, dice: Dice) -> None:
        """Nothing is decided any more."""
        self.halted = True
        self.world.saw("pause")
        self.command(command="pause")

    def log_stall(self, dice: Dice) -> None:
        """Somebody finds the stream beyond help, and says so in the log."""
        self.halted = True
        self.world.saw("stall in the log")
        body = StreamStalled(
            reason="its events stand in another partition; resume the stream when they do not"
        )
        self.world.append(Envelope(self.world.new_id("c"), EventType.STREAM_STALLED, STREAM), body)

    def resume(self, dice: Dice) -> None:
        """The stream goes on."""
        if self.halted:
            self.halted = False
            self.world.saw("resume")
            self.command(command="resume")

    def savepoint(self, dice: Dice) -> None:
        """A full cut of everything that is completed by now."""
        self.world.saw("savepoint")
        self.command(command="savepoint", name=self.world.new_id("s"))

    def drain(self, dice: Dice) -> None:
        """The same, and every region is closed; the job is started again later."""
        self.world.saw("drain")
        self.command(command="drain", name=self.world.new_id("s"))
        if dice.chance(0.7):
            for driver in self.drivers:
                if driver.active:
                    driver.restart()
                    driver.silent_until = self.world.now + 1_000

    def void(self, dice: Dice) -> None:
        """Give the last decision up, whether or not it is in the table already."""
        reading = self.checker.reading
        verdict = reading.valid.get(reading.decided)
        if verdict is None or (reading.decided <= self.checker.contents.committed and dice.chance(0.7)):
            return
        region, _, checkpoint = dice.pick(verdict.groups)
        if not any(driver.region == region and not driver.stopped for driver in self.drivers):
            return
        self.world.saw("void")
        self.command(command="void", decision=verdict.number, region=region, checkpoint=checkpoint)

    def remove(self, dice: Dice) -> None:
        """A region that does not come back is waited for no more."""
        gone = [driver for driver in self.drivers if driver.dead and not driver.stopped]
        driver = dice.pick(gone or self.drivers)
        self.world.saw("remove")
        self.command(command="remove", region=driver.region)

    def policy(self, dice: Dice) -> None:
        """The settings change, and all coordinators are started again."""
        changed = StreamPolicy(
            number=0,
            partial=dice.pick(("allow", "never")),
            max_consecutive_fallbacks=dice.between(1, 3),
            allowed_locations=("memory://",),
        )
        self.world.saw("policy")
        self.world.tell("the settings change")
        self.fleet.settings = with_policy(self.fleet.settings, changed)
        self.fleet.nodes = [self.fleet.boot() for _ in self.fleet.nodes]

    def resplit(self, dice: Dice) -> None:
        """The job is started again with other regions: one is split, two are merged, or both."""
        fit = [driver for driver in self.drivers if self._may_end(driver)]
        if not fit or len({driver.region for driver in self.drivers}) >= MOST_REGIONS:
            return
        ended = [fit.pop(dice.below(len(fit)))]
        if fit and dice.chance(0.5):
            ended.append(fit.pop(dice.below(len(fit))))
        count = dice.between(1, 2)
        first = len(self.drivers)
        names = [f"r{first + number}" for number in range(count)]
        others = [driver for driver in self.drivers if not driver.stopped and driver not in ended]
        before = ended[0].assignment
        assignment = self._start_anew(others, names)
        parents = tuple(
            Parent(region=driver.region, lineage=driver.lineage, checkpoint=driver.batch - 1)
            for driver in ended
        )
        shards = [(shard, at) for driver in ended for shard, at in driver.reading.items()]
        for driver in ended:
            driver.stopped = True
        children = [
            Driver(self.world, ended[0].job, name, assignment, dict(shards[place::count]), parents=parents)
            for place, name in enumerate(names)
        ]
        self.drivers.extend(children)
        self._splits.append((before, ended, children))
        self.world.saw(f"split {len(ended)} to {count}")

    def watch(self) -> None:
        """Start the job again where an opening was refused for its assignment."""
        if self._splits and any(driver.too_deep > 2 and not driver.stopped for driver in self.drivers):
            self._go_back()
        if any(driver.outnumbered and not driver.stopped for driver in self.drivers):
            self._start_anew([driver for driver in self.drivers if not driver.stopped], [])
            self.world.saw("started under the next number")

    def _go_back(self) -> None:
        """Run the regions before, under their number, until they have had a full cut."""
        before, ended, children = self._splits[-1]
        reading = self.checker.reading
        known = reading.next or reading.assignment
        for driver in self.drivers:
            driver.too_deep = 0
        if known is not None and known.number > before.number:
            return
        self._splits.pop()
        for driver in (*ended, *children):
            driver.stopped = driver in children
        for driver in self.drivers:
            driver.assignment = before
            if not driver.stopped and not driver.closed:
                driver.restart()
        self.world.tell("the job starts again with the regions {}", ", ".join(before.regions))
        self.world.saw("back to the regions before")

    def _start_anew(self, drivers: list[Driver], more: list[str]) -> Assignment:
        """Start the job again with these regions, under the next number."""
        number = max(driver.assignment.number for driver in self.drivers) + 1
        assignment = Assignment(number=number, regions=(*(driver.region for driver in drivers), *more))
        for driver in drivers:
            driver.assignment = assignment
            driver.outnumbered = False
            if not driver.closed:
                driver.restart()
        self.world.tell("the job starts anew with the regions {}", ", ".join(assignment.regions))
        return assignment

    def _may_end(self, driver: Driver) -> bool:
        """Whether another region may go on from where this one is."""
        reading = self.checker.reading
        if reading.decided in reading.ordered:
            # A region that is held out while others build on it has no way out.
            return False
        account = reading.regions.get(driver.region)
        sound = account is not None and not account.fault and account.live == driver.lineage
        return sound and driver.active and not driver.never and driver.batch > driver.first


def with_policy(settings: MachineSettings, policy: StreamPolicy) -> MachineSettings:
    """The settings of coordinators that boot from now on."""
    return replace(settings, policy=policy)
