"""Events of stray queries, and of coordinators that are late or wrong."""

from dataclasses import dataclass

from sluicegate.coordinator.core import cuts
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    SnapshotRef,
    StreamPolicy,
)
from tests.simulator.checks import Checks
from tests.simulator.dice import Dice
from tests.simulator.job import Driver
from tests.simulator.location import Location, Source
from tests.simulator.world import FORGED, STREAM, World


@dataclass
class Forger:
    """Appends them to the log."""

    world: World
    checks: Checks
    drivers: list[Driver]

    def stray(self, dice: Dice) -> None:
        """Register a query that was started by mistake, or with wrong settings or a wrong location."""
        truth = self.checks.truth
        higher, same = dice.pick((-1, 0, 0, 1, 1)), tuple(truth.regions) or ("r0",)
        name = dice.pick(("stray", "r0", *same))
        regions = same if dice.chance(0.6) else (name,)
        after = truth.followed.get(truth.number or 0, 0)
        if higher > 0:
            after = dice.pick((truth.decided, truth.decided, 0))
        home = {f"stray{self.world.new_id('s')}": 0}
        known = [driver.location.incarnation for driver in self.drivers]
        incarnation = dice.pick(known) if dice.chance(0.3) else self.world.new_id("stray.")
        stray = Driver(
            self.world,
            Source(0),
            name,
            Assignment(number=max(0, (truth.number or 0) + higher), regions=regions, after=after),
            Location(incarnation, None, home),
            home,
            table="s3://other/table" if dice.chance(0.1) else None,
        )
        stray.ask(probe=False)

    def decision(self, dice: Dice) -> bool:
        """Another coordinator's decision, made long ago and appended only now."""
        # A forged one may name checkpoints that were not sealed yet, so its digest is of other content.
        made = [
            entry.body
            for entry in self.world.log
            if isinstance(entry.body, CutDecided) and not entry.envelope.id.startswith(FORGED)
        ]
        fresh = self._any_cut(dice)
        if fresh is not None and dice.chance(0.6):
            body = fresh
        elif made:
            body = dice.pick(made[-4:])
            if dice.chance(0.5):
                # From the positions of now, the same cut has another content.
                log = self.checks.reference.log
                moves = {name: at for name, at in body.cut.items() if at != log.state.region(name).position}
                renewed = {"decision": self.checks.truth.decided + 1, "digest": cuts.digest_of(log, moves)}
                body = body.model_copy(update=renewed)
        else:
            return False
        self.world.append(Envelope(self.world.new_id(FORGED), EventType.CUT_DECIDED, STREAM), body)
        return True

    def _any_cut(self, dice: Dice) -> CutDecided | None:
        """A cut of some sealed, or merely completed, checkpoints: valid or not."""
        truth, log = self.checks.truth, self.checks.reference.log
        moves: dict[str, Position] = {}
        share = dice.pick((0.3, 0.5, 0.95))
        for name, place in truth.places.items():
            choices = place.sealed()
            if place.life is not None and dice.chance(0.3):
                choices = [
                    Position(incarnation=place.life.name, checkpoint=number, digest=body.source_digest)
                    for number, body in place.life.completions.items()
                    if not place.is_past(number)
                ]
            if choices and dice.chance(share):
                moves[name] = dice.pick(choices)
        if not moves:
            return None
        return CutDecided(
            decision=truth.decided + 1,
            cut=cuts.whole_cut(log, moves),
            digest=cuts.digest_of(log, moves),
            head=self._any_head(truth.decided + 1),
        )

    def _any_head(self, decision: int) -> SnapshotRef | None:
        """The table's head, also one that was rolled back below the newest outcome.

        A coordinator names a head only after the table has proven it, so none would name that one. The others
        must see by their own answers that it does not count. Where those have expired, nobody can.
        """
        world, newest = self.world, self.checks.reference.state.snapshot
        table = world.table
        head = table.head.ref if table.head else None
        if newest is None or newest in [each.ref for each in table.snapshots]:
            return head
        if all(each.id > newest.id for each in table.snapshots):
            return newest
        world.unproven.add(decision)
        world.saw("a named head lacks the newest outcome")
        return head

    def policy(self, dice: Dice) -> bool:
        """An older policy arrives once more."""
        made = [entry for entry in self.world.log if isinstance(entry.body, StreamPolicy)]
        if made:
            self.world.append(*dice.pick(made)[2:])
        return bool(made)

    def outcome(self, dice: Dice) -> bool:
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
            return False
        self.world.append(Envelope(self.world.new_id(FORGED), kind, STREAM), body)
        return True

    def attempt(self, dice: Dice) -> None:
        """Another coordinator abandons an attempt, rightly or not."""
        truth = self.checks.truth
        rightly = dice.chance(0.5)
        lagging = tuple(truth.expected())
        kind = "forced" if truth.is_forced() else "ratio"
        body = CutAbandoned.model_validate(
            {
                "decision": truth.decided + 1,
                "attempt": truth.attempts + 1,
                "kind": kind if rightly else dice.pick(("forced", "ratio")),
                "regions": lagging if rightly else [name for name in truth.regions if dice.chance(0.6)],
            }
        )
        self.world.append(Envelope(self.world.new_id(FORGED), EventType.CUT_ABANDONED, STREAM), body)
