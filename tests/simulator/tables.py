"""Mishaps of the table, the view and the broker's clock.

Where a rollback leaves snapshots beside the history, they do not expire: formats expire them by age, after
the coordinators have seen the rollback.
"""

from dataclasses import dataclass
from typing import Final

from tests.doubles.memory_lake import MemorySnapshot, MemoryTable
from tests.simulator.dice import Dice
from tests.simulator.truth import Truth
from tests.simulator.world import COMMIT_USER, World, is_of_stream

HOUR: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Tables:
    """The stores of one world, as others than the coordinators change them."""

    world: World
    truth: Truth

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
        table, made = self.world.table, self.truth.open
        if made is not None and made.body.decision in self.world.unproven:
            return False
        if made is not None and table.head is not None and is_ours(table.head, made.body.decision):
            # Another writer is fast, and so is the expiry: the commit that has no outcome yet expires, too.
            table.foreign_commit()
            table.expire(1)
            return True
        found = enumerate(reversed(table.snapshots), 1)
        newest = next((n for n, each in found if each.commit_user == COMMIT_USER and each.digest), None)
        if newest is None:
            return False
        table.expire(1 if dice.chance(0.3) else newest)
        return True

    def roll_back(self, dice: Dice) -> bool:
        """Roll the table back, before a decision that the log has as committed, or its unresolved one."""
        table, made = self.world.table, self.truth.open
        committed = [n for n, each in enumerate(self.truth.verdicts, 1) if each.outcome == "committed"]
        newest = made.body.decision if made is not None and dice.chance(0.5) else 0
        unresolved = [each for each in table.snapshots if is_ours(each, newest)]
        lost = unresolved or [each for each in table.snapshots if committed and is_ours(each, committed[-1])]
        kept = [each.id for each in table.snapshots if lost and each.id < lost[0].id]
        if not kept or self.world.rolled_back:
            return False
        if unresolved:
            self.world.saw("a commit without outcome is rolled back")
        self.world.rolled_back = table.history
        self.world.roll_back(table, dice.pick(kept[-1:] if unresolved else kept[-3:]))
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

    def care(self, dice: Dice) -> None:
        """Notice, now and then, that our table is out of scope or under another name, and put it right."""
        if self.world.table.refusal is not None and dice.chance(0.5):
            self.unfit(dice)
        if self.world.standing_in is not None and dice.chance(0.5):
            self.stand_in(dice)

    def wipe(self, dice: Dice) -> None:
        """Lose the view."""
        self.world.view = None

    def jump(self, dice: Dice) -> None:
        """Set the broker's clock."""
        self.world.skew = dice.pick((0, 0, 700, -700, HOUR, -HOUR))

    def misdate(self, dice: Dice) -> None:
        """Give the next record a wrong append time."""
        self.world.glitch = dice.pick((HOUR, -HOUR, 1000 * HOUR))

    def is_provable(self) -> bool:
        """True if the history shows which decisions were rolled back; else nobody can state its head."""
        table = self.world.table
        ours = [each.decision for each in table.snapshots if each.commit_user == COMMIT_USER and each.digest]
        settled = [n for n, each in enumerate(self.truth.verdicts, 1) if each.outcome]
        if settled and settled[-1] in ours and not self._has_outcome(settled[-1]):
            # The commit of the log was rolled back before its outcome was logged: a revert is in its place.
            return False
        if ours and settled and max(ours) < settled[-1]:
            # The command refuses the statement: the table lacks a committed decision. A careless operator has
            # another command. Then the log alone must refute a head that is older than the lost commit.
            lost = [each.id for each in self.world.rolled_back if is_ours(each, settled[-1])]
            return table.head is not None and table.head.id <= max(lost, default=0)
        return not self.world.rolled_back or bool(ours) or table.snapshots == table.history

    def _has_outcome(self, decision: int) -> bool:
        """True if the history has the commit of a decision's outcome: that of its files, or its revert."""
        verdict = self.truth.verdicts[decision - 1]
        return any(
            is_ours(each, decision)
            and (each.digest == verdict.body.digest) == (verdict.outcome == "committed")
            for each in self.world.table.history
        )

    def restore(self) -> None:
        """Put the snapshots back that were rolled back or have expired."""
        table = self.world.table
        former = self.world.rolled_back
        # A frozen coordinator may still append the outcome of what was rolled back: that is needed then.
        if self.truth.open is None:
            self.world.rolled_back = []
        # A revert has an empty commit, which the table must have too.
        settled = [n for n, each in enumerate(self.truth.verdicts, 1) if each.outcome]
        if former and settled and not self._has_outcome(settled[-1]):
            # Others may have committed meanwhile: their commits are lost.
            table.rollback(0)
            table.restore(former)
            self.world.rolled_back = []
            self.world.saw("rollback taken back")
        visible = {each.id for each in table.snapshots}
        if expired := [each for each in table.history if each.id not in visible]:
            table.restore(expired)
            self.world.saw("snapshots put back")

    def quiet(self) -> None:
        """Put everything right again."""
        self.world.table.refusal = self.world.standing_in = None
        self.restore()


def is_ours(snapshot: MemorySnapshot, decision: int) -> bool:
    """True if a snapshot is the commit of a decision of the stream."""
    return is_of_stream(snapshot) and snapshot.decision == decision
