"""A scene for the core: a simulated world, one coordinator, and words to write the log with."""

from dataclasses import dataclass, field, replace
from random import Random

from sluicegate.coordinator.core.effects import Effect
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutCommitted,
    OpeningAnswered,
    Parent,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.lakes.memory import Faults, MemoryTable
from sluicegate.simulator.node import Node
from sluicegate.simulator.world import STREAM, World

SETTINGS = MachineSettings(
    StreamPolicy(number=0, allowed_locations=("memory://",)), first_pause=0, stall_pause=0
)
PARTIAL = replace(SETTINGS, policy=StreamPolicy(number=0, partial="allow", allowed_locations=("memory://",)))
"""Regions may fall back."""


@dataclass
class Scene:
    """One stream of the given regions, all opened unless told otherwise."""

    regions: tuple[str, ...] = ("r1",)
    faults: Faults = lambda point: None
    settings: MachineSettings = SETTINGS
    world: World = field(default_factory=lambda: World(MemoryTable("sim")))
    done: list[Effect] = field(default_factory=list)
    node: Node = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def machine(self) -> StreamMachine:
        return self.node.machine

    def restart(self) -> None:
        """Another coordinator process takes over."""
        self.node = Node(
            "n", self.world, Random(0), self.settings, self.faults, lambda _, effect: self.done.append(effect)
        )

    def settle(self, rounds: int = 60) -> None:
        """Read all of the log and run all effects, for so many rounds of time."""
        for _ in range(rounds):
            self.world.now += 10
            self.node.read(10_000)
            self.node.poll()
            while self.node.run_one(crash=False) is not None:
                pass

    def say(
        self, kind: EventType, body: Body, region: str = "", lineage: str = "", checkpoint: int = -1
    ) -> str:
        """Append an event; returns its id."""
        event = self.world.new_id("e")
        self.world.append(Envelope(event, kind, STREAM, region, lineage, checkpoint), body)
        return event

    def open(
        self,
        region: str = "r1",
        lineage: str = "q.0",
        parents: tuple[Parent, ...] = (),
        number: int = 0,
        table: str | None = None,
    ) -> OpeningAnswered | None:
        """Open a lineage, let the coordinator work, and return its answer."""
        assignment = Assignment(number=number, regions=self.regions)
        body = RegionOpened(parents=parents, assignment=assignment, bounded=True, table=table)
        opening = self.say(EventType.REGION_OPENED, body, region, lineage)
        self.settle()
        return self.world.answer(opening)

    def write(self, checkpoint: int, region: str = "r1", lineage: str = "q.0", *, hold: bool = False) -> str:
        """Write a file and say so; returns the event's id. Held: the event does not arrive yet."""
        envelope, body = self.world.files_event((region, lineage, checkpoint), self.world.new_id("w"), "a")
        if hold:
            self.held = (envelope, body)
        else:
            self.world.append(envelope, body)
        return envelope.id

    def arrive(self) -> None:
        """Let the held event arrive."""
        self.world.append(*self.held)

    def complete(
        self,
        checkpoint: int,
        *events: str,
        region: str = "r1",
        lineage: str = "q.0",
        predecessor: int | None = -1,
        digest: str = "",
        watermark: int | None = None,
    ) -> None:
        """Complete a checkpoint; by default it follows the number before."""
        before = (checkpoint - 1 if checkpoint > 0 else None) if predecessor == -1 else predecessor
        body = CheckpointCompleted(
            events=events,
            predecessor=before,
            source_digest=digest or f"range-{checkpoint}",
            watermark=watermark,
        )
        self.say(EventType.CHECKPOINT_COMPLETED, body, region, lineage, checkpoint)

    def batch(self, checkpoint: int, region: str = "r1", lineage: str = "q.0", **how: object) -> str:
        """Write and complete a checkpoint of one file; returns the event's id."""
        event = self.write(checkpoint, region, lineage)
        self.complete(checkpoint, event, region=region, lineage=lineage, **how)  # type: ignore[arg-type]
        return event

    def lost(self, checkpoint: int) -> None:
        """Say that a checkpoint's files will never come."""
        self.say(EventType.CHECKPOINT_FAILED, CheckpointFailed(outcome="lost"), "r1", "q.0", checkpoint)

    def idle(self, region: str, idle: bool = True) -> None:
        self.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=idle), region, "q.0")

    def close(self, final: int | None, region: str = "r1", lineage: str = "q.0") -> None:
        self.say(EventType.REGION_CLOSED, RegionClosed(final=final), region, lineage)

    def command(
        self,
        command: str,
        region: str | None = None,
        lineage: str | None = None,
        behind: Position | None = None,
    ) -> None:
        named = {"behind": behind} if behind is not None else {}
        body = StreamCommand.model_validate(
            {"command": command, "region": region, "lineage": lineage, **named}
        )
        self.say(EventType.STREAM_COMMAND, body)

    @property
    def commits(self) -> list[CutCommitted]:
        """The commits that were told, each once."""
        found = {due.id: due.body for due in self.world.commits if isinstance(due.body, CutCommitted)}
        return list(found.values())

    @property
    def table(self) -> list[list[str]]:
        """The events whose files are in the table, per snapshot."""
        return [
            [path.rpartition("/")[2].split("-", 2)[2] for path in snapshot.files]
            for snapshot in self.world.table.snapshots
        ]


def opened(*regions: str, settings: MachineSettings = SETTINGS) -> Scene:
    """A scene of these regions, `r1` if none is named, each of them opened."""
    scene = Scene(regions or ("r1",), settings=settings)
    for region in scene.regions:
        answer = scene.open(region)
        assert answer is not None
        assert answer.accepted, answer.reason
    return scene
