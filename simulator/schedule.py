"""One schedule: a seeded scheduler that interleaves drivers, coordinators and faults, step by step."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from sluicegate.coordinator.core.effects import Effect, WriteRecord
from sluicegate.coordinator.core.machine import MachineSettings
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, RegionHeartbeat, StreamPolicy
from sluicegate.lakes.memory import FaultPoint, MemoryTable
from sluicegate.lakes.port import Conflict, LakeUnavailable, OutcomeUnknown, Publication
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.invariants import Checker, Violation
from sluicegate.simulator.node import Node
from sluicegate.simulator.world import REFUSED, STREAM, World

QUIET_STEPS = 2_000


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
    freeze: float
    """Of a crash: that the process was only frozen, and does what it was about to do much later."""
    lag: float
    """Of a boot: that an older state record is read back, which a frozen process wrote last."""
    trouble_outside: float
    """The table refused, or a record of a newer release, for a while."""
    expiry: float


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
            driver=0.2 + draw(),
            trouble=0.15 * draw(),
            read=0.5 + draw(),
            crash=0.2 * draw(),
            table_fault=0.2 * draw(),
            foreign=0.03 * draw(),
            freeze=draw(),
            lag=0.3 * draw(),
            trouble_outside=0.02 * draw() if draw() < 0.5 else 0.0,
            expiry=0.1 * draw() if draw() < 0.5 else 0.0,
        )
        self._records: list[str] = []
        """What was the newest state record at some time."""
        self._frozen: list[tuple[Node, Effect]] = []
        regions = tuple(f"r{number}" for number in range(self._random.randint(1, 3)))
        assignment = Assignment(number=0, regions=regions)
        self.drivers = [
            Driver(self.world, self._random, name, assignment, self._random.randint(1, 12))
            for name in regions
        ]
        self._settings = MachineSettings(
            StreamPolicy(number=0, allowed_locations=("memory://",)),
            record_interval=self._random.choice([500, 20_000]),
            stall_pause=self._random.choice([100, 15_000]),
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
        if random.random() < odds.trouble_outside:
            self._trouble_outside()
        if random.random() < odds.expiry:
            self._expire()
        if self._frozen and random.random() < 0.02:
            self._thaw()
        if self.world.record is not None and self.world.record not in self._records[-1:]:
            self._records.append(self.world.record)
        self.checker.step()

    def _trouble_outside(self) -> None:
        table, world = self.world.table, self.world
        if self._random.random() < 0.1:
            self.coverage["newer record"] += 1
            beat = Envelope(world.new_id("n"), EventType.REGION_HEARTBEAT, STREAM, "r0", "elsewhere")
            world.newer.add(world.append(beat, RegionHeartbeat()))
        else:
            self.coverage["table refused or not"] += 1
            table.refusal = None if table.refusal else REFUSED

    def _expire(self) -> None:
        """Expire snapshots when no outcome is open: what is then decided must still be provable."""
        state = (
            StateRecord.model_validate_json(self.world.record or "{}").state if self.world.record else None
        )
        machines = [node.machine for node in self.nodes]
        settled = state is not None and state.decided == state.committed == self.checker.decisions()
        late = bool(self._frozen) or any(
            isinstance(effect, WriteRecord) for node in self.nodes for effect in node.in_flight
        )
        if not settled or late or any(machine.book.state.pending for machine in machines):
            return
        for _ in range(3):
            self.world.table.foreign_commit()
        head, kept = self.world.table.head, self._random.randint(1, 3)
        cleans = [machine.book.state.recorded for machine in machines]
        cleans += [state.recorded] if state is not None else []
        oldest = min((ref.id if ref else 0 for ref in cleans), default=head.id if head else 0)
        self.world.table.expire(max(kept, head.id - oldest + 1 if head else 0))
        self._records.clear()
        self.coverage["history expired"] += 1

    def _thaw(self) -> None:
        node, effect = self._frozen.pop(self._random.randrange(len(self._frozen)))
        self.coverage[f"late {type(effect).__name__}"] += 1
        node.perform(effect)

    def _run_node(self, index: int) -> None:
        node = self.nodes[index]
        node.poll()
        crash = self._random.random() < self._odds.crash
        effect = node.run_one(crash=crash)
        if effect is not None:
            self.coverage[f"effect: {type(effect).__name__}"] += 1
        if crash:
            self.coverage[f"crash after {type(effect).__name__ if effect else 'nothing'}"] += 1
            if self._random.random() < self._odds.freeze:
                self._frozen.extend((node, left) for left in node.in_flight)
            self.nodes[index] = self._boot(node.name)

    def _come_to_rest(self) -> int:
        """No more faults: everything that was sealed must be committed, whoever does it."""
        self._quiet = True
        while self._frozen:
            self._thaw()
        self.world.table.refusal = None
        self.world.upgraded = True
        self.nodes = [self._boot(node.name) if self.world.newer else node for node in self.nodes]
        for node in self.nodes:
            node.lossy = False
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
        record = None
        if self._records and not self._quiet and self._random.random() < self._odds.lag:
            record = self._random.choice(self._records[-5:])
            self.coverage["older record"] += 1
        return Node(name, self.world, self._random, self._settings, self._fault, self._watch, record)

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
