"""What a simulated job reads and writes: shards of a source, batch by batch, and what it says of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Body, CheckpointCompleted, Position
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.world import STREAM, Item, World

Reading = dict[str, int]
"""The next item of each shard."""

Sink = Literal["independent", "all-to-all", "shared-files"]


Wrong = Callable[[tuple[str, str, int]], list[tuple[Envelope, Body]]]
"""Gives events of (region, lineage, checkpoint) that no completion may name together."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all drivers of the stream have in common."""

    items: int
    """How many items each shard has."""
    sink: Sink = "independent"
    owned: bool = True
    unbounded: bool = False
    falling: bool = False
    """Some batches carry late data, and a lower watermark than the one before."""


@dataclass(eq=False)
class Batches:
    """A region's work; what it knows survives its crashes as a job's checkpoint location does."""

    world: World
    job: Job
    region: str
    assignment: Assignment
    reading: Reading
    generation: int = 0
    batch: int = 0
    """The number of the next checkpoint."""
    first: int = 0
    """The first checkpoint of the lineage."""
    finished: list[int] = field(default_factory=list)
    """The checkpoints of the lineage that were completed; numbers that were given up are not among them."""
    kept: dict[tuple[str, int] | None, frozenset[str]] = field(default_factory=dict)
    """The shards that are still its own behind (lineage, checkpoint); others read the rest from there."""
    location: str = "q"
    """A deleted checkpoint location is followed by one of another name."""
    start: Reading = field(init=False)
    """Where the source stood before the region's first lineage."""
    lineage_start: Reading = field(init=False)
    marks: dict[tuple[str, str, int], Reading] = field(default_factory=dict)
    """Where the source stood after (region, lineage, checkpoint)."""
    planned: dict[tuple[str, int], tuple[Item, ...]] = field(default_factory=dict)
    """The range of each batch that was begun, as the job's own log of offsets has it."""
    uploads: list[tuple[Envelope, Body]] = field(default_factory=list)
    """Named events that are still on their way."""
    stray: list[tuple[Envelope, Body]] = field(default_factory=list)
    """Duplicates and zombies' events on their way."""
    never: list[int] = field(default_factory=list)
    """Checkpoints of the live lineage that can never be committed: a named event is lost, or wrong."""

    def __post_init__(self) -> None:
        self.begin_at(self.reading)

    def begin_at(self, reading: Reading) -> None:
        """Let the region's first lineage begin there."""
        self.start, self.reading, self.lineage_start = dict(reading), dict(reading), dict(reading)
        self.batch = self.first = 0
        self.finished.clear()
        self.never.clear()

    @property
    def lineage(self) -> str:
        return f"{self.location}-{self.region}.{self.generation}"

    @property
    def at_end(self) -> bool:
        """Whether everything was read."""
        return all(at >= self.job.items for at in self.reading.values())

    def reading_at(self, target: Position | None) -> Reading:
        """Where the source stood after a checkpoint; None: before everything."""
        key = (target.lineage, target.checkpoint) if target else None
        read = self.marks[self.region, *key] if key else self.start
        kept = self.kept.get(key, read.keys())
        return {shard: at for shard, at in read.items() if shard in kept}

    @property
    def last(self) -> int:
        """The last checkpoint that was completed, or that the lineage begins behind; -1 for none."""
        return self.finished[-1] if self.finished else self.first - 1

    def stands(self) -> Position | None:
        """The last checkpoint of the live lineage, if it has completed any."""
        return Position(lineage=self.lineage, checkpoint=self.finished[-1]) if self.finished else None

    def run_batch(
        self,
        dice: Dice,
        *,
        completed: bool = True,
        speculate: bool = False,
        lose: bool = False,
        wrong: Wrong | None = None,
    ) -> str:
        """Read a range, write files, and complete the checkpoint; a wrong event is named, too."""
        read = self._range(dice)
        at = (self.region, self.lineage, self.batch)
        named = self._write(at, dice, speculate=speculate)
        if wrong is not None:
            named += wrong(at)
            self.never.append(self.batch)
        for event in named:
            if lose:
                # The executor dies with its spool: the event was named, and never comes.
                self.never.append(self.batch)
                lose = False
            elif dice.chance(0.2):
                self.uploads.append(event)
            else:
                self.world.append(*event)
        if not completed:
            return "batch without completion"
        self.complete(tuple(envelope.id for envelope, _ in named), read)
        return "batch"

    def complete(self, events: tuple[str, ...], read: tuple[Item, ...]) -> None:
        """Complete the checkpoint, and go on to the next."""
        after = {**self.reading, **{shard: number + 1 for shard, number in read}}
        said: dict[str, str] = {"partitions": f"{self.lineage}/{self.batch}"} if self.batch % 3 == 0 else {}
        if self.batch % 4 == 1:
            said["tags"] = f"t{self.batch}"
        body = CheckpointCompleted(
            events=events,
            predecessor=self.finished[-1] if self.finished else None,
            source_digest=self._digest(read),
            watermark=self._watermark(after),
            listeners=said,
        )
        self.say(EventType.CHECKPOINT_COMPLETED, body, self.batch)
        key = (self.region, self.lineage, self.batch)
        self.marks[key] = after
        self.world.reached[key] = 100 * min(after.values(), default=0)
        self.reading = after
        self.finished.append(self.batch)
        self.batch += 1

    def _watermark(self, after: Reading) -> int | None:
        if self.finished and self.batch % 5 == 4:
            return None
        reached = 100 * min(after.values(), default=0)
        if self.job.falling and self.batch % 3 == 2:
            self.world.saw("watermark falls")
            return reached // 2
        return reached

    def _range(self, dice: Dice) -> tuple[Item, ...]:
        """The range of the next batch: drawn once, the same in every replay."""
        key = (self.lineage, self.batch)
        if key not in self.planned:
            some = [
                (shard, number)
                for shard, at in self.reading.items()
                for number in range(at, min(at + dice.between(1, 2), self.job.items))
            ]
            self.planned[key] = tuple(some)
        return self.planned[key]

    def _digest(self, read: tuple[Item, ...]) -> str:
        digest = (
            "+".join(f"{shard}:{number}" for shard, number in read) or f"nothing:{self.lineage}:{self.batch}"
        )
        self.world.ranges[digest] = read
        return digest

    def _write(self, at: tuple[str, str, int], dice: Dice, *, speculate: bool) -> list[tuple[Envelope, Body]]:
        named: list[tuple[Envelope, Body]] = []
        for writer in range(dice.pick((0, 1, 1, 2))):
            if speculate:
                # The slower attempt publishes, too, before or after the job chose the other one.
                loser = self.world.files_event(at, f"w{writer}", self.world.new_id("a"))
                if dice.chance(0.5):
                    self.world.append(*loser)
                else:
                    self.stray.append(loser)
            attempt = self.world.new_id("a")
            events = dice.pick((1, 1, 2))
            named.extend(self.world.files_event(at, f"w{writer}", attempt) for _ in range(events))
        return named

    def say(self, event_type: EventType, body: Body, checkpoint: int = -1) -> None:
        """Append an event of the driver."""
        envelope = Envelope(self.world.new_id("d"), event_type, STREAM, self.region, self.lineage, checkpoint)
        self.world.append(envelope, body)
