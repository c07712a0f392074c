"""What the dumb reading of the log knows of regions and lineages: plain data, nothing of the core's."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sluicegate.events.models import Assignment, CheckpointCompleted, Parent, Position

Group = tuple[str, str, int]
"""Region, lineage, checkpoint."""


@dataclass
class Pile:
    """What has arrived of one checkpoint of a lineage."""

    opened: int
    """Offset of its first event."""
    arrived: set[str] = field(default_factory=set)
    attempts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By event, who wrote its files, and in which attempt."""
    completion: CheckpointCompleted | None = None
    stands: dict[str, int] = field(default_factory=dict)
    """Where its events, and its completion under no name, stand last: there, or where they were copied."""
    passed: bool = False
    """A cut has passed it by: its number was given up."""

    @property
    def first(self) -> int:
        """The offset from which on everything of it can be read that is needed."""
        needed = {*self.completion.events, ""} if self.completion else self.arrived
        return min((self.stands[name] for name in needed if name in self.stands), default=self.opened)

    @property
    def whole(self) -> bool:
        """Completed, every named event has arrived, and each writer's are of one attempt."""
        return self.is_there and not self.doubled

    @property
    def is_there(self) -> bool:
        """Completed, and every named event has arrived."""
        return self.completion is not None and self.arrived.issuperset(self.completion.events)

    @property
    def doubled(self) -> bool:
        """Whether two attempts of one writer are named, and all events have arrived."""
        if self.completion is None or not self.is_there:
            return False
        named = {self.attempts[event] for event in self.completion.events}
        return len(named) > len({writer for writer, _ in named})


@dataclass
class Life:
    """A lineage."""

    start: int | None
    """Its parent's last checkpoint that counts, if it has a parent of the same region."""
    assignment: int
    opened: int
    """Offset of its opening."""
    elsewhere: tuple[Parent, ...] = ()
    """Checkpoints of other regions that it builds on."""
    limit: int | None = None
    """A child ended it here; -1: nothing of it counts."""
    held: int | None = None
    """From here on nothing of it is ever to be committed."""
    continued: int = 0
    """The assignment under which it was opened last."""
    decided: int | None = None
    watermark: int | None = None
    """The region's, at the decided checkpoint."""
    highest: int | None = None
    """The highest watermark that the lineage's decided checkpoints carry."""
    killed: bool = False
    """Others went on from elsewhere, and nothing of it ever counts."""
    piles: dict[int, Pile] = field(default_factory=dict)
    after: dict[int | None, int] = field(default_factory=dict)
    """The checkpoint that follows each."""

    @property
    def floor(self) -> int:
        return -1 if self.decided is None else self.decided

    @property
    def at_work(self) -> bool:
        """Whether something has arrived of it that may still be committed."""
        ended = self.limit is not None and self.limit <= self.floor
        return not ended and any(number > self.floor for number in self.piles)

    def hold(self, checkpoint: int) -> None:
        """Let nothing build on a checkpoint that something is wrong with, nor on what follows it."""
        first = max(checkpoint, self.floor + 1)
        self.held = first if self.held is None else min(self.held, first)

    def open(self) -> dict[int, Pile]:
        """The piles that are neither decided nor void."""
        return {
            number: pile
            for number, pile in self.piles.items()
            if number > self.floor and (self.limit is None or number <= self.limit)
        }

    def sealed(self) -> list[int]:
        """Completed, whole and contiguous from the decided one on."""
        found: list[int] = []
        at = self.decided
        while (number := self.after.get(at)) is not None and self.piles[number].whole:
            if self.limit is not None and number > self.limit:
                break
            found.append(number)
            at = number
        return found


@dataclass
class Account:
    """A region."""

    lives: dict[str, Life] = field(default_factory=dict)
    chain: list[str] = field(default_factory=list)
    """From the lineage that the ref is in to the live one."""
    accepted: dict[str, Position | None] = field(default_factory=dict)
    """Lineages that may start without a parent, each behind one ref."""
    ref: Position | None = None
    digest: str | None = None
    """Of the source range at the ref."""
    watermark: int | None = None
    listeners: dict[str, str] = field(default_factory=dict)
    fallbacks: int = 0
    idle: bool = False
    closed: bool = False
    final: int | None = None
    left: bool = False
    removed: bool = False
    joined: bool = False
    fault: bool = False

    @property
    def live(self) -> str | None:
        return self.chain[-1] if self.chain else None

    @property
    def resting(self) -> bool:
        """Idle by its last heartbeat, and by what has arrived of it."""
        return self.idle and not any(self.lives[lineage].at_work for lineage in self.chain)

    def copy(self) -> "Account":
        """As it is now; the piles are shared, since nothing is ever taken from them."""
        lives = {name: replace(life) for name, life in self.lives.items()}
        return replace(self, lives=lives, chain=list(self.chain))

    def sealed(self) -> list[Position]:
        """The sealed checkpoints beyond the ref, along the chain, in order."""
        found: list[Position] = []
        for lineage in self.chain:
            life = self.lives[lineage]
            numbers = life.sealed()
            found += [Position(lineage=lineage, checkpoint=number) for number in numbers]
            if life.limit is None or (numbers[-1] if numbers else life.floor) < life.limit:
                break
        return found

    def at_or_beyond(self, at: Position, target: Position) -> bool:
        """Whether a position reaches another along the chain; what is not in it is never reached."""
        if target.lineage not in self.chain or at.lineage not in self.chain:
            return False
        here, there = self.chain.index(at.lineage), self.chain.index(target.lineage)
        return (here, at.checkpoint) >= (there, target.checkpoint)


class Target(NamedTuple):
    """Savepoints that are to be taken with one full cut."""

    names: tuple[str, ...]
    places: dict[str, Position]


@dataclass
class Verdict:
    """A decision that is valid by the log, and all that follows from it."""

    number: int
    offset: int
    digest: str
    cut: dict[str, Position]
    groups: list[Group]
    """The checkpoints that it includes."""
    events: list[str]
    """The events that these name."""
    fallbacks: dict[str, Position | None]
    forced: bool
    final: bool
    watermark: int | None
    counted: list[str]
    """The regions that the watermark is of."""
    listeners: dict[str, dict[str, str]]
    before: dict[str, Account]
    was: tuple[Assignment | None, Assignment | None, Target | None, int | None]
    """Assignment, next one, savepoint and watermark before it."""
    void: bool = False
