"""One schedule: random steps of drivers, coordinators, people and faults, with checks after each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sluicegate.coordinator.core4 import cuts
from sluicegate.coordinator.core4.effects import Effect
from sluicegate.coordinator.core4.heads import head_of
from sluicegate.coordinator.core4.settings import MachineSettings
from sluicegate.events.version4 import (
    Assignment,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Envelope,
    EventType,
    Position,
    SingleRegionReason,
    StreamPolicy,
)
from sluicegate.lakes.memory import MemoryTable
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.v4.checks import Checks
from sluicegate.simulator.v4.fleet import Fleet
from sluicegate.simulator.v4.job import Driver, Location, Source
from sluicegate.simulator.v4.node import FATES, Node
from sluicegate.simulator.v4.people import People
from sluicegate.simulator.v4.world import COMMIT_USER, STREAM, World
from sluicegate.simulator.violation import Violation

QUIET_ROUNDS: Final = 1_500
"""Of 50 milliseconds each, in which everything must come to rest."""
ALWAYS: Final = {"drive": 26, "read": 16, "effect": 46, "view": 1, "care": 3, "assignment": 2}
FAULTS: Final = {
    # The job.
    "restart": 2, "back up": 2, "restore": 1, "reset": 1, "lose files": 1, "contradict": 1, "replay": 2,
    "deliver": 3, "heartbeat": 2, "zombie": 2, "both attempts": 0.5, "skip": 0.5, "late closing": 0.5,
    "idle in a batch": 1, "duplicate": 2, "reassign": 1, "stray": 1,
    # The coordinators.
    "crash": 5, "freeze": 3, "thaw": 3, "rebalance": 2, "more": 1, "old record": 1, "record lost": 0.5,
    "lost append": 2, "unheard append": 2, "wait": 2, "forged decision": 2, "forged outcome": 1,
    "older policy": 0.5, "forged attempt": 0.5,
    # The table and the other stores.
    "away": 3, "conflict": 2, "unknown, invisible": 3, "unknown, visible": 3, "refused": 1,
    "files refused": 1, "foreign": 2, "impostor": 1, "expire": 2, "unfit table": 1, "view wiped": 1,
    "view lost": 1, "clock jumps": 2, "wrong append time": 2,
    # The operator.
    "pause": 1, "savepoint": 1, "cancel": 0.5, "revert": 4, "remove": 0.7, "policy": 1, "withdraw": 2,
}  # fmt: skip
TROUBLES: Final = (
    "restart", "back up", "restore", "reset", "lose files", "contradict", "replay", "deliver", "heartbeat",
    "zombie", "duplicate", "both attempts", "skip", "late closing", "idle in a batch",
)  # fmt: skip
"""Faults of one driver."""
THEMES: Final = (
    ("reassign", "withdraw"),
    ("reassign", "revert"),
    ("remove", "revert"),
    ("restart", "restore", "back up"),
    ("contradict", "replay", "zombie"),
    ("revert", "unknown, visible", "crash"),
    ("savepoint", "reset", "revert"),
    ("wait", "policy"),
    ("refused", "revert", "reset"),
    ("reassign", "savepoint", "remove"),
)
HOUR: Final = 3_600_000


class Outcome(NamedTuple):
    """The sum of a schedule."""

    steps: int
    coverage: Counter[str]


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    after: int
    kind: str
    who: int
    draw: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule before it has run."""

    seed: int
    steps: tuple[Step, ...]


