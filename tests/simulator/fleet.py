"""The coordinators: any number of processes, that crash, freeze, wake up again, and boot from old records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.effects import Effect, MachineSettings, Publish, Result, WriteView
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.stream.continuity import LogRange, deleted, discontinuity
from tests.doubles.memory_group import Interrupted
from tests.simulator.dice import Dice
from tests.simulator.fates import KINDS, kinds_of, name_of, pick
from tests.simulator.retention import Retention
from tests.simulator.surroundings import Surroundings
from tests.simulator.violation import Violation
from tests.simulator.world import STREAM, World

Watch = Callable[[Effect], None]
"""Called with each effect before it runs."""
MOST: Final = 4
BUSY: Final = 200
IDLE: Final = (0, 20, 100, 400)
"""Milliseconds that pass where a process has nothing to do."""


class Node:
    """One life of a coordinator process; a crash ends it."""

    def __init__(
        self, name: str, world: World, settings: MachineSettings, watch: Watch, between: Callable[[], None]
    ) -> None:
        """Boot from the state record, or from the base record."""
        self.name = name
        self._world = world
        self._watch = watch
        record = world.recovery() or StateRecord(stream=STREAM, applied=-1, low_water=0, state=LogState())
        self._surroundings = Surroundings(world, record.low_water, between)
        self.machine = StreamMachine(STREAM, 0, record, settings)
        held = LogRange(world.begin, len(world.log))
        known = {record.applied: world.log[record.applied].envelope.id} if record.applied >= 0 else {}
        self.lacks = discontinuity(record, held, known if record.applied >= world.begin else {})
        """The problem if the log lacks records that it needs."""
        if self.lacks is not None:
            self.machine.block(self.lacks, held.end)
        self.next = max(record.low_water, world.begin)
        self.in_flight: list[Effect] = []

    def read(self, most: int) -> int:
        """Read up to that many records of the log; return how many there were."""
        if self.next < self._world.begin:
            # The client cannot read from a deleted offset: the partition is refused.
            self.lacks = deleted(self.next, self._world.begin)
            self.machine.block(self.lacks, self.next)
            return 0
        batch = self._world.log[self.next : self.next + most]
        for entry in batch:
            applied = self.machine.step(entry.record)
            if applied.ignored is not None:
                self._world.saw(f"ignored: {applied.ignored.code}")
            self.next = entry.offset + 1
        self.machine.reached(self.next)
        return len(batch)

    def poll(self) -> None:
        """Take the effects that the core wants now."""
        fresh = self.machine.poll(self._world.now)
        self.in_flight += fresh

    def perform(self, effect: Effect, fate: str = "") -> Result:
        """Run an effect, with something that goes wrong."""
        self._watch(effect)
        return self._surroundings.perform(effect, fate)

    def hear(self, effect: Effect, result: Result) -> None:
        """Hand the result in."""
        self.machine.finished(effect, result)

    @property
    def is_stale(self) -> bool:
        """True if others have other settings of further tables by now."""
        return self._surroundings.settings != self._world.settings

    @property
    def low_water(self) -> int:
        """Return the low-water mark of the newest record that it has read or written."""
        return self._surroundings.low_water


@dataclass
class Fleet:
    """The processes, and the effects before which some of them froze."""

    world: World
    settings: MachineSettings
    watch: Watch
    retention: Retention
    focus: tuple[str, ...] = ()
    """Effects that most faults of processes and of effects are about."""
    nodes: list[Node] = field(default_factory=list)
    frozen: list[tuple[Node, Effect]] = field(default_factory=list)
    asleep: list[Node] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    fates: list[tuple[str, str]] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    freezes: list[str] = field(default_factory=list)
    view: bool = True
    _booted: int = 0

    def boot(self) -> Node:
        """Return a new process."""
        self._booted += 1
        self.world.tell("n{} boots", self._booted)
        node = Node(f"n{self._booted}", self.world, self.settings, self.watch, self._publish_late)
        if node.lacks is not None and self.world.kept is None:
            raise Violation("I8", f"{node.name} needs records that coordinators deleted: {node.lacks}")
        return node

    def read(self, who: int, dice: Dice) -> None:
        """Let one read on in the log."""
        self.nodes[who % len(self.nodes)].read(dice.pick((1, 3, 10, 100)))

    def effect(self, who: int, dice: Dice) -> None:
        """Let one read and run some effects; with nothing to do, time passes until a timer may fire."""
        node = self.nodes[who % len(self.nodes)]
        for _ in range(dice.pick((1, 2, 4, 8))):
            seen = node.read(dice.pick((0, 0, 1, 100)))
            effect = self._take(node, dice)
            if effect is None:
                if seen + node.read(dice.pick((1, 3, 10, 100))) == 0:
                    self.world.now += dice.pick(IDLE)
                return
            self._run(node, effect, dice)
            if node not in self.nodes:
                return

    def strike(self, fate: str, dice: Dice) -> None:
        """Let the next effect of one of its kinds meet this."""
        self.fates.append((fate, pick(dice, list(kinds_of(fate)), self.focus)))

    def crash(self, who: int, dice: Dice) -> None:
        """Let one crash: at once, or after an effect of some kind, before it hears of the result."""
        if dice.chance(0.8):
            self.crashes.append(pick(dice, list(KINDS), self.focus))
            return
        self._replace(self.nodes[who % len(self.nodes)])

    def freeze(self, who: int, dice: Dice) -> None:
        """Let one stand still before an effect, and be replaced."""
        self.freezes.append(pick(dice, list(KINDS), self.focus))

    def thaw(self, who: int, dice: Dice) -> bool:
        """Let something that was frozen continue, after its successor has."""
        if self.asleep and dice.chance(0.4):
            node = self.asleep.pop(dice.below(len(self.asleep)))
            self.world.saw("a whole process wakes up")
            self.world.tell("{} wakes up", node.name)
            if len(self.nodes) >= MOST:
                self.nodes.pop(who % len(self.nodes))
            self.nodes.append(node)
            return True
        if self.frozen:
            node, effect = self.frozen.pop(dice.below(len(self.frozen)))
            self.world.saw("a frozen effect runs")
            self._perform_late(node, effect)
            return True
        return False

    def _perform_late(self, node: Node, effect: Effect) -> None:
        """Let a frozen effect run. Nobody hears of its result."""
        self.world.tell("{} wakes up for {}", node.name, name_of(effect))
        try:
            node.perform(effect)
        except Interrupted:
            self.world.tell("{} ends between two tables", node.name)

    def _publish_late(self) -> None:
        """Let a frozen publication run, between the questions of another process to two tables."""
        late = next((each for each in self.frozen if isinstance(each[1], Publish)), None)
        if late is not None:
            self.frozen.remove(late)
            self.world.saw("a publication between two questions")
            self._perform_late(*late)

    def rebalance(self, who: int, dice: Dice) -> None:
        """Move the partition to another process; the old one may stay at work beside it."""
        place = who % len(self.nodes)
        if dice.chance(0.5) and len(self.nodes) < MOST:
            self.nodes.append(self.boot())
        else:
            self.nodes[place] = self.boot()
        if len(self.nodes) > 1 and dice.chance(0.5):
            self.nodes.pop(dice.below(len(self.nodes)))

    def more(self, who: int, dice: Dice) -> bool:
        """Let one more process believe that the partition is its own."""
        if len(self.nodes) >= MOST:
            return False
        self.nodes.append(self.boot())
        return True

    def old_record(self, who: int, dice: Dice) -> bool:
        """Let one be replaced, after a frozen process wrote an older record last."""
        if not self.records:
            return False
        self.world.record = dice.pick(self.records[-5:])
        self.world.tell("an older record is put back")
        self.nodes[who % len(self.nodes)] = self.boot()
        return True

    def lose_record(self, who: int, dice: Dice) -> bool:
        """Lose the state record: the successor reads from the base record, or the whole log."""
        if self.world.kept is not None:
            return False
        self.world.record = None
        self.nodes[who % len(self.nodes)] = self.boot()
        return True

    def delete_records(self, who: int, dice: Dice) -> bool:
        """Let one delete the records that nobody needs."""
        return self.retention.delete(self.nodes[who % len(self.nodes)].low_water, dice)

    def overwrite_base(self, who: int, dice: Dice) -> bool:
        """Have an older record as the newest base record: the newest record counts."""
        return bool(self.records) and self.retention.overwrite(dice.pick(self.records[-5:]))

    def restart_blocked(self) -> None:
        """Restart the coordinators that lack records."""
        for node in [each for each in self.nodes if each.lacks is not None]:
            self._replace(node)

    def renew(self, most: int = MOST) -> None:
        """Restart coordinators that have older settings of further tables than new ones get."""
        for node in [each for each in self.nodes if each.is_stale][:most]:
            self._replace(node)

    def write_view(self, who: int, dice: Dice) -> None:
        """Let one write its view."""
        node = self.nodes[who % len(self.nodes)]
        node.poll()
        effect = next((each for each in node.in_flight if isinstance(each, WriteView)), None)
        if effect is not None and self.view:
            node.in_flight.remove(effect)
            self._run(node, effect, dice)

    def quiet(self) -> None:
        """No more faults: frozen effects run, and two fresh processes continue."""
        while self.frozen:
            self._perform_late(*self.frozen.pop())
        self.asleep.clear()
        for ambush in (self.fates, self.crashes, self.freezes):
            ambush.clear()
        self.nodes = [self.boot() for _ in self.nodes[:2]]

    def run_all(self, after_each: Callable[[], None]) -> None:
        """Let everybody read everything, and do everything."""
        for node in list(self.nodes):
            node.read(1_000_000)
            node.poll()
            for _ in range(BUSY):
                wanted = [each for each in node.in_flight if self.view or not isinstance(each, WriteView)]
                if not wanted:
                    break
                node.in_flight.remove(wanted[0])
                self._perform(node, wanted[0], heard=True)
                after_each()
                if node not in self.nodes:
                    break
                node.read(1_000_000)
                node.poll()

    def replicas(self) -> Iterator[tuple[str, int, Replica]]:
        """Yield name, position and replica of each process."""
        yield from ((each.name, each.machine.position, each.machine.replica) for each in self.nodes)

    def conditions(self) -> list[Condition]:
        """Return the conditions of all processes."""
        return [found for each in self.nodes for found in each.machine.conditions()]

    def _take(self, node: Node, dice: Dice) -> Effect | None:
        node.poll()
        choices = [place for place, effect in enumerate(node.in_flight) if not isinstance(effect, WriteView)]
        return node.in_flight.pop(dice.pick(choices)) if choices else None

    def _replace(self, node: Node) -> None:
        self.nodes[self.nodes.index(node)] = self.boot()

    def _run(self, node: Node, effect: Effect, dice: Dice) -> None:
        name = name_of(effect)
        if name in self.freezes:
            self.freezes.remove(name)
            self.world.saw(f"frozen before {name}")
            self.world.tell("{} freezes before {}", node.name, name)
            node.in_flight.append(effect)
            if dice.chance(0.6):
                self.frozen += [(node, each) for each in node.in_flight if not isinstance(each, WriteView)]
            else:
                self.asleep.append(node)
            self._replace(node)
            return
        crash = name in self.crashes
        self._perform(node, effect, heard=not crash)
        if crash and node in self.nodes:
            self.crashes.remove(name)
            self.world.saw(f"crash after {name}")
            self.world.tell("{} crashes after {}", node.name, name)
            self._replace(node)

    def _perform(self, node: Node, effect: Effect, *, heard: bool) -> None:
        name = name_of(effect)
        fate = next((fate for fate, kind in self.fates if kind == name), "")
        if fate:
            self.fates.remove((fate, name))
            self.world.saw(f"{fate}: {name}")
        self.world.tell("{} does {}{}", node.name, name, f", which meets: {fate}" if fate else "")
        try:
            result = node.perform(effect, fate)
        except Interrupted:
            self.world.saw("a process ends between two tables")
            self.world.tell("{} ends between two tables", node.name)
            self._replace(node)
            return
        again = " that may pass" if getattr(result, "again", False) else ""
        self.world.saw(f"{name} -> {type(result).__name__}{again}")
        if getattr(result, "by_marker", False):
            self.world.saw("an answer by the marker alone")
        self.world.tell("  -> {}", result)
        if heard:
            node.hear(effect, result)
        if self.world.record is not None and (not self.records or self.records[-1] != self.world.record):
            self.records.append(self.world.record)
