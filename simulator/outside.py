"""What happens around the product: other writers, expiry, retention, a table that is not what it was."""

from dataclasses import dataclass, replace
from typing import Final

from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.lakes.memory import MemoryTable
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.world import COMMIT_USER, REFUSED, STREAM, World

HOUR: Final = 3_600_000
FAR: Final = 80 * 365 * 24 * HOUR
"""Milliseconds."""


@dataclass
class Outside:
    """The surroundings, and what befalls them."""

    world: World
    fleet: Fleet
    checker: Checker

    def foreign(self, dice: Dice) -> None:
        """Another writer of the table commits."""
        self.world.visible_table.foreign_commit()
        self.world.saw("foreign commit")
        self.world.tell("another writer commits to the table")

    def impostor(self, dice: Dice) -> None:
        """A foreign job was given our commit user, and counts its own commits from 0."""
        if self.world.standing_in is not None:
            return
        made_by = (COMMIT_USER, dice.between(0, self.checker.contents.committed))
        self.world.table.foreign_commit(made_by=made_by)
        self.world.saw("foreign commit as our user")
        self.world.tell("a foreign job commits as our commit user, under the id {}", made_by[1])

    def usurp(self, dice: Dice) -> None:
        """Another deployment commits the next decision as our commit user, until that is rolled back."""
        world = self.world
        if world.standing_in is not None or not self._known():
            return
        there = world.table
        world.standing_in = replace(there, _visible=dict(there._visible), _expired=list(there._expired))
        number = self.checker.highest_decision() + 1
        world.standing_in.foreign_commit(made_by=(COMMIT_USER, number))
        world.rolled_back = True
        world.saw("another deployment")
        world.tell("another deployment commits as decision {}", number)

    def unfit(self, dice: Dice) -> None:
        """The table goes out of scope, or is mended."""
        self.world.table.refusal = None if self.world.table.refusal else REFUSED
        self.world.saw("table out of scope" if self.world.table.refusal else "table mended")
        self.world.tell("the table is {}", "out of scope" if self.world.table.refusal else "mended")

    def replace(self, dice: Dice) -> None:
        """Somebody puts another table in the place of the stream's, or the old one back."""
        if self.world.rolled_back:
            return
        if self.world.standing_in is not None:
            self.world.standing_in = None
        elif not self._known():
            return
        else:
            self.world.standing_in = MemoryTable(self.world.table.name)
            self.world.standing_in.replace()
            # A record from before the stream had a table cannot tell one from the other.
            self.fleet.records.clear()
        self.world.saw("table replaced" if self.world.standing_in else "table put back")
        self.world.tell("{}", "another table stands there" if self.world.standing_in else "the table is back")

    def roll_back(self, dice: Dice) -> None:
        """Somebody rolls the table back behind what is known to be committed, and undoes that later."""
        world = self.world
        if world.rolled_back:
            world.rolled_back, world.standing_in = False, None
            world.saw("snapshots put back")
            world.tell("the table has all its snapshots again")
            return
        oldest = self._oldest_recorded()
        if world.standing_in is not None or oldest is None or world.table.at(oldest - 1) is None:
            return
        self.fleet.records.clear()
        there = world.table
        world.standing_in = replace(there, _visible=dict(there._visible), _expired=list(there._expired))
        world.standing_in.rollback(oldest - 1)
        world.rolled_back = True
        if dice.chance(0.5):
            world.standing_in.foreign_commit()
        world.saw("table rolled back")
        world.tell("the table is rolled back to snapshot {}", oldest - 1)

    def expire_proof(self, dice: Dice) -> None:
        """Snapshots expire from which an absence was to be proven, and are restored from a backup later."""
        world = self.world
        if world.backup:
            self._restore()
            return
        oldest = self._oldest_recorded()
        if world.standing_in is not None or oldest is None:
            return
        world.table.foreign_commit()
        before = world.table.snapshots
        world.table.expire(1)
        world.backup = [each for each in before if each.id not in {one.id for one in world.table.snapshots}]
        world.saw("proof of absence expired")
        world.tell("all but the newest of the table's snapshots expire")

    def _restore(self) -> None:
        world = self.world
        world.table.restore(world.backup)
        world.backup = []
        world.saw("expired snapshots restored")
        world.tell("the expired snapshots are restored from a backup")

    def _oldest_recorded(self) -> int | None:
        """The oldest snapshot from which somebody proves an absence, if everybody knows one."""
        if self._settled_state() is None or not self._known():
            return None
        nodes = [*self.fleet.nodes, *self.fleet.asleep]
        record = StateRecord.model_validate_json(self.world.record or "{}")
        refs = [record.state.recorded, *(node.machine.book.state.recorded for node in nodes)]
        known = [ref.id for ref in refs if ref is not None]
        return min(known) if len(known) == len(refs) else None

    def join(self, dice: Dice) -> None:
        """The table becomes one whose writers are one region, or is that no more."""
        world = self.world
        world.joined = None if world.joined else "the table's buckets join all writers"
        world.saw("table joins its writers" if world.joined else "table joins nobody")
        world.tell("the table's writers are {}", "one region" if world.joined else "independent")

    def _known(self) -> bool:
        """Whether everybody knows the stream's table: an empty one cannot be told from another."""
        nodes = [*self.fleet.nodes, *self.fleet.asleep]
        if self.world.record is None or self.world.table.head is None:
            return False
        recorded = StateRecord.model_validate_json(self.world.record).state.table
        return recorded is not None and all(node.machine.book.state.table for node in nodes)

    def wipe_view(self, dice: Dice) -> None:
        """Redis loses everything."""
        self.world.saw("view wiped")
        self.world.view = None

    def newer_record(self, dice: Dice) -> None:
        """A newer release writes to the log, and the coordinators are still of this one."""
        if not self.world.newer:
            beat = Envelope(self.world.new_id("n"), EventType.REGION_HEARTBEAT, STREAM, "r0", "elsewhere")
            self.world.saw("newer record")
            self.world.newer.add(self.world.append(beat, RegionHeartbeat()))
        elif not self.world.upgraded:
            self.world.upgraded = True
            self.world.saw("release upgraded")
            self.fleet.nodes = [self.fleet.boot() for _ in self.fleet.nodes]

    def jump(self, dice: Dice) -> None:
        """The broker's clock is put forward, back, or right; or the stream moves to another broker."""
        world = self.world
        world.skew = dice.pick((0, 0, 700, -700, HOUR, -HOUR, FAR))
        world.jumped = True
        world.saw("broker's clock right" if world.skew == 0 else "broker's clock wrong")
        world.tell("the broker's clock is wrong by {} ms", world.skew)

    def misdate(self, dice: Dice) -> None:
        """One append time is wrong."""
        self.world.glitch = dice.pick((HOUR, HOUR, -HOUR, FAR))
        self.world.jumped = True
        self.world.saw("one wrong append time")

    def mend(self) -> None:
        """Put everything right."""
        self.world.table.refusal = None
        self.world.standing_in = self.world.joined = None
        self.world.rolled_back, self.world.upgraded = False, True
        if self.world.backup:
            self._restore()

    def expire(self, dice: Dice) -> None:
        """Expire snapshots when no outcome is open: what is then decided must still be provable."""
        world, state = self.world, self._settled_state()
        if world.rolled_back:
            self._expire_contradiction()
        if state is None or world.standing_in is not None:
            return
        for _ in range(3):
            world.table.foreign_commit()
        head, kept = world.table.head, dice.between(1, 3)
        cleans = [node.machine.book.state.recorded for node in self.fleet.nodes] + [state.state.recorded]
        oldest = min((ref.id if ref else 0 for ref in cleans), default=head.id if head else 0)
        world.table.expire(max(kept, head.id - oldest + 1 if head else 0))
        self.fleet.records.clear()
        world.saw("history expired")
        world.tell("the table's older snapshots expire")

    def _expire_contradiction(self) -> None:
        """Let go of what shows that the table was rolled back, once everybody has seen it."""
        world = self.world
        record = StateRecord.model_validate_json(world.record or "{}")
        nodes = [*self.fleet.nodes, *self.fleet.asleep]
        states = [record.state, *(node.machine.book.state for node in nodes)]
        if world.standing_in is None or any(each.contradicted is None for each in states):
            return
        self.fleet.records.clear()
        while (world.standing_in.head.id if world.standing_in.head else 0) <= self._highest_recorded(states):
            world.standing_in.foreign_commit()
        world.standing_in.expire(1)
        world.saw("contradiction expired")
        world.tell("what contradicts the record expires from the table that was rolled back")

    @staticmethod
    def _highest_recorded(states: list[LightState]) -> int:
        return max((each.recorded.id for each in states if each.recorded is not None), default=0)

    def retain(self, dice: Dice) -> None:
        """Retention takes from the log what no record needs that may still be read back.

        It is far slower than any coordinator that lags, and close behind what was carried.
        """
        world = self.world
        if world.record is None or self.fleet.late():
            return
        record = StateRecord.model_validate_json(world.record)
        start = min(record.low_water, *(node.needed() for node in self.fleet.nodes))
        if start > world.log_start:
            world.log_start = start
            self.fleet.records.clear()
            world.saw("log retained")
            world.tell("retention removes everything before offset {}", start)

    def _settled_state(self) -> StateRecord | None:
        """The newest record, if nothing is decided whose outcome it does not have."""
        if self.world.record is None or self.fleet.late():
            return None
        record = StateRecord.model_validate_json(self.world.record)
        known = record.state.decided == record.state.committed == self.checker.highest_decision()
        machines = [node.machine for node in self.fleet.nodes]
        return record if known and not any(machine.book.state.pending for machine in machines) else None
