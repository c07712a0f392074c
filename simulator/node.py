"""A simulated coordinator process: the real core, its reads and effects under the scheduler's control."""

from collections.abc import Callable
from typing import Final, Literal, Protocol

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    AppendAbandoned,
    AppendDecision,
    Appended,
    AppendPolicy,
    AppendVoided,
    Carry,
    CheckFiles,
    Done,
    Effect,
    EndOffset,
    Failed,
    FetchEnd,
    FilesChecked,
    Publish,
    ReleaseOffsets,
    Result,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import Envelope, EventType, Origin
from sluicegate.events.models import Body, FilesWritten, LineageCarried
from sluicegate.lakes.memory import FaultPoint, Faults
from sluicegate.lakes.port import (
    Conflict,
    LakeUnavailable,
    OutcomeUnknown,
    Publication,
    Refused,
)
from sluicegate.simulator.performing import LOGGED, OF_THE_TABLE, Door, newer_view
from sluicegate.simulator.watching import Watching
from sluicegate.simulator.world import COMMIT_USER, STREAM, World

Watch = Callable[["Node", Effect], None]

Fate = Literal[
    "lost append",
    "unheard append",
    "away",
    "conflict",
    "unknown, invisible",
    "unknown, visible",
    "refused",
    "files refused",
    "view lost",
]
"""What goes wrong with one effect."""

NEWER: Final = "a newer release is needed"
TO_STORES: Final = (
    AppendDecision,
    AppendAbandoned,
    AppendVoided,
    AppendPolicy,
    Carry,
    WriteRecord,
    Announce,
)
FATES: Final[dict[Fate, tuple[type[Effect], ...]]] = {
    "lost append": TO_STORES,
    "unheard append": TO_STORES,
    "away": OF_THE_TABLE,
    "conflict": (Publish,),
    "unknown, invisible": (Publish,),
    "unknown, visible": (Publish,),
    "refused": (Publish,),
    "files refused": (CheckFiles,),
    "view lost": (WriteView,),
}
"""Which effects each can strike."""


class Picker(Protocol):
    """What chooses among the effects that are in flight."""

    def randrange(self, limit: int, /) -> int:
        """A number from 0 to below the limit."""
        ...


