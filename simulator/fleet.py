"""The coordinators: any number of them, that crash, freeze, wake up again, and boot from old records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.effects import Append, Effect, WriteView
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.node import FATES, Node, Watch
from sluicegate.simulator.world import World

MOST: Final = 4
BUSY: Final = 200
KINDS: Final = (
    "InspectTable",
    "FetchEnd",
    "CheckFiles",
    "stream.policy",
    "cut.decided",
    "cut.committed",
    "cut.reverted",
    "cut.abandoned",
    "region.heartbeat",
    "Ask",
    "Publish",
    "WriteRecord",
    "Announce",
    "ReleaseOffsets",
)
"""Effects by name; an append by the type of its event."""
RARE: Final = {
    "cut.abandoned": 20,
    "cut.reverted": 16,
    "region.heartbeat": 20,
    "stream.policy": 4,
    "cut.decided": 3,
    "cut.committed": 3,
    "Publish": 2,
    "Ask": 2,
}


def name_of(effect: Effect) -> str:
    """Return the name of an effect as in KINDS."""
    return str(effect.type) if isinstance(effect, Append) else type(effect).__name__


@dataclass
class Fleet:
    """The processes, and the effects before which some of them froze."""

    world: World
    settings: MachineSettings
    watch: Watch
    nodes: list[Node] = field(default_factory=list)
    frozen: list[tuple[Node, Effect]] = field(default_factory=list)
    asleep: list[Node] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    fates: list[tuple[str, str]] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    freezes: list[str] = field(default_factory=list)
    view: bool = True
    _booted: int = 0

    def boot(self, record: str | None = None) -> Node:
        """Return a new process."""
        self._booted += 1
        self.world.tell("n{} boots{}", self._booted, " from an older record" if record else "")
        return Node(f"n{self._booted}", self.world, self.settings, self.watch, record)

    def read(self, who: int, dice: Dice) -> None:
        """Let one read on in the log."""
        self.nodes[who % len(self.nodes)].read(dice.pick((1, 3, 10, 100)))

    def effect(self, who: int, dice: Dice) -> None:
        """Let one run some effects; with none to run, it reads."""
        node = self.nodes[who % len(self.nodes)]
        for _ in range(dice.pick((1, 1, 2, 4))):
            effect = self._take(node, dice)
            if effect is None:
                self.read(who, dice)
                return
            self._run(node, effect, dice)
            if node not in self.nodes:
                return

    def strike(self, fate: str, dice: Dice) -> None:
        """Let the next effect of one of its kinds meet this."""
        self.fates.append((fate, _pick(dice, list(kinds_of(fate)))))

    def crash(self, who: int, dice: Dice) -> None:
        """Let one crash: at once, or after an effect of some kind, before it hears of the result."""
        if dice.chance(0.8):
            self.crashes.append(_pick(dice, list(KINDS)))
            return
        self._replace(self.nodes[who % len(self.nodes)])

    def freeze(self, who: int, dice: Dice) -> None:
        """Let one stand still before an effect, and be replaced."""
        self.freezes.append(_pick(dice, list(KINDS)))

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
            self.world.tell("{} wakes up for {}", node.name, name_of(effect))
            node.perform(effect)
            return True
        return False

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
        """Let one be replaced, and its successor read a record that a frozen process wrote last."""
        if not self.records:
            return False
        self.nodes[who % len(self.nodes)] = self.boot(dice.pick(self.records[-5:]))
        return True

    def lose_record(self, who: int, dice: Dice) -> None:
        """Lose the state record: the successor reads the whole log."""
        self.world.record = None
        self.nodes[who % len(self.nodes)] = self.boot()

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
            node, effect = self.frozen.pop()
            node.perform(effect)
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
                node.read(1_000_000)
                node.poll()

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
        result = node.perform(effect, fate)
        self.world.saw(f"{name} -> {type(result).__name__}")
        self.world.tell("  -> {}", result)
        if heard:
            node.hear(effect, result)
        if self.world.record is not None and (not self.records or self.records[-1] != self.world.record):
            self.records.append(self.world.record)


def kinds_of(fate: str) -> Iterator[str]:
    """Yield the names of the effects that can meet a fault."""
    struck = {each.__name__ for each in FATES[fate]}
    yield from (name for name in (*KINDS, "WriteView") if ("Append" if "." in name else name) in struck)


def _pick(dice: Dice, names: list[str]) -> str:
    """Return one of the names; rare effects are waited for more often."""
    return dice.pick([name for name in names for _ in range(RARE.get(name, 1))])
