"""What operators order, by way of the log or of the settings."""

from dataclasses import dataclass, replace

from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import StreamCommand, StreamPolicy, StreamStalled
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.world import STREAM, World


@dataclass
class Orders:
    """The people around a stream."""

    world: World
    fleet: Fleet
    checker: Checker
    drivers: list[Driver]
    halted: bool = False

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
        if verdict is None or (reading.decided <= self.checker.contents.committed and dice.chance(0.5)):
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

    def allow_deeper(self) -> None:
        """Do what the refusal of an assignment says when none of those before can ever have a full cut."""
        held = self.fleet.settings.policy
        deeper = held.model_copy(update={"max_consecutive_fallbacks": held.max_consecutive_fallbacks + 1})
        self.world.saw("deeper refs allowed")
        self.world.tell("the operator allows {} fallbacks", deeper.max_consecutive_fallbacks)
        self.fleet.settings = with_policy(self.fleet.settings, deeper)
        self.fleet.nodes = [self.fleet.boot() for _ in self.fleet.nodes]


def with_policy(settings: MachineSettings, policy: StreamPolicy) -> MachineSettings:
    """The settings of coordinators that boot from now on."""
    return replace(settings, policy=policy)
