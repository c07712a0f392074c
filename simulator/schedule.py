"""One schedule: a plan's steps interleave drivers, coordinators and faults; all is checked after each."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sluicegate.coordinator.core.effects import AppendAbandoned, AppendDecision, Effect
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.events.models import Assignment, StreamPolicy
from sluicegate.lakes.memory import MemoryTable
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.ending import at_rest, check_end, missing, no_rest
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.node import FATES, Fate, Node
from sluicegate.simulator.orders import Orders
from sluicegate.simulator.outside import Outside
from sluicegate.simulator.plan import Plan, Step
from sluicegate.simulator.refused import Refused
from sluicegate.simulator.slow import check_slow
from sluicegate.simulator.source import Job
from sluicegate.simulator.splits import Splits
from sluicegate.simulator.troubles import TROUBLES
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import Item, World

QUIET_ROUNDS = 1_500
"""Of 50 milliseconds each, in which everything must come to rest."""

Action = Callable[[int, Dice], object]


class Outcome(NamedTuple):
    """What a schedule did."""

    steps: int
    coverage: Counter[str]


class Schedule:
    """A world, its drivers, its coordinators and its people, driven by a plan."""

    def __init__(self, plan: Plan, *, story: list[str] | None = None, view: bool = True) -> None:
        """With a story, what happens is told in it; without a view, none is ever written."""
        setting = plan.setting
        self.plan = plan
        self.taken = 0
        """How many of the plan's steps were begun."""
        self.steps = 0
        """These, and those that it took to come to rest."""
        self.world = World(MemoryTable("sim"), story=story)
        self.world.carries = setting.carry_after is not None
        self.checker = Checker(self.world)
        self.checker.timing.timeout = setting.alignment_timeout
        self.checker.faulting.overdue_after = setting.stall_pause
        regions = tuple(f"r{number}" for number in range(setting.regions))
        assignment = Assignment(number=0, regions=regions)
        job = Job(setting.items, setting.sink, setting.owned, setting.unbounded, setting.falling)
        self.drivers = [
            Driver(self.world, job, name, assignment, {f"{name}a": 0, f"{name}b": 0}) for name in regions
        ]
        policy = StreamPolicy(
            number=0,
            partial="allow" if setting.partial else "never",
            max_consecutive_fallbacks=setting.most_fallbacks,
            allowed_locations=("memory://",),
        )
        settings = MachineSettings(
            policy,
            record_interval=setting.record_interval,
            probe_interval=setting.probe_interval,
            stall_pause=setting.stall_pause,
            overdue_after=setting.stall_pause,
            alignment_timeout=setting.alignment_timeout,
            carry_after=setting.carry_after,
        )
        self.fleet = Fleet(
            self.world, settings, self._watch, setting.memory, watched=setting.watched, view=view
        )
        self.fleet.gone = self.checker.recovery.gone
        self.fleet.nodes = [self.fleet.boot() for _ in range(setting.coordinators)]
        self._outside = Outside(self.world, self.fleet, self.checker)
        self._orders = Orders(self.world, self.fleet, self.checker, self.drivers)
        self._splits = Splits(self.world, self.checker, self.drivers)
        self._refused = Refused(self.world, self.checker.reading)
        self._actions = self._all_actions()

    def run(self) -> Outcome:
        """Take all steps, then let everything come to rest without any more faults."""
        for step in self.plan.steps:
            self.taken += 1
            self.steps += 1
            self._take(step)
        self._come_to_rest()
        check_end(self.world, self.checker)
        self.checker.faulting.check_end(self.fleet.nodes)
        check_slow(self.world, self.checker.reading)
        if self.plan.setting.twice and self.fleet.view:
            self._check_without_view()
        return Outcome(self.steps, self.world.coverage)

    def _check_without_view(self) -> None:
        """I10: without Redis, the same is committed and told."""
        other = Schedule(self.plan, view=False)
        try:
            other.run()
        except Violation as broken:
            raise Violation("I10", f"without a view: {broken}") from broken
        if [snapshot.ref for snapshot in other.world.table.history] != [
            snapshot.ref for snapshot in self.world.table.history
        ]:
            raise Violation("I10", "without a view, the table has other snapshots")
        if {due.id for due in other.world.commits} != {due.id for due in self.world.commits}:
            raise Violation("I10", "without a view, the notifications have other ids")

    def _take(self, step: Step) -> None:
        self.world.now += step.after
        dice = Dice(step.draw)
        if step.kind in TROUBLES:
            driver = self.drivers[step.who % len(self.drivers)]
            if TROUBLES[step.kind](driver, dice):
                self.world.saw(step.kind)
                self.world.tell("{}: {}", driver.region, step.kind)
        else:
            self._actions[step.kind](step.who, dice)
        self.checker.step()
        self.checker.faulting.compare(self.fleet.nodes)
        self._splits.watch()

    def _drive(self, who: int, dice: Dice) -> None:
        driver = self.drivers[who % len(self.drivers)]
        driver.drive(dice)

    def _wait(self, who: int, dice: Dice) -> None:
        self.world.now += dice.pick((200, 1_000, 5_000, 20_000))
        self.world.saw("time passes")
        self.world.tell("time passes")

    def _all_actions(self) -> dict[str, Action]:
        fleet, outside, orders = self.fleet, self._outside, self._orders
        counted: dict[str, Callable[[Dice], object]] = {
            "foreign": outside.foreign,
            "impostor": outside.impostor,
            "unfit table": outside.unfit,
            "replaced table": outside.replace,
            "joined table": outside.join,
            "view wiped": outside.wipe_view,
            "newer record": outside.newer_record,
            "expire": outside.expire,
            "retention": outside.retain,
            "pause": orders.pause,
            "log stall": orders.log_stall,
            "resume": orders.resume,
            "savepoint": orders.savepoint,
            "drain": orders.drain,
            "void": orders.void,
            "remove": orders.remove,
            "policy": orders.policy,
            "resplit": self._splits.split,
            "others' opening": self._refused.open,
            "table rolled back": outside.roll_back,
            "proof expired": outside.expire_proof,
            "another deployment": outside.usurp,
            "clock jumps": outside.jump,
            "wrong append time": outside.misdate,
        }
        actions: dict[str, Action] = {
            "drive": self._drive,
            "read": fleet.read,
            "effect": fleet.effect,
            "view": fleet.write_view,
            "wait": self._wait,
            "crash": fleet.crash,
            "freeze": fleet.freeze,
            "thaw": fleet.thaw,
            "rebalance": fleet.rebalance,
            "more coordinators": fleet.more,
            "old record": fleet.old_record,
            "bodies dropped": fleet.drop_bodies,
        }
        actions |= {name: _without_who(act) for name, act in counted.items()}
        actions |= {fate: _striking(fleet, fate) for fate in FATES}
        return actions

    def _come_to_rest(self) -> None:
        """No more faults: everything that was sealed must be committed, whoever does it."""
        self.world.tell("--- no more faults ---")
        self._outside.mend()
        self.fleet.quiet()
        self.checker.step()
        self._orders.halted = True
        self._orders.resume(Dice(0))
        dice = Dice(self.plan.setting.seed)
        for _ in range(QUIET_ROUNDS):
            self.steps += 1
            self.world.now += 50
            for driver in self.drivers:
                driver.finish(dice)
            self.checker.step()
            self._splits.watch()
            if self._splits.hopeless():
                self._orders.allow_deeper()
            self.fleet.run_all(self.checker.step)
            self.checker.step()
            self.checker.faulting.compare(self.fleet.nodes)
            if at_rest(self.drivers, self.fleet, self.checker):
                return
        self._check_fallen_back()
        raise no_rest(self.drivers, self.fleet, self.checker)

    def _check_fallen_back(self) -> None:
        """I11: a region that fell back must come as far as it would have come by full cuts."""
        lacking = missing(self.drivers, self.checker)
        fell_back = {name for verdict in self.checker.reading.valid.values() for name in verdict.fallbacks}
        if any(item in lacking for name in fell_back for item in _items_of(self.drivers, name)):
            check_slow(self.world, self.checker.reading)

    def _watch(self, node: Node, effect: Effect) -> None:
        self.checker.effect(effect)
        if isinstance(effect, AppendDecision | AppendAbandoned):
            self.checker.step()
            self.checker.timing.acted(node.acting_since, node.wanted_at[id(effect)])


def _items_of(drivers: list[Driver], region: str) -> list[Item]:
    """What is read by a region that was not replaced."""
    shards = [
        shard
        for driver in drivers
        if driver.region == region and not driver.stopped
        for shard in driver.reading
    ]
    return [(shard, number) for shard in shards for number in range(drivers[0].job.items)]


def _without_who(act: Callable[[Dice], object]) -> Action:
    return lambda who, dice: act(dice)


def _striking(fleet: Fleet, fate: Fate) -> Action:
    return lambda who, dice: fleet.strike(fate, dice)
