"""Operators and the job's owner: they reset regions, begin assignments, give orders, and repair the table."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.problems import Code
from tests.simulator.dice import Dice
from tests.simulator.job import Driver
from tests.simulator.location import Location, Offsets
from tests.simulator.tables import Tables, is_ours
from tests.simulator.truth import Truth
from tests.simulator.world import STREAM, World

_WAITING = frozenset({Code.ASSIGNMENT_OPEN, Code.ASSIGNMENT_UNRESOLVED, Code.BASE_UNRESOLVED, Code.NO_POLICY})
"""Refusals that end by themselves: the driver asks again."""
_UNPROVEN: Final = frozenset({Code.ABSENCE_UNPROVEN, Code.TABLE_CONTRADICTS})


@dataclass
class People:
    """Everybody who gives orders. They read the commits topic, and have the job's own settings."""

    world: World
    truth: Truth
    drivers: list[Driver]
    tables: Tables
    asking: dict[str, str] = field(default_factory=dict)
    """By region, the id of a probe about the committed position."""
    closing: bool = False
    """True if the job is stopping, so that another assignment can begin."""
    paused: bool = False
    _orders: int = 0
    _regions: int = 0
    """Number of regions that had a new name."""

    def command(self, **arguments: object) -> None:
        """Append an order."""
        envelope = Envelope(self.world.new_id("o"), EventType.STREAM_COMMAND, STREAM)
        self.world.append(envelope, StreamCommand.model_validate(arguments))

    def working(self) -> list[Driver]:
        """Return the drivers of the current assignment."""
        return [driver for driver in self.drivers if not driver.gone]

    # --- the table --------------------------------------------------------------------------------

    def see_to_table(self, conditions: Iterable[Condition], dice: Dice) -> None:
        """Repair the table, or name its head, where nothing proves that a decision is absent."""
        if not _UNPROVEN.isdisjoint(each.problem.code for each in conditions):
            self._name_head_or_restore(dice)

    def _name_head_or_restore(self, dice: Dice) -> None:
        table, made = self.world.table, self.truth.open
        number = made.body.decision if made is not None else self.truth.decided + 1
        published = any(is_ours(each, number) for each in table.history)
        if table.head is None or published or dice.chance(0.3) or not self.tables.is_provable():
            self.tables.restore()
            return
        head = table.head.ref
        self.command(command="resume", decision=number, head=head)
        self.paused = False
        self.world.saw("an operator names the head")

    # --- resets -----------------------------------------------------------------------------------

    def care(self, dice: Dice) -> None:
        """See to one region: reset it if it is refused, stalled or reverted; start it if it was reopened."""
        for driver in self.working():
            place = self.truth.places.get(driver.region)
            if driver.state == "closed" and place is not None and place.live and not place.closed:
                # Somebody registered from a copy of its location after it had closed.
                driver.state = "new"
                return
            if driver.state == "running" and place is not None and place.run not in ("", driver.run):
                # Its query reads that a copy of its location has registered, fails, and is started again.
                driver.crash()
                return
        for driver in self.working():
            if driver.region in self.asking:
                self._reset_if_answered(driver, dice)
                return
        troubled = [driver for driver in self.working() if self._needs_reset(driver)]
        if troubled:
            self.ask_position(dice.pick(troubled))

    def _needs_reset(self, driver: Driver) -> bool:
        if driver.state == "refused" and driver.answer is not None and driver.answer.problem is not None:
            if driver.answer.problem.code in _WAITING:
                driver.state = "new"
                return False
            if driver.answer.problem.table is not None:
                # Its tables have to be added to the settings, and a coordinator has to log them.
                driver.state = "new"
                return False
            if driver.answer.problem.code is Code.REGION_REMOVED:
                driver.state, self.closing = "stopped", True
                return False
            return True
        place = self.truth.places.get(driver.region)
        return place is not None and (place.stalled or driver.wrong) and not place.removed

    def ask_position(self, driver: Driver) -> None:
        """Ask for a region's committed position, with a probe of an incarnation that nobody uses."""
        if driver.region in self.asking:
            return
        body = RegionRegistered(assignment=driver.assignment, probe=True)
        event = self.world.new_id("e")
        self.world.append(
            Envelope(event, EventType.REGION_REGISTERED, STREAM, driver.region, self.world.new_id("ask")),
            body,
        )
        self.asking[driver.region] = event

    def _reset_if_answered(self, driver: Driver, dice: Dice) -> None:
        found = self.world.answers.get(self.asking[driver.region])
        if found is None:
            return
        del self.asking[driver.region]
        place = self.truth.places.get(driver.region)
        if found.unresolved is not None and place is not None and dice.chance(0.5):
            # By hand, to the position that is only decided: nothing may begin there before the outcome.
            driver.reset(place.at, found.live, self.decided_offsets(driver))
            self.world.saw("region reset to a decided position")
            return
        driver.reset(found.committed, found.live, driver.offsets_of(found))
        self.world.saw("region reset")

    # --- assignments ------------------------------------------------------------------------------

    def reassign(self, dice: Dice) -> bool:
        """Begin to stop the job, rarely before its first commit; another assignment begins after its last."""
        if self.truth.provisional and dice.chance(0.7):
            return False
        self.closing = True
        return True

    def match(self, dice: Dice) -> None:
        """See which assignment is in force: an order had no effect, or a stray query was there first."""
        truth = self.truth
        ours = self._drivers_of(truth.number, truth.regions)
        if truth.number is None or any(not driver.gone for driver in ours):
            return
        if not ours and not truth.provisional and not truth.active():
            # A stray assignment was closed: the job begins again after it.
            newest = max(driver.assignment.number for driver in self.drivers)
            last = {d.region: d for d in self.drivers if d.assignment.number == newest}
            for driver in self.drivers:
                driver.gone, driver.state = last.get(driver.region) is not driver, "stopped"
            self.closing = True
        if not ours:
            self.withdraw(dice)
            return
        for driver in self.drivers:
            driver.gone = driver not in ours
            place = truth.places.get(driver.region)
            removed = place is not None and place.removed
            driver.state = "stopped" if driver.gone or removed else "new"
            self.closing = self.closing or (removed and not driver.gone)
        self.asking.clear()

    def _drivers_of(self, number: int | None, regions: Iterable[str]) -> list[Driver]:
        """Return the drivers of an assignment: the newest of each region, since the job may begin it twice.

        The job may also have begun another assignment of that number, which lost against a stray one.
        """
        wanted = {*regions}
        newest: dict[str, Driver] = {}
        for driver in self.drivers:
            if driver.assignment.number == number and {*driver.assignment.regions} == wanted:
                newest[driver.region] = driver
        return list(newest.values())

    def see_to_assignment(self, dice: Dice) -> None:
        """Stop the drivers, or begin the next assignment once the former one has ended."""
        if not self.closing:
            return
        for driver in self.working():
            if (
                driver.state == "running"
                and driver.batch is None
                and not (driver.uploads and dice.chance(0.7))
            ):
                driver.close()
                return
        truth = self.truth
        for driver in self.working():
            place = truth.places.get(driver.region)
            left = driver.state == "stopped" and driver.region in truth.active()
            if left and driver.assignment.number == truth.number and (place is None or not place.removed):
                self.command(command="remove", region=driver.region, number=truth.number)
                return
        if truth.number is None or truth.active():
            return
        if dice.chance(0.6 if truth.open is not None else 0.2):
            self._register_early(dice)
            return
        if truth.open is not None or self.asking:
            return
        number = max(truth.number, truth.withdrawn) + 1
        self._begin(dice, number, truth.decided)

    def _register_early(self, dice: Dice) -> None:
        """Register a query of the next assignment by hand: too early, after another cut, or rightly."""
        truth = self.truth
        after = dice.pick((truth.decided, 0))
        assignment = Assignment(number=(truth.number or 0) + 1, regions=("early",), after=after)
        envelope = Envelope(
            self.world.new_id("e"), EventType.REGION_REGISTERED, STREAM, "early", self.world.new_id("early.")
        )
        self.world.append(envelope, RegionRegistered(assignment=assignment))

    def _begin(self, dice: Dice, number: int, after: int) -> None:
        """Give the shards to other regions, each from its decided offset."""
        shards: Offsets = {}
        for driver in self.working():
            shards |= self.decided_offsets(driver)
        names = sorted(shards)
        kept = [driver.region for driver in self.working() if dice.chance(0.5)]
        fresh = [self._new_name() for _ in range(dice.between(0 if kept else 1, 2))]
        regions = [*kept, *fresh][: max(1, len(names))]
        shares: dict[str, Offsets] = {name: {} for name in regions}
        for index, shard in enumerate(names):
            shares[regions[index % len(regions)]][shard] = shards[shard]
        assignment = Assignment(number=number, regions=tuple(regions), after=after)
        sample = self.drivers[0]
        for driver in self.working():
            driver.gone, driver.state = True, "stopped"
        for name in regions:
            self._start(sample, name, assignment, shares[name])
        self.closing = False
        self.world.saw("another assignment begins")

    def _new_name(self) -> str:
        self._regions += 1
        return f"x{self._regions}"

    def _start(self, sample: Driver, name: str, assignment: Assignment, offsets: Offsets) -> None:
        place = self.truth.places.get(name)
        base = place.at if place is not None else None
        location = Location(self.world.new_id(f"{name}."), base, dict(offsets))
        self.drivers.append(Driver(self.world, sample.source, name, assignment, location, offsets))

    def decided_offsets(self, driver: Driver) -> Offsets:
        """Return the source offsets of a region's decided position, as a registration would learn them."""
        place = self.truth.places.get(driver.region)
        if place is None or place.at is None:
            return driver.home
        at = place.at
        for entry in self.world.log:
            envelope, body = entry.envelope, entry.body
            key = (envelope.region, envelope.incarnation, envelope.checkpoint)
            wanted = (driver.region, at.incarnation, at.checkpoint)
            if key == wanted and isinstance(body, CheckpointCompleted) and body.source_offsets:
                found: Offsets = json.loads(body.source_offsets)
                if found.keys() == driver.home.keys():
                    return found
        # The position is from another assignment, with other shards: nothing of these was read.
        return driver.home

    # --- orders -----------------------------------------------------------------------------------

    def pause(self, dice: Dice) -> None:
        self.paused = not self.paused
        self.command(command="pause" if self.paused else "resume")

    def savepoint(self, dice: Dice) -> None:
        self._orders += 1
        kind = dice.pick(("savepoint", "savepoint", "drain"))
        self.command(command=kind, name=f"{kind}{self._orders}")

    def cancel(self, dice: Dice) -> bool:
        if not self.truth.savepoints:
            return False
        self.command(command="cancel", name=dice.pick(self.truth.savepoints).name)
        return True

    def revert(self, dice: Dice) -> bool:
        verdict = self.truth.open
        if verdict is not None:
            self.command(
                command="revert", decision=verdict.body.decision, region=dice.pick(sorted(verdict.moves))
            )
        return verdict is not None

    def change_mind(self, dice: Dice) -> bool:
        """Withdraw the newest assignment, rarely the first one: nothing was committed then."""
        return (self.truth.former is not None or dice.chance(0.2)) and self.withdraw(dice)

    def withdraw(self, dice: Dice) -> bool:
        """Withdraw the assignment that has just begun: the regions of the one before continue."""
        truth = self.truth
        if truth.number is None or not truth.provisional:
            return False
        self.command(command="withdraw", number=truth.number)
        if truth.former is None:
            self._begin_again(truth.number + 1)
            return True
        back = self._drivers_of(*truth.former[:2])
        for driver in self.drivers:
            if driver not in back:
                driver.crash()
            driver.gone = driver not in back
            driver.state = "stopped" if driver.gone else "new"
        self.closing = False
        self.asking.clear()
        self.world.saw("back to the assignment before")
        return True

    def _begin_again(self, number: int) -> None:
        """The first assignment was withdrawn, and its number is burned: the job begins with the next one."""
        for driver in self.working():
            driver.crash()
            driver.assignment = driver.assignment.model_copy(update={"number": number})
            driver.location = Location(self.world.new_id(f"{driver.region}."), None, dict(driver.home))
            driver.state = "new"
        self.asking.clear()
        self.closing = False
        self.world.saw("the first assignment is withdrawn")

    def remove(self, dice: Dice) -> bool:
        """Remove, or discard, a region, or close the assignment; the job then begins another one."""
        if self.truth.number is None or not self.working():
            return False
        kind = dice.pick(("remove", "discard", "close"))
        chosen = dice.pick(self.working())
        if kind == "close":
            self.command(command="close", number=self.truth.number)
            stopped = self.working()
        else:
            # Sometimes an order of an earlier assignment is repeated.
            number = dice.between(0, self.truth.number)
            self.command(command=kind, region=chosen.region, number=number)
            if number != self.truth.number:
                return True
            stopped = [chosen]
        for driver in stopped:
            driver.crash()
            driver.state = "stopped"
            self.asking.pop(driver.region, None)
        self.closing = True
        return True

    def policy(self, dice: Dice) -> bool:
        """Let a coordinator with other settings log another policy, once."""
        held = self.truth.policy
        if held is None:
            return False
        changed = held.model_copy(
            update={
                "number": held.number + 1,
                "max_consecutive_fallbacks": dice.between(1, 3),
                "max_failure_ratio": dice.pick((1.0, 0.5, 0.3)),
            }
        )
        envelope = Envelope(self.world.new_id("p"), EventType.STREAM_POLICY, STREAM)
        self.world.append(envelope, StreamPolicy.model_validate(changed.model_dump()))
        return True
