"""A simulated job of one region: batches, retries, crashes, replays with other files, rewinds, closing."""

from dataclasses import dataclass, field
from random import Random

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutCommitted,
    Parent,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
)
from sluicegate.simulator.world import STREAM, World

PASSING = ("for a while", "a newer release is needed")
"""Refusals after which the same opening is asked for again."""


@dataclass
class Driver:
    """Reads its source range by range; batch `n` reads range `n`, in whichever lineage."""

    world: World
    random: Random
    region: str
    assignment: Assignment
    batches: int
    late: list[tuple[Envelope, Body]] = field(default_factory=list)
    """Events on their way: uploads that follow the completion, zombies, duplicates."""
    generation: int = 0
    batch: int = 0
    first: int = 0
    """The first batch of the lineage."""
    opening: str | None = None
    opened: bool = False
    closed: bool = False
    parents: tuple[Parent, ...] = ()
    refusals: int = 0

    @property
    def lineage(self) -> str:
        return f"q-{self.region}.{self.generation}"

    @property
    def done(self) -> bool:
        return self.closed and not self.late

    def step(self) -> str:
        """Do one thing; returns its name."""
        if self.late and self.random.random() < 0.3:
            self.world.append(*self.late.pop(self.random.randrange(len(self.late))))
            return "late event"
        if not self.opened:
            return self._open()
        if self.batch < self.batches:
            return self._run_batch()
        if not self.closed:
            final = self.batches - 1
            self._say(EventType.REGION_CLOSED, RegionClosed(final=final))
            self.closed = True
            return "close"
        return "late event" if self.late and self._flush() else "nothing"

    def trouble(self) -> str:
        """Let something go wrong."""
        if not self.opened or self.closed:
            return "nothing"
        choice = self.random.choice(["replay", "zombie", "idle", "hint", "restart", "rewind", "amnesia"])
        match choice:
            case "replay" if self.batch > self.first:
                # Killed between completion and the job's own commit log: the batch runs again.
                self.batch -= 1
                self._run_batch()
            case "zombie":
                at = (self.region, self.lineage, max(0, self.batch - self.random.randrange(2)))
                self.late.append(self.world.files_event(at, "w0"))
            case "idle":
                self._say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=self.random.random() < 0.5))
            case "hint":
                self._say(EventType.CHECKPOINT_FAILED, CheckpointFailed(outcome="redo"), self.batch)
            case "restart":
                self.opened, self.opening = False, None
            case "rewind":
                self._rewind()
            case "amnesia" if self.batch > self.first:
                self._forget()
            case _:
                return "nothing"
        return choice

    def finish(self) -> None:
        """Stop making trouble: send what is on its way."""
        self._flush()

    def _flush(self) -> bool:
        for envelope, body in self.late:
            self.world.append(envelope, body)
        self.late.clear()
        return True

    def _open(self) -> str:
        if self.opening is None:
            self.opening = self.world.new_id("o")
            body = RegionOpened(parents=self.parents, assignment=self.assignment, bounded=True)
            envelope = Envelope(self.opening, EventType.REGION_OPENED, STREAM, self.region, self.lineage)
            self.world.append(envelope, body)
            return "open"
        answer = self.world.answer(self.opening)
        if answer is None:
            return "wait for the answer"
        if answer.accepted:
            self.opened = True
            return "opened"
        self.refusals += 1
        if any(reason in answer.reason for reason in PASSING):
            self.opening = None
            return "refused for a while"
        if answer.committed is None and not self.parents:
            raise AssertionError(f"{self.region} was refused: {answer.reason}")
        return self._retry_rewind()

    def _rewind(self) -> None:
        """Go back to the committed checkpoint, or to one that may be decided meanwhile: a new lineage."""
        committed = self._committed()
        behind = committed is not None and self.random.random() < 0.3 and self.batch > self.first
        target: tuple[str, int | None] | None = committed
        if behind and committed is not None:
            target = (committed[0], max(0, committed[1] - 1))
        self._start_lineage(target or (self.lineage, None))

    def _retry_rewind(self) -> str:
        committed = self._committed()
        if committed is not None:
            self._start_lineage(committed)
        else:
            self.opening = None
        return "refused"

    def _start_lineage(self, target: tuple[str, int | None]) -> None:
        self.generation += 1
        self.parents = (Parent(region=self.region, lineage=target[0], checkpoint=target[1]),)
        self.batch = self.first = 0 if target[1] is None else target[1] + 1
        self.opened, self.opening = False, None

    def _forget(self) -> None:
        """A deleted checkpoint location: the opening without parents must be refused."""
        body = RegionOpened(assignment=self.assignment, bounded=True)
        name = f"amnesia-{self.region}-{self.world.new_id('l')}"
        envelope = Envelope(self.world.new_id("amnesia"), EventType.REGION_OPENED, STREAM, self.region, name)
        self.world.append(envelope, body)

    def _committed(self) -> tuple[str, int] | None:
        """Where the region stands by the newest commit; notifications may be repeated late."""
        told = [due.body for due in self.world.commits if isinstance(due.body, CutCommitted)]
        newest = max(told, key=lambda body: body.decision, default=None)
        at = newest.cut.get(self.region) if newest else None
        return (at.lineage, at.checkpoint) if at else None

    def _run_batch(self) -> str:
        at = (self.region, self.lineage, self.batch)
        named: list[tuple[Envelope, Body]] = []
        for writer in range(self.random.randint(0, 3)):
            for _ in range(self.random.choice([0, 0, 0, 1])):
                self.late.append(self.world.files_event(at, f"w{writer}"))
            named.extend(
                self.world.files_event(at, f"w{writer}") for _ in range(self.random.choice([1, 1, 2]))
            )
        for event in named:
            if self.random.random() < 0.2:
                self.late.append(event)
            else:
                self.world.append(*event)
            if self.random.random() < 0.1:
                self.late.append(event)
        if self.random.random() < 0.1:
            return "batch without completion"
        body = CheckpointCompleted(
            events=tuple(envelope.id for envelope, _ in named),
            predecessor=None if self.batch == self.first else self.batch - 1,
            source_digest=f"range-{self.region}-{self.batch}",
            watermark=self.batch * 100 if self.random.random() < 0.9 else None,
        )
        self._say(EventType.CHECKPOINT_COMPLETED, body, self.batch)
        self.batch += 1
        return "batch"

    def _say(self, event_type: EventType, body: Body, checkpoint: int = -1) -> None:
        envelope = Envelope(self.world.new_id("d"), event_type, STREAM, self.region, self.lineage, checkpoint)
        self.world.append(envelope, body)
        if self.random.random() < 0.05:
            self.world.append(envelope, body)