class OffsetGone(Exception):
    """A body is fetched from where retention has removed it."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"retention has removed offset {offset}")
        self.offset = offset


class Node:
    """One life of a coordinator process; a crash ends it."""

    def __init__(
        self,
        name: str,
        world: World,
        picker: Picker,
        settings: MachineSettings,
        faults: Faults | None,
        watch: Watch,
        record: str | None = None,
        memory: int = 1_000,
        *,
        watched: bool = False,
    ) -> None:
        """Boot from a record of the state topic, by default from the newest one; keep so many bodies.

        A watched one counts the transitions that it goes through.
        """
        self.name = name
        self._upgraded = world.upgraded
        self._world = world
        self._picker = picker
        self._faults = faults
        self._watch = watch
        self._fate: Fate | None = None
        self._memory = memory
        self.bodies: dict[int, FilesWritten] = {}
        stored = record or world.record
        self.machine = StreamMachine(
            STREAM, 0, StateRecord.model_validate_json(stored) if stored else None, settings
        )
        self.next = self.machine.low_water
        """The next offset to be read."""
        self.acting_since: int | None = None
        """Since when it has known the log to its end."""
        self.in_flight: list[Effect] = []
        self.wanted_at: dict[int, int] = {}
        """Up to which offset it had read when it wanted an effect that is in flight, by identity."""
        self._lake = Door(world.visible_table, COMMIT_USER, self._strike)
        self._watching = Watching(self.machine, world.coverage) if watched else None

    def read(self, most: int) -> int:
        """Read up to that many records of the log; returns how many there were."""
        batch = self._world.log[self.next : self.next + most]
        for entry in batch:
            if entry.offset in self._world.newer and not self._upgraded:
                self.machine.unreadable(entry.offset, NEWER)
                continue
            body: Body | None = entry.body
            if isinstance(body, FilesWritten):
                if len(self.bodies) < self._memory:
                    self.bodies[entry.offset] = body
                body = None
            said = self.machine.arrived(entry.offset, entry.time, entry.envelope, body)
            if self._watching is not None:
                self._watching.read()
            if said is not None and self._world.story is not None:
                self._world.tell("  {} finds no effect in offset {}: {}", self.name, entry.offset, said)
        self.next += len(batch)
        self.machine.reached(self.next)
        return len(batch)

    def needed(self) -> int:
        """The first offset that this process, or a record that it is about to write, may need."""
        marks = [effect.record.low_water for effect in self.in_flight if isinstance(effect, WriteRecord)]
        return min(self.next, self.machine.book.low_water(self.machine.position), *marks)

    def poll(self) -> None:
        """Let the core hand out effects."""
        handed = self.machine.poll(self._world.now)
        if self.acting_since is None and self.machine.ready:
            self.acting_since = self._world.now
        if self._watching is not None:
            self._watching.read()
            self._watching.handed(handed)
        self.in_flight.extend(handed)
        self.wanted_at |= {id(effect): self.next for effect in handed}

    def run_one(self, *, crash: bool) -> Effect | None:
        """Run an effect that is in flight; after a crash its outcome reaches nobody."""
        if not self.in_flight:
            return None
        effect = self.in_flight.pop(self._picker.randrange(len(self.in_flight)))
        result = self.perform(effect)
        if not crash:
            self.hear(effect, result)
        return effect

    def hear(self, effect: Effect, result: Result) -> None:
        """Tell the core of an outcome."""
        self.machine.finished(effect, result)
        if self._watching is not None:
            self._watching.finished(effect, result)

    def perform(self, effect: Effect, fate: Fate | None = None) -> Result:
        """Run an effect outside of the machine's sight, as a process does that was frozen before it."""
        self._fate = fate if fate is not None and isinstance(effect, FATES[fate]) else None
        result = self._run(effect)
        self._watch(self, effect)
        return result

    def _run(self, effect: Effect) -> Result:
        world = self._world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case WriteRecord(record):
                return self._produce(lambda: setattr(world, "record", record.model_dump_json()))
            case Announce(due):
                return self._produce(lambda: world.announce(due))
            case WriteView(record):
                if self._fate == "view lost":
                    return Failed("it timed out")
                world.view = newer_view(world.view, record)
            case ReleaseOffsets():
                world.group_offset = self.machine.book.low_water(self.machine.position)
            case Carry():
                return self._carry(effect)
            case _ if isinstance(effect, Append):
                return self._append(LOGGED[type(effect)], effect.body)
            case _:
                return self._run_table(effect)
        return Done()

    def _append(self, event_type: EventType, body: Body) -> Result:
        world = self._world
        result = self._produce(lambda: world.append(Envelope(world.new_id("c"), event_type, STREAM), body))
        return Appended(len(world.log) - 1) if isinstance(result, Done) else result

    def _carry(self, effect: Carry) -> Result:
        """Append copies, then the mark; what is lost on the way is lost in the middle."""
        world, copies = self._world, effect.offsets
        if self._fate == "lost append":
            copies = copies[: len(copies) // 2]
        for offset in copies:
            if offset < world.log_start:
                raise OffsetGone(offset)
            entry = world.log[offset]
            origin = entry.envelope.origin or Origin(offset, entry.time)
            world.append(entry.envelope._replace(origin=origin), entry.body)
        mark = Envelope(world.new_id("c"), EventType.LINEAGE_CARRIED, STREAM, effect.region, effect.lineage)
        result = self._produce(lambda: world.append(mark, LineageCarried(upto=effect.upto)))
        return Appended(len(world.log) - 1) if isinstance(result, Done) else result

    def _produce(self, write: Callable[[], object]) -> Result:
        if self._fate == "lost append":
            return Failed("it timed out, and nothing was written")
        write()
        return Failed("it timed out, but it was written") if self._fate == "unheard append" else Done()

    def _run_table(self, effect: Effect) -> Result:
        self._lake.find(self._world.visible_table, self._world.joined)
        result = self._lake.perform(
            effect, lambda offset: (self._world.log[offset].envelope, self._body(offset))
        )
        match effect, result:
            case CheckFiles(), FilesChecked(problems) if self._fate == "files refused":
                first = effect.parts[0].region
                return FilesChecked({first: "the files are refused for a while", **problems})
        return result

    def _strike(self, point: FaultPoint) -> Publication | None:
        """The fault of the effect under way at this point, if it has one there."""
        if self._faults is not None and (found := self._faults(point)) is not None:
            return found
        match self._fate, point:
            case "away", "inspect" | "ask" | "check" | "publish.before":
                raise LakeUnavailable(f"storage away at {point}")
            case "conflict", "publish.before":
                return Conflict()
            case "refused", "publish.before":
                return Refused("the catalog forbids it for a while")
            case "unknown, invisible", "publish.before":
                return OutcomeUnknown("timed out, not visible")
            case "unknown, visible", "publish.after":
                return OutcomeUnknown("timed out, visible")
        return None

    def _body(self, offset: int) -> FilesWritten:
        kept = self.bodies.get(offset)
        if kept is not None:
            return kept
        self._world.saw("body fetched again")
        if offset < self._world.log_start:
            raise OffsetGone(offset)
        body = self._world.log[offset].body
        if not isinstance(body, FilesWritten):
            raise TypeError(f"offset {offset} holds no files.written")
        return body
