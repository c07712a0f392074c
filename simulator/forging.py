"""Events of stray queries, and of coordinators that are late or wrong."""

from dataclasses import dataclass

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.heads import head_of
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    StreamPolicy,
)
from sluicegate.simulator.checks import Checks
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.job import Driver
from sluicegate.simulator.location import Location, Source
from sluicegate.simulator.world import STREAM, World


@dataclass
class Forger:
    """Appends them to the log."""

    world: World
    checks: Checks
    drivers: list[Driver]

    def stray(self, dice: Dice) -> None:
        """A query that was started by mistake registers: with a higher assignment, or for our region."""
        truth, name = self.checks.truth, dice.pick(("stray", "r0"))
        number = (truth.number or 0) + dice.between(0, 1)
        regions = (name,) if dice.chance(0.7) else tuple(truth.regions) or (name,)
        home = {f"stray{self.world.new_id('s')}": 0}
        known = [driver.location.incarnation for driver in self.drivers]
        incarnation = dice.pick(known) if dice.chance(0.3) else self.world.new_id("stray.")
        after = truth.decided if dice.chance(0.5) else 0
        stray = Driver(
            self.world,
            Source(0),
            name,
            Assignment(number=number, regions=regions, after=after),
            Location(incarnation, None, home),
            home,
        )
        stray.ask(probe=False)
        self.world.saw("stray registration")

    def decision(self, dice: Dice) -> None:
        """Another coordinator's decision, made long ago and appended only now."""
        made = [entry.body for entry in self.world.log if isinstance(entry.body, CutDecided)]
        fresh = self._any_cut(dice)
        if fresh is not None and dice.chance(0.6):
            body = fresh
        elif made:
            body = dice.pick(made[-4:])
            if dice.chance(0.5):
                body = body.model_copy(update={"decision": self.checks.truth.decided + 1})
        else:
            return
        self.world.append(Envelope(self.world.new_id("g"), EventType.CUT_DECIDED, STREAM), body)
        self.world.saw("forged decision")

    def _any_cut(self, dice: Dice) -> CutDecided | None:
        """A cut of some sealed, or merely completed, checkpoints: valid or not."""
        truth, log = self.checks.truth, self.checks.reference.log
        moves: dict[str, Position] = {}
        for name, place in truth.places.items():
            choices = place.sealed()
            if place.life is not None and dice.chance(0.3):
                choices = [
                    Position(incarnation=place.life.name, checkpoint=number, digest=body.source_digest)
                    for number, body in place.life.completions.items()
                    if not place.is_past(number)
                ]
            if choices and dice.chance(0.7):
                moves[name] = dice.pick(choices)
        if not moves:
            return None
        sealed = {name: at for name, at in moves.items() if at in truth.places[name].sealed()}
        return CutDecided(
            decision=truth.decided + 1,
            cut=cuts.whole_cut(log, moves),
            final=any(truth.at_barrier(name, at) for name, at in moves.items()),
            digest=cuts.digest_of(log, sealed),
            head=head_of(self.world.table.head.ref if self.world.table.head else None),
        )

    def policy(self, dice: Dice) -> None:
        """An older policy arrives once more."""
        made = [entry for entry in self.world.log if isinstance(entry.body, StreamPolicy)]
        if made:
            self.world.append(*dice.pick(made)[2:])
            self.world.saw("older policy")

    def outcome(self, dice: Dice) -> None:
        """An outcome that a zombie appends late, or one with another digest."""
        made = [entry.body for entry in self.world.log if isinstance(entry.body, CutCommitted | CutReverted)]
        verdict = self.checks.truth.open
        if verdict is not None and dice.chance(0.5):
            identity = self.world.table.identity
            body: CutCommitted | CutReverted = CutCommitted(
                decision=verdict.body.decision, digest="wrong", table=identity
            )
            kind = EventType.CUT_COMMITTED
        elif made:
            body = dice.pick(made[-4:])
            kind = EventType.CUT_COMMITTED if isinstance(body, CutCommitted) else EventType.CUT_REVERTED
        else:
            return
        self.world.append(Envelope(self.world.new_id("g"), kind, STREAM), body)
        self.world.saw("forged outcome")

    def attempt(self, dice: Dice) -> None:
        """Another coordinator abandons an attempt, rightly or not."""
        truth = self.checks.truth
        regions = tuple(name for name in truth.regions if dice.chance(0.6))
        body = CutAbandoned.model_validate(
            {
                "decision": truth.decided + 1,
                "attempt": truth.attempts + 1,
                "kind": dice.pick(("forced", "ratio")),
                "regions": regions,
            }
        )
        self.world.append(Envelope(self.world.new_id("g"), EventType.CUT_ABANDONED, STREAM), body)
        self.world.saw("forged attempt")
