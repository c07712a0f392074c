"""A simulated coordinator process: the real core, its reads and effects under the scheduler's control."""

from collections.abc import Callable
from random import Random
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendDecision,
    Appended,
    AppendPolicy,
    Ask,
    CheckFiles,
    Done,
    Effect,
    EndOffset,
    Failed,
    FetchEnd,
    FilesChecked,
    InspectTable,
    Publish,
    ReleaseOffsets,
    Result,
    TableUnfit,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import MachineSettings, StreamMachine
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, FilesWritten
from sluicegate.lakes.memory import Faults, MemoryCommitter
from sluicegate.lakes.port import CommitRequest, LakeUnavailable, TableRefused
from sluicegate.simulator.world import STREAM, World

Watch = Callable[["Node", Effect], None]

NEWER: Final = "a newer release is needed"


class Node:
    """One life of a coordinator process; a crash ends it."""

    def __init__(
        self,
        name: str,
        world: World,
        random: Random,
        settings: MachineSettings,
        faults: Faults,
        watch: Watch,
        record: str | None = None,
    ) -> None:
        """Boot from a record of the state topic, by default from the newest one."""
        self.name = name
        self.lossy = True
        """Whether appends fail at times, with or without having been written."""
        self._upgraded = world.upgraded
        self._world = world
        self._random = random
        self._watch = watch
        self._lake = MemoryCommitter(world.table, f"sluicegate-{STREAM}", faults)
        stored = record or world.record
        self.machine = StreamMachine(
            STREAM, 0, StateRecord.model_validate_json(stored) if stored else None, settings
        )
        self._next = self.machine.low_water
        self.in_flight: list[Effect] = []

    def read(self, most: int) -> int:
        """Read up to that many records of the log; returns how many there were."""
        batch = self._world.log[self._next : self._next + most]
        for entry in batch:
            if entry.offset in self._world.newer and not self._upgraded:
                self.machine.unreadable(entry.offset, NEWER)
                continue
            body = None if entry.envelope.type is EventType.FILES_WRITTEN else entry.body
            self.machine.arrived(entry.offset, entry.time, entry.envelope, body)
        self._next += len(batch)
        self.machine.reached(self._next)
        return len(batch)

    def poll(self) -> None:
        """Let the core hand out effects."""
        self.in_flight.extend(self.machine.poll(self._world.now))

    def run_one(self, *, crash: bool) -> Effect | None:
        """Run an effect that is in flight; after a crash its outcome reaches nobody."""
        if not self.in_flight:
            return None
        effect = self.in_flight.pop(self._random.randrange(len(self.in_flight)))
        result = self.perform(effect)
        if not crash:
            self.machine.finished(effect, result)
        return effect

    def perform(self, effect: Effect) -> Result:
        """Run an effect outside of the machine's sight, as a process does that was frozen before it."""
        result = self._run(effect)
        self._watch(self, effect)
        return result

    def _run(self, effect: Effect) -> Result:
        world = self._world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case AppendDecision(body):
                return self._append(EventType.CUT_DECIDED, body)
            case AppendPolicy(body):
                return self._append(EventType.STREAM_POLICY, body)
            case WriteRecord(record):
                return self._produce(lambda: setattr(world, "record", record.model_dump_json()))
            case Announce(due):
                return self._produce(lambda: world.commits.append(due))
            case WriteView(record):
                if world.view is None or world.view.applied <= record.applied:
                    world.view = record
            case ReleaseOffsets():
                world.group_offset = self.machine.book.low_water(self.machine.position)
            case _:
                return self._run_table(effect)
        return Done()

    def _append(self, event_type: EventType, body: Body) -> Result:
        world = self._world
        result = self._produce(lambda: world.append(Envelope(world.new_id("c"), event_type, STREAM), body))
        return Appended(len(world.log) - 1) if isinstance(result, Done) else result

    def _produce(self, write: Callable[[], object]) -> Result:
        lost = self._random.random() if self.lossy else 1.0
        if lost < 0.03:
            return Failed("it timed out, and nothing was written")
        write()
        return Failed("it timed out, but it was written") if lost < 0.06 else Done()

    def _run_table(self, effect: Effect) -> Result:
        try:
            match effect:
                case InspectTable():
                    return self._lake.inspect()
                case Ask(decision, digest, table, recorded):
                    return self._lake.ask(decision, digest, table, recorded)
                case CheckFiles(parts, _):
                    self._lake.check([self._body(offset) for part in parts for offset in part.offsets])
                    return FilesChecked({})
                case Publish():
                    bodies = [self._body(offset) for offset in effect.offsets]
                    return self._lake.publish(
                        CommitRequest(effect.decision, effect.digest, effect.head, effect.watermark, bodies)
                    )
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))
        raise TypeError(f"{effect!r} is no effect of the table")

    def _body(self, offset: int) -> FilesWritten:
        body = self._world.log[offset].body
        if not isinstance(body, FilesWritten):
            raise TypeError(f"offset {offset} holds no files.written")
        return body
