"""Mishaps of the table, the view and the broker's clock, and the operator who repairs the table."""

from dataclasses import dataclass
from typing import Final

from sluicegate.coordinator.core.heads import head_of
from sluicegate.events.problems import Code
from sluicegate.lakes.memory import MemorySnapshot, MemoryTable
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.people import People
from sluicegate.simulator.truth import Truth
from sluicegate.simulator.world import COMMIT_USER, World

HOUR: Final = 3_600_000
_UNPROVEN: Final = frozenset({Code.ABSENCE_UNPROVEN, Code.TABLE_CONTRADICTS})


@dataclass(frozen=True, slots=True)
class Tables:
    """The stores of one world, as others than the coordinators change them."""

    world: World
    truth: Truth
    fleet: Fleet
    people: People

    def foreign(self, dice: Dice) -> None:
        """Another writer commits to the table."""
        self.world.table.foreign_commit()

    def impostor(self, dice: Dice) -> bool:
        """Another job commits as our commit user, with its own low ids."""
        newest = self.truth.decided
        if newest > 1:
            self.world.table.foreign_commit(made_by=(COMMIT_USER, dice.between(0, newest - 1)))
        return newest > 1

    def expire(self, dice: Dice) -> bool:
        """Expire snapshots: those before the newest of ours, or all but the head."""
        table = self.world.table
        ours = [each.id for each in table.snapshots if each.commit_user == COMMIT_USER and each.digest]
        if not ours or table.head is None:
            return False
        table.expire(1 if dice.chance(0.3) else max(1, table.head.id - ours[-1] + 1))
        return True

    def unfit(self, dice: Dice) -> bool:
        """Put the table out of scope, or in scope again."""
        again = self.world.table.refusal is not None
        self.world.table.refusal = None if again else "the table is refused for a while"
        if again:
            self.world.saw("table in scope again")
        return not again

    def stand_in(self, dice: Dice) -> bool:
        """Put another table under the stream's name, or put ours back."""
        if self.world.standing_in is not None:
            self.world.standing_in = None
            self.world.saw("table put back")
            return False
        if not any(each.outcome == "committed" for each in self.truth.verdicts):
            return False
        self.world.standing_in = MemoryTable("sim")
        self.world.standing_in.replace()
        return True

    def wipe(self, dice: Dice) -> None:
        """Lose the view."""
        self.world.view = None

    def jump(self, dice: Dice) -> None:
        """Set the broker's clock."""
        self.world.skew = dice.pick((0, 0, 700, -700, HOUR, -HOUR))

    def misdate(self, dice: Dice) -> None:
        """Give the next record a wrong append time."""
        self.world.glitch = dice.pick((HOUR, -HOUR, 1000 * HOUR))

    def care(self, dice: Dice) -> None:
        """Repair the table, or vouch for it, where nothing proves that a decision is absent."""
        stalls = (each.problem.code for node in self.fleet.nodes for each in node.machine.conditions())
        if not _UNPROVEN.isdisjoint(stalls):
            self._vouch_or_restore(dice)

    def _vouch_or_restore(self, dice: Dice) -> None:
        table, made = self.world.table, self.truth.open
        number = made.body.decision if made is not None else self.truth.decided + 1
        published = any(_is_ours(each, number) for each in table.history)
        if table.head is None or dice.chance(0.3):
            self.restore()
            return
        head = head_of(table.head.ref)
        self.people.command(command="resume", decision=number, head=head, committed=published)
        self.people.paused = False
        self.world.saw(f"an operator names the head {'with' if published else 'without'} the commit")

    def restore(self) -> None:
        """Put the snapshots back that have expired."""
        table = self.world.table
        visible = {each.id for each in table.snapshots}
        if expired := [each for each in table.history if each.id not in visible]:
            table.restore(expired)
            self.world.saw("snapshots put back")

    def quiet(self) -> None:
        """Put everything right again."""
        self.world.table.refusal = self.world.standing_in = None
        self.restore()


def _is_ours(snapshot: MemorySnapshot, decision: int) -> bool:
    return snapshot.commit_user == COMMIT_USER and bool(snapshot.digest) and snapshot.decision == decision
