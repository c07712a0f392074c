"""The coordinators: any number of them, with views of any age, that crash, freeze and wake up again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.effects import Effect, WriteRecord, WriteView
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.simulator.coverage import EFFECTS
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.node import FATES, Fate, Node, OffsetGone, Watch
from sluicegate.simulator.words import effect_in_words
from sluicegate.simulator.world import World

MOST: Final = 4
"""Coordinators at a time."""

BUSY: Final = 200
"""Effects that a process runs without a pause, at most."""


RARE: Final = {"AppendAbandoned": 20, "AppendVoided": 15, "AppendPolicy": 3, "AppendDecision": 3}
"""How much more often than others what happens rarely is waited for."""


class First:
    """Chooses what is first: the scheduler has chosen already."""

    def randrange(self, limit: int, /) -> int:
        return 0


@dataclass
class Fleet:
    """The processes, and what a frozen one was about to do."""

    world: World
    settings: MachineSettings
    watch: Watch
    memory: int
    gone: Callable[[int], None] = lambda offset: None
    """Told of an offset that somebody wants to fetch and cannot."""
    nodes: list[Node] = field(default_factory=list)
    frozen: list[tuple[Node, Effect]] = field(default_factory=list)
    """Effects that are run much later, outside of anybody's sight."""
    asleep: list[Node] = field(default_factory=list)
    """Processes that stand still as a whole, and have been replaced."""
    records: list[str] = field(default_factory=list)
    """What was the newest state record at some time."""
    fates: list[tuple[Fate, str]] = field(default_factory=list)
    """What the next effects of these names meet."""
    crashes: list[str] = field(default_factory=list)
    """After the next effects of these names, whoever runs them crashes."""
    freezes: list[str] = field(default_factory=list)
    """Before the next effects of these names, whoever wants to run them freezes."""
    watched: bool = False
    """Whether the transitions that the processes go through are counted."""
    view: bool = True
    """Whether views are written at all."""
    _noted: str | None = None
    _booted: int = 0

    def boot(self, record: str | None = None) -> Node:
        """A new process."""
        self._booted += 1
        name = f"n{self._booted}"
        self.world.tell("{} boots{}", name, " from an older record" if record else "")
        return Node(
            name,
            self.world,
            First(),
            self.settings,
            None,
            self.watch,
            record,
            self.memory,
            watched=self.watched,
        )

    def note_record(self) -> None:
        """Remember the newest state record."""
        if self.world.record is not None and self.world.record != self._noted:
            self._noted = self.world.record
            self.records.append(self._noted)

    # --- steps ------------------------------------------------------------------------------------

    def read(self, who: int, dice: Dice) -> None:
        """One reads on in the log."""
        node = self.nodes[who % len(self.nodes)]
        if node.read(dice.pick((1, 3, 10, 100))):
            self.world.tell("{} reads up to offset {}", node.name, node.next - 1)

    def effect(self, who: int, dice: Dice) -> None:
        """One does something that its core wants done; with nothing to do, it reads."""
        node = self.nodes[who % len(self.nodes)]
        for _ in range(dice.pick((1, 1, 2, 4))):
            effect = self._take(node, dice)
            if effect is None:
                self.read(who, dice)
                return
            self._run(node, effect, dice)
            if node not in self.nodes:
                return

    def strike(self, fate: Fate, dice: Dice) -> None:
        """The next effect of one of its kinds meets this."""
        self.fates.append((fate, _pick(dice, [kind.__name__ for kind in FATES[fate]])))

    def crash(self, who: int, dice: Dice) -> None:
        """One crashes: at once, or after an effect of some kind, before it hears of the outcome."""
        if dice.chance(0.8):
            self.crashes.append(_pick(dice, [name for name in EFFECTS if name != "WriteView"]))
            return
        node = self.nodes[who % len(self.nodes)]
        self.world.saw("crash")
        self.world.tell("{} crashes", node.name)
        self._replace(node)

    def freeze(self, who: int, dice: Dice) -> None:
        """One stands still before an effect, and is replaced."""
        self.freezes.append(_pick(dice, [name for name in EFFECTS if name != "WriteView"]))

    def thaw(self, who: int, dice: Dice) -> None:
        """Something that was frozen goes on, after its successor has."""
        if self.asleep and dice.chance(0.4):
            node = self.asleep.pop(dice.below(len(self.asleep)))
            self.world.tell("{} wakes up", node.name)
            self.world.saw("a whole process wakes up")
            if len(self.nodes) >= MOST:
                self.nodes.pop(who % len(self.nodes))
            self.nodes.append(node)
        elif self.frozen:
            node, effect = self.frozen.pop(dice.below(len(self.frozen)))
            self.world.tell("{} wakes up for {}", node.name, effect_in_words(effect))
            self._perform_late(node, effect)

    def rebalance(self, who: int, dice: Dice) -> None:
        """The partition goes to another process, which may have the old one still at work beside it."""
        self.world.saw("rebalance")
        place = who % len(self.nodes)
        if dice.chance(0.2):
            self._back_and_forth(place, dice)
            return
        if dice.chance(0.5) and len(self.nodes) < MOST:
            self.nodes.append(self.boot())
        else:
            self.nodes[place] = self.boot()
        if len(self.nodes) > 1 and dice.chance(0.5):
            self.nodes.pop(dice.below(len(self.nodes)))

    def _back_and_forth(self, place: int, dice: Dice) -> None:
        """It goes to another process and back, some times, and each does a little with it."""
        self.world.saw("rebalanced back and forth")
        for _ in range(dice.between(2, 4)):
            self.nodes[place] = self.boot()
            self.nodes[place].read(dice.pick((3, 10, 100)))
            for _ in range(dice.between(1, 4)):
                effect = self._take(self.nodes[place], dice)
                if effect is not None:
                    self._perform(self.nodes[place], effect, heard=dice.chance(0.8))

    def more(self, who: int, dice: Dice) -> None:
        """One process more believes that the partition is its own."""
        if len(self.nodes) < MOST:
            self.world.saw("more coordinators")
            self.nodes.append(self.boot())

    def old_record(self, who: int, dice: Dice) -> None:
        """One is replaced, and its successor reads a record that a frozen process wrote last."""
        if self.records:
            self.world.saw("boot from an older record")
            self.nodes[who % len(self.nodes)] = self.boot(dice.pick(self.records[-5:]))

    def drop_bodies(self, who: int, dice: Dice) -> None:
        """One runs out of memory for bodies, and fetches them again."""
        self.world.saw("bodies dropped")
        self.nodes[who % len(self.nodes)].bodies.clear()

    def write_view(self, who: int, dice: Dice) -> None:
        """One gets around to write its view."""
        node = self.nodes[who % len(self.nodes)]
        node.poll()
        if not self.view:
            return
        effect = next((each for each in node.in_flight if isinstance(each, WriteView)), None)
        if effect is not None:
            node.in_flight.remove(effect)
            self._run(node, effect, dice)

    # --- for the others ---------------------------------------------------------------------------

    def quiet(self) -> None:
        """No more faults: those that are frozen do their last, and a few up-to-date processes go on."""
        while self.frozen:
            self._perform_late(*self.frozen.pop())
        self.asleep.clear()
        for ambush in (self.fates, self.crashes, self.freezes):
            ambush.clear()
        self.nodes = [self.boot() for _ in self.nodes[:2]]

    def run_all(self, after_each: Callable[[], None]) -> None:
        """Let everybody read everything and do all that is to be done."""
        for node in list(self.nodes):
            node.read(1_000_000)
            node.poll()
            for _ in range(BUSY):
                wanted = [each for each in node.in_flight if self.view or not isinstance(each, WriteView)]
                if not wanted or node not in self.nodes:
                    break
                node.in_flight.remove(wanted[0])
                self._perform(node, wanted[0], heard=True)
                after_each()
                node.poll()

    def late(self) -> bool:
        """Whether an old record may still be written, or an old decision made."""
        return bool(self.frozen or self.asleep) or any(
            isinstance(effect, WriteRecord) for node in self.nodes for effect in node.in_flight
        )

    def _take(self, node: Node, dice: Dice) -> Effect | None:
        node.poll()
        choices = [place for place, effect in enumerate(node.in_flight) if not isinstance(effect, WriteView)]
        return node.in_flight.pop(dice.pick(choices)) if choices else None

    def _replace(self, node: Node) -> None:
        self.nodes[self.nodes.index(node)] = self.boot()

    def _run(self, node: Node, effect: Effect, dice: Dice) -> None:
        """Run an effect, or fall into what waits for one of its kind."""
        name = type(effect).__name__
        if name in self.freezes:
            self.freezes.remove(name)
            self.world.saw(f"frozen before {name}")
            self.world.tell("{} freezes before {}", node.name, effect_in_words(effect))
            node.in_flight.append(effect)
            if dice.chance(0.6):
                left = [each for each in node.in_flight if not isinstance(each, WriteView)]
                self.frozen.extend((node, each) for each in left)
            else:
                self.asleep.append(node)
            self._replace(node)
            return
        crash = name in self.crashes
        self._perform(node, effect, heard=not crash)
        if crash:
            self.crashes.remove(name)
            if node not in self.nodes:
                return
            self.world.saw(f"crash after {name}")
            self.world.tell("{} crashes after {}", node.name, name)
            self._replace(node)

    def _perform_late(self, node: Node, effect: Effect) -> None:
        """What a frozen process was about to do; nobody hears of the outcome."""
        try:
            node.perform(effect)
        except OffsetGone as error:
            self.gone(error.offset)

    def _perform(self, node: Node, effect: Effect, *, heard: bool) -> None:
        name = type(effect).__name__
        fate = next((fate for fate, kind in self.fates if kind == name), None)
        if fate is not None:
            self.fates.remove((fate, name))
            self.world.saw(f"{fate}: {name}")
        if self.world.story is not None:
            met = f", which meets: {fate}" if fate else ""
            self.world.tell("{} does {}{}", node.name, effect_in_words(effect), met)
        try:
            result = node.perform(effect, fate)
        except OffsetGone as error:
            # It lives in the past: the others have settled this, or its own record would be wrong.
            self.gone(error.offset)
            self.world.saw("left behind by retention")
            self.world.tell("{} misses offset {}, and starts anew", node.name, error.offset)
            self._replace(node)
            return
        self.world.saw(f"{name} -> {type(result).__name__}")
        if heard:
            node.hear(effect, result)
        self.note_record()


def _pick(dice: Dice, names: list[str]) -> str:
    """One of the names; what happens rarely is waited for more often."""
    return dice.pick([name for name in names for _ in range(RARE.get(name, 1))])