def draw_plan(seed: int, length: int = 400, favour: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a seed."""
    dice = Dice(seed)
    weights: dict[str, float] = {kind: weight * (0.5 + dice.share()) for kind, weight in ALWAYS.items()}
    amount, share = dice.pick((0.3, 1.0, 1.0, 2.5)), dice.pick((0.1, 0.3, 0.6))
    for kind, weight in FAULTS.items():
        if dice.chance(share):
            weights[kind] = amount * weight * dice.share()
    theme = dice.pick(THEMES) if dice.chance(0.5) else ()
    weights |= dict.fromkeys(favour or theme, 5.0)
    kinds, bounds, total = list(weights), list[float](), 0.0
    for kind in kinds:
        total += weights[kind]
        bounds.append(total)
    gaps = dice.pick(((1, 5, 20, 100), (5, 20, 100, 400), (1, 1, 1, 5)))
    steps = []
    for _ in range(length):
        drawn = dice.share() * total
        kind = kinds[next(index for index, bound in enumerate(bounds) if drawn < bound)]
        steps.append(Step(dice.pick(gaps), kind, dice.below(64), dice.draw()))
    return Plan(seed, tuple(steps))


class Schedule:
    """A world with its drivers, coordinators and people, driven by a plan."""

    def __init__(self, plan: Plan, *, story: list[str] | None = None) -> None:
        """`story`: lines about everything that happens are added to it."""
        dice = Dice(plan.seed ^ 0x5EED)
        self.plan = plan
        self.steps = 0
        self.world = World(MemoryTable("sim"), story=story)
        self.checks = Checks(self.world)
        names = tuple(f"r{number}" for number in range(dice.pick((1, 2, 2, 3, 3, 4))))
        silent = (dice.pick(names),) if dice.chance(0.15) else ()
        source = Source(dice.between(3, 20), dice.chance(0.4), silent, bounded=dice.chance(0.6))
        reasons: tuple[SingleRegionReason, ...] = ("all-to-all", "shared-files")
        single = None if dice.chance(0.85) else dice.pick(reasons)
        policy = StreamPolicy(
            number=0,
            partial="allow" if dice.chance(0.8) else "never",
            max_consecutive_fallbacks=dice.pick((1, 1, 2, 3)),
            max_failure_ratio=dice.pick((1.0, 1.0, 0.5, 0.34)),
            allowed_locations=("memory://",),
        )
        stall_pause = dice.pick((100, 1_000, 15_000))
        settings = MachineSettings(
            policy,
            commit_interval=dice.pick((0, 0, 0, 500, 5_000)),
            commit_max_files=dice.pick((None, None, 3)),
            record_interval=dice.pick((500, 20_000)),
            head_interval=dice.pick((2_000, 300_000)),
            stall_pause=stall_pause,
            overdue_after=stall_pause,
            silence=dice.pick((1_000, 60_000)),
            alignment_timeout=dice.pick((100, 100, 400, 1_500, 10_000)),
        )
        homes = {name: {f"{name}a": 0, f"{name}b": 0} for name in names}
        assignment = Assignment(number=0, regions=names)
        self.drivers = [
            Driver(
                self.world,
                source,
                name,
                assignment,
                Location(f"{name}.0", None, dict(homes[name])),
                dict(homes[name]),
                single_region=single,
            )
            for name in names
        ]
        self.fleet = Fleet(self.world, settings, self._watch)
        self.fleet.nodes = [self.fleet.boot() for _ in range(dice.pick((1, 1, 2, 2, 3)))]
        self.people = People(self.world, self.checks.truth, self.drivers)
        self._source = source
        self._items = {
            (shard, number) for home in homes.values() for shard in home for number in range(source.items)
        }
        self._actions = self._all_actions()

    def run(self) -> Outcome:
        """Take all steps, then let everything come to rest without any more faults."""
        for step in self.plan.steps:
            self.steps += 1
            self.world.now += step.after
            self._actions[step.kind](step.who, Dice(step.draw))
            self.checks.step()
            self.checks.compare(self.fleet.nodes)
        self._come_to_rest()
        return Outcome(self.steps, self.world.coverage)

    def _watch(self, node: Node, effect: Effect) -> None:
        self.checks.acts(node, effect)

    # --- actions ----------------------------------------------------------------------------------

    def _all_actions(self) -> dict[str, Callable[[int, Dice], object]]:
        fleet, people = self.fleet, self.people
        plain: dict[str, Callable[[Dice], object]] = {
            "care": people.care,
            "assignment": people.see_to_assignment,
            "reassign": people.reassign,
            "pause": people.pause,
            "savepoint": people.savepoint,
            "cancel": people.cancel,
            "revert": people.revert,
            "remove": people.remove,
            "policy": people.policy,
            "withdraw": people.withdraw,
            "foreign": self._foreign,
            "impostor": self._impostor,
            "expire": self._expire,
            "unfit table": self._unfit,
            "view wiped": self._wipe,
            "clock jumps": self._jump,
            "wrong append time": self._misdate,
            "forged decision": self._forge,
            "older policy": self._forge_policy,
            "forged attempt": self._forge_attempt,
            "forged outcome": self._forge_outcome,
            "stray": self._stray,
            "wait": self._wait,
        }
        actions: dict[str, Callable[[int, Dice], object]] = {
            "drive": self._drive,
            "read": fleet.read,
            "effect": fleet.effect,
            "view": fleet.write_view,
            "crash": fleet.crash,
            "freeze": fleet.freeze,
            "thaw": fleet.thaw,
            "rebalance": fleet.rebalance,
            "old record": fleet.old_record,
            "more": fleet.more,
            "record lost": fleet.lose_record,
        }
        for name in TROUBLES:
            actions[name] = self._trouble(name)
        actions |= {name: _without_who(act) for name, act in plain.items()}
        actions |= {fate: _striking(fleet, fate) for fate in FATES}
        return actions

    def _drive(self, who: int, dice: Dice) -> None:
        working = self.people.working()
        if working:
            driver = working[who % len(working)]
            if driver.state == "running" and driver.batch is None and self.people.closing:
                return
            driver.drive(dice)

    def _trouble(self, name: str) -> Callable[[int, Dice], object]:
        def act(who: int, dice: Dice) -> None:
            driver = self.drivers[who % len(self.drivers)]
            if self._befall(name, driver, dice) is not False:
                self.world.saw(name)
                self.world.tell("{}: {}", driver.region, name)

        return act

    def _befall(self, name: str, driver: Driver, dice: Dice) -> object:
        """Let something happen to a driver; return False if it could not."""
        always: dict[str, Callable[[], object]] = {
            "deliver": lambda: driver.deliver(dice),
            "duplicate": lambda: self._duplicate(driver, dice),
            "zombie": lambda: self._zombie(driver, dice),
        }
        if name in always:
            return always[name]()
        if driver.state != "running" or driver.gone:
            return False
        running: dict[str, Callable[[], object]] = {
            "restart": driver.crash,
            "back up": driver.back_up,
            "restore": lambda: driver.restore(dice),
            "reset": lambda: self.people.ask_position(driver),
            "lose files": driver.lose_files,
            "contradict": lambda: driver.contradict(dice),
            "replay": lambda: driver.replay(dice),
            "both attempts": lambda: driver.name_both(dice),
            "skip": lambda: driver.skip(dice),
            "late closing": lambda: driver.close_late(dice),
            "idle in a batch": driver.doze,
            "heartbeat": lambda: driver.rest() if driver.batch is None and not driver.uploads else False,
        }
        return running[name]()

    def _duplicate(self, driver: Driver, dice: Dice) -> bool:
        """Append an event of the region once more."""
        own = [entry for entry in self.world.log[-60:] if entry.envelope.region == driver.region]
        if not own:
            return False
        entry = dice.pick(own)
        if entry.envelope.type in (EventType.REGION_REGISTERED, EventType.REGION_CLOSED):
            return False
        self.world.append(entry.envelope, entry.body)
        return True

    def _zombie(self, driver: Driver, dice: Dice) -> bool:
        """A task of an older attempt writes on, for any batch of the location."""
        if not driver.location.batches:
            return False
        batch = dice.pick(driver.location.batches)
        at = (driver.region, driver.location.incarnation, batch.number)
        driver.late.append(self.world.files_event(at, "w0", self.world.new_id("z"), batch.items[:1]))
        return True

    def _stray(self, dice: Dice) -> None:
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

    def _forge(self, dice: Dice) -> None:
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
            final=any(truth.touches(name, at) for name, at in moves.items()),
            digest=cuts.digest_of(log, sealed),
            head=head_of(self.world.table.head.ref if self.world.table.head else None),
        )

    def _forge_policy(self, dice: Dice) -> None:
        """An older policy arrives once more."""
        made = [entry for entry in self.world.log if isinstance(entry.body, StreamPolicy)]
        if made:
            self.world.append(*dice.pick(made)[2:])
            self.world.saw("older policy")

    def _forge_outcome(self, dice: Dice) -> None:
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

    def _forge_attempt(self, dice: Dice) -> None:
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

    def _foreign(self, dice: Dice) -> None:
        self.world.table.foreign_commit()
        self.world.saw("foreign commit")

    def _impostor(self, dice: Dice) -> None:
        """A foreign job commits as our commit user, with its own low ids."""
        newest = self.checks.truth.decided
        if newest > 1:
            self.world.table.foreign_commit(made_by=(COMMIT_USER, dice.between(0, newest - 1)))
            self.world.saw("foreign commit as our user")

    def _expire(self, dice: Dice) -> None:
        """Expire snapshots that nobody needs: those before the newest of ours, when nothing is open."""
        table, truth = self.world.table, self.checks.truth
        if truth.open is not None or self.fleet.frozen or self.fleet.asleep:
            return
        ours = [each.id for each in table.snapshots if each.commit_user == COMMIT_USER and each.digest]
        if ours and table.head is not None:
            table.expire(max(1, table.head.id - ours[-1] + 1))
            self.fleet.records.clear()
            self.world.saw("history expired")

    def _unfit(self, dice: Dice) -> None:
        self.world.table.refusal = None if self.world.table.refusal else "the table is refused for a while"
        self.world.saw("table out of scope" if self.world.table.refusal else "table in scope again")

    def _wipe(self, dice: Dice) -> None:
        self.world.view = None
        self.world.saw("view wiped")

    def _jump(self, dice: Dice) -> None:
        self.world.skew = dice.pick((0, 0, 700, -700, HOUR, -HOUR))
        self.world.saw("broker's clock jumps")

    def _misdate(self, dice: Dice) -> None:
        self.world.glitch = dice.pick((HOUR, -HOUR, 1000 * HOUR))
        self.world.saw("one wrong append time")

    def _wait(self, dice: Dice) -> None:
        self.world.now += dice.pick((200, 1_000, 5_000, 20_000))
        self.world.saw("time passes")

    # --- the end ----------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """No more faults: everything must be committed, whoever does it."""
        self.world.tell("--- no more faults ---")
        self.world.table.refusal = None
        self.fleet.quiet()
        self.checks.step()
        if self.people.paused:
            self.people.pause(Dice(0))
        self.checks.step()
        for barrier in list(self.checks.truth.barriers):
            self.people.command(command="cancel", name=barrier.name)
        dice = Dice(self.plan.seed)
        for round_ in range(QUIET_ROUNDS):
            self.steps += 1
            self.world.now += 50
            self._finish(dice, round_)
            self.checks.step()
            self.fleet.run_all(self.checks.step)
            self.checks.step()
            self.checks.compare(self.fleet.nodes)
            if self._at_rest():
                return
        missing = sorted(self._items - self.checks.items)
        lacking = f"{len(missing)} items, {missing[:3]} first"
        states = {driver.region: driver.state for driver in self.people.working()}
        conditions = [str(each.problem) for each in self.fleet.nodes[0].machine.conditions()]
        raise Violation("I12", f"no rest: {lacking} are missing; drivers {states}; {conditions}")

    def _finish(self, dice: Dice, round_: int) -> None:
        self.people.match(dice)
        self.people.care(dice)
        self.people.see_to_assignment(dice)
        for driver in self.people.working():
            for _ in range(3):
                if not (driver.state == "running" and driver.batch is None and self.people.closing):
                    driver.drive(dice)
        while any(driver.deliver(dice) for driver in self.drivers):
            pass

    def _at_rest(self) -> bool:
        if self._items - self.checks.items:
            return False
        done = all(driver.state in ("closed", "stopped") or driver.idle for driver in self.people.working())
        return done and self.checks.truth.open is None and not self.people.closing


def _without_who(act: Callable[[Dice], object]) -> Callable[[int, Dice], object]:
    return lambda who, dice: act(dice)


def _striking(fleet: Fleet, fate: str) -> Callable[[int, Dice], object]:
    return lambda who, dice: fleet.strike(fate, dice)
