"""One schedule: a seeded scheduler that interleaves drivers, coordinators and faults, step by step."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from sluicegate.coordinator.core.effects import Effect
from sluicegate.coordinator.core.machine import MachineSettings
from sluicegate.events.models import Assignment, StreamPolicy
from sluicegate.lakes.memory import FaultPoint, MemoryTable
from sluicegate.lakes.port import Conflict, LakeUnavailable, OutcomeUnknown, Publication
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.invariants import Checker, Violation
from sluicegate.simulator.node import Node
from sluicegate.simulator.world import World

QUIET_STEPS = 20_000


class Outcome(NamedTuple):
    """What a schedule did."""

    steps: int
    coverage: Counter[str]


@dataclass(frozen=True, slots=True)
class Odds:
    """How likely each kind of step is in one schedule."""

    driver: float
    trouble: float
    read: float
    crash: float
    table_fault: float
    foreign: float


class Schedule:
    """A world, its drivers and its coordinators, driven by one seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.coverage: Counter[str] = Counter()
        self.world = World(MemoryTable("sim"))
        self.checker = Checker(self.world)
        self._quiet = False
        draw = self._random.random
        self._odds = Odds(
            0.2 + draw(), 0.15 * draw(), 0.5 + draw(), 0.2 * draw(), 0.2 * draw(), 0.03 * draw()
        )
        regions = tuple(f"r{number}" for number in range(self._random.randint(1, 3)))
        assignment = Assignment(number=0, regions=regions)
        self.drivers = [
            Driver(self.world, self._random, name, assignment, self._random.randint(1, 12))
            for name in regions
        ]
        self._settings = MachineSettings(
            StreamPolicy(number=0, allowed_locations=("memory://",)), record_interval=20_000
        )
        self.nodes = [self._boot(f"n{number}") for number in range(self._random.randint(1, 2))]

    def run(self, steps: int) -> Outcome:
        """Run with faults for that many steps, then without, until everything is committed."""
        taken = 0
        while taken < steps and not all(driver.done for driver in self.drivers):
            self._step()
            taken += 1
        taken += self._come_to_rest()
        self.checker.end()
        return Outcome(taken, self.coverage)

    def _step(self) -> None:
        random, odds = self._random, self._odds
        self.world.now += random.choice([1, 5, 20, 100]) if random.random() > 0.01 else 2_000
        draw = random.random() * (odds.driver + odds.trouble + odds.read + 1)
        if draw < odds.driver:
            self.coverage[f"driver: {random.choice(self.drivers).step()}"] += 1
        elif draw < odds.driver + odds.trouble:
            self.coverage[f"trouble: {random.choice(self.drivers).trouble()}"] += 1
        elif draw < odds.driver + odds.trouble + odds.read:
            random.choice(self.nodes).read(random.choice([1, 1, 5, 100]))
        else:
            self._run_node(random.randrange(len(self.nodes)))
        if random.random() < odds.foreign:
            self.world.table.foreign_commit()
            self.coverage["foreign commit"] += 1
        if random.random() < 0.01:
            self.world.view = None
            self.coverage["view wiped"] += 1
        self.checker.step()

    def _run_node(self, index: int) -> None:
        node = self.nodes[index]
        node.poll()
        crash = self._random.random() < self._odds.crash
        effect = node.run_one(crash=crash)
        if effect is not None:
            self.coverage[f"effect: {type(effect).__name__}"] += 1
        if crash:
            self.coverage[f"crash after {type(effect).__name__ if effect else 'nothing'}"] += 1
            self.nodes[index] = self._boot(node.name)

    def _come_to_rest(self) -> int:
        """No more faults: everything that was sealed must be committed, whoever does it."""
        self._quiet = True
        for taken in range(QUIET_STEPS):
            self.world.now += 50
            for driver in self.drivers:
                driver.finish()
                driver.step()
            for node in self.nodes:
                node.read(1000)
                node.poll()
                while node.run_one(crash=False) is not None:
                    self.checker.step()
            if self._settled():
                return taken
        stalls = [node.machine.stall_reason for node in self.nodes]
        raise Violation(
            f"I12: no end: committed {self.checker.committed()}, "
            f"drivers at {[(driver.region, driver.batch, driver.opened) for driver in self.drivers]}, "
            f"stalls {stalls}, troubles {[node.machine.trouble for node in self.nodes]}"
        )

    def _settled(self) -> bool:
        committed = self.checker.committed()
        return (
            all(driver.done and committed.get(driver.region) == driver.batches - 1 for driver in self.drivers)
            and all(not node.in_flight and not node.machine.outbox.busy for node in self.nodes)
            and all(node.machine.ready and not node.machine.book.state.pending for node in self.nodes)
        )

    def _boot(self, name: str) -> Node:
        return Node(name, self.world, self._random, self._settings, self._fault, self._watch)

    def _watch(self, node: Node, effect: Effect) -> None:
        self.checker.effect(effect)

    def _fault(self, point: FaultPoint) -> Publication | None:
        if self._quiet or self._random.random() >= self._odds.table_fault:
            return None
        self.coverage[f"fault at {point}"] += 1
        if point == "publish.before":
            outcomes: list[Publication] = [Conflict(), OutcomeUnknown("timed out, not visible")]
            return self._random.choice(outcomes)
        if point == "publish.after":
            return OutcomeUnknown("timed out, visible")
        raise LakeUnavailable(f"storage away at {point}")
