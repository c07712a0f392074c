"""What a simulated job reads and writes: shards of a source, batch by batch, and what it says of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Body, CheckpointCompleted, Parent, Position
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


class Location(NamedTuple):
    """A query's checkpoint location, as a backup of it has it."""

    name: str
    generation: int
    first: int
    batch: int
    finished: tuple[int, ...]
    never: tuple[int, ...]
    mislabelled: tuple[int, ...]
    parents: tuple[Parent, ...]
    reading: Reading
    lineage_start: Reading
    planned: dict[tuple[str, int], tuple[Item, ...]]


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
    astray: dict[tuple[str, str, int], Reading] = field(default_factory=dict)
    """Where the source stood after a checkpoint by a location that has another range for it than the log."""
    newer: Location | None = None
    """The location that was lost, while an older or an empty one is in its place."""
    parents: tuple[Parent, ...] = ()
    uploads: list[tuple[Envelope, Body]] = field(default_factory=list)
    """Named events that are still on their way."""
    stray: list[tuple[Envelope, Body]] = field(default_factory=list)
    """Duplicates and zombies' events on their way."""
    never: list[int] = field(default_factory=list)
    """Checkpoints of the live lineage that can never be committed: a named event is lost, or wrong."""
    mislabelled: list[int] = field(default_factory=list)
    """Those that name an event which was sent for the next checkpoint: a coordinator must tell."""

    def __post_init__(self) -> None:
        self.begin_at(self.reading)

    def begin_at(self, reading: Reading) -> None:
        """Let the region's first lineage begin there."""
        self.start, self.reading, self.lineage_start = dict(reading), dict(reading), dict(reading)
        self.batch = self.first = 0
        self.finished.clear()
        self.never.clear()
        self.mislabelled.clear()

    @property
    def lineage(self) -> str:
        return f"{self.location}-{self.region}.{self.generation}"

    @property
    def lacking(self) -> bool:
        """Whether a checkpoint of the live lineage never becomes complete."""
        return bool(self.never or self.mislabelled)

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
        late: bool = False,
    ) -> str:
        """Read a range, write files, and complete the checkpoint; a wrong event is named, too.

        Late: the completions after it come before its own.
        """
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
        self.complete(tuple(envelope.id for envelope, _ in named), read, late=late)
        return "batch"

    def misplace(self, dice: Dice) -> None:
        """Run a batch of which a writer sends an event for another checkpoint or lineage than its own."""
        read = self._range(dice)
        at = (self.region, self.lineage, self.batch)
        envelope, body = self.world.files_event(at, "w0", self.world.new_id("a"))
        if dice.chance(0.6):
            wrong = envelope._replace(checkpoint=self.batch + 1)
            self.mislabelled.append(self.batch)
        else:
            # Where it has no effect it may be forgotten; so the job gives it up if nobody says a word.
            elsewhere = self.batch == 0 or dice.chance(0.5)
            name, number = ("elsewhere", self.batch) if elsewhere else (self.lineage, self.batch - 1)
            wrong = envelope._replace(lineage=name, checkpoint=number)
            self.never.append(self.batch)
        self.world.append(wrong, body)
        self.complete((envelope.id,), read)

    def send_late(self) -> None:
        """Send the completions that are late: a driver closes after they are acknowledged."""
        late = [upload for upload in self.uploads if isinstance(upload[1], CheckpointCompleted)]
        for envelope, body in late:
            self.uploads.remove((envelope, body))
            self.world.append(envelope, body)

    def complete(self, events: tuple[str, ...], read: tuple[Item, ...], *, late: bool = False) -> None:
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
        said_of = self._envelope(EventType.CHECKPOINT_COMPLETED, self.batch)
        if late:
            self.uploads.append((said_of, body))
        else:
            self.world.append(said_of, body)
        key = (self.region, self.lineage, self.batch)
        if self.newer is not None and self.marks.get(key, after) != after:
            # The first completion of a number holds, whatever the location has.
            self.astray[key] = after
        else:
            self.marks[key] = after
            self.world.reached[key] = 100 * min(after.values(), default=0)
        self.reading = after
        self.finished.append(self.batch)
        self.batch += 1
        if self.newer is not None and self.batch >= self.newer.batch and not self.astray:
            self.newer = None

    def plan(self, dice: Dice) -> tuple[int, str, str | None] | None:
        """The newest batch that is planned when the query starts, its digest, and that of the one before."""
        if self.at_end and not self.finished:
            return None
        newest = self.finished[-1] if self.at_end else self.batch
        read = self.planned[self.lineage, newest] if self.at_end else self._range(dice)
        before = self.planned.get((self.lineage, newest - 1))
        return newest, self._digest(read), None if before is None else self._digest(before)

    def forget_plan(self) -> None:
        """The location is given up before its batch was completed, or the source is another one."""
        if (self.region, self.lineage, self.batch) not in self.marks:
            self.planned.pop((self.lineage, self.batch), None)

    def has_at(self, target: Position) -> tuple[str, Reading] | None:
        """What the location has of a checkpoint: its digest, and where the source stood behind it."""
        key, read = (
            (self.region, target.lineage, target.checkpoint),
            self.planned.get((target.lineage, target.checkpoint)),
        )
        if read is None:
            return None
        if self.newer is not None and (target.lineage, target.checkpoint) == (self.lineage, self.batch):
            # It is planned, and setting the location back takes it for finished.
            return self._digest(read), {**self.reading, **{shard: number + 1 for shard, number in read}}
        return self._digest(read), self.astray.get(key) or self.reading_at(target)

    def lose(self, batches: int, *, planned: bool) -> None:
        """Put a backup in the location's place, which lacks batches, or has planned the first of them."""
        self.newer = self._backup()
        lost = self.finished[-batches:]
        del self.finished[-batches:]
        # A backup has no plan of what came after it, also not of numbers that were begun and never finished.
        first = lost[0] + 1 if planned else lost[0]
        for key in [key for key in self.planned if key[0] == self.lineage and key[1] >= first]:
            del self.planned[key]
        before, self.batch = self.stands(), lost[0]
        self.reading = dict(self.lineage_start) if before is None else self.reading_at(before)

    def lose_all(self) -> None:
        """Delete the location: the query knows nothing, and begins where its region began."""
        self.newer = self._backup()
        self.location, self.generation, self.parents = self.world.new_id(f"anew-{self.region}"), 0, ()
        self.batch = self.first = 0
        self.finished.clear()
        self.never.clear()
        self.mislabelled.clear()
        self.reading = self.lineage_start = self.reading_at(None)

    def put_back(self) -> None:
        """Put the newer location back."""
        found = self.newer
        if found is None:
            return
        self.location, self.generation, self.first, self.batch, *_ = found
        self.finished[:], self.never[:] = found.finished, found.never
        self.mislabelled[:] = found.mislabelled
        self.parents, self.reading, self.lineage_start = found.parents, found.reading, found.lineage_start
        self.planned = found.planned
        self.newer = None
        self.astray.clear()
        self.world.saw("newer location put back")

    def _backup(self) -> Location:
        return Location(
            self.location,
            self.generation,
            self.first,
            self.batch,
            tuple(self.finished),
            tuple(self.never),
            tuple(self.mislabelled),
            self.parents,
            dict(self.reading),
            dict(self.lineage_start),
            dict(self.planned),
        )

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
        self.world.append(self._envelope(event_type, checkpoint), body)

    def _envelope(self, event_type: EventType, checkpoint: int) -> Envelope:
        return Envelope(self.world.new_id("d"), event_type, STREAM, self.region, self.lineage, checkpoint)
