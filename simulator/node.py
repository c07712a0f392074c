"""A simulated coordinator process: the real core; the scheduler controls its reads and effects."""

from collections.abc import Callable
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Appended,
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
    Result,
    TableUnfit,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.heads import ref_of
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.envelope import Envelope, LogRecord
from sluicegate.events.models import Body, FilesWritten
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.memory import FaultPoint, MemoryCommitter
from sluicegate.lakes.port import (
    CommitRequest,
    Conflict,
    LakeUnavailable,
    OutcomeUnknown,
    Publication,
    Refused,
    TableRefused,
    TableReplaced,
)
from sluicegate.simulator.world import COMMIT_USER, STREAM, World

OF_TABLE: Final = (InspectTable, Ask, CheckFiles, Publish)
TO_TOPICS: Final = (Append, WriteRecord, Announce)
FATES: Final[dict[str, tuple[type[Effect], ...]]] = {
    "lost append": TO_TOPICS,
    "unheard append": TO_TOPICS,
    "away": OF_TABLE,
    "conflict": (Publish,),
    "unknown, invisible": (Publish,),
    "unknown, visible": (Publish,),
    "refused": (Publish,),
    "files refused": (CheckFiles,),
    "view lost": (WriteView,),
}
"""Faults of effects, with the effects that can meet them."""

Watch = Callable[["Node", Effect], None]


class _Lake(MemoryCommitter):
    """A committer of whatever table is there."""

    def find(self, world: World) -> None:
        self._table = world.visible_table


class Node:
    """One life of a coordinator process; a crash ends it."""

    def __init__(
        self, name: str, world: World, settings: MachineSettings, watch: Watch, record: str | None = None
    ) -> None:
        """Boot from a state record; None: the newest one."""
        self.name = name
        self._world = world
        self._watch = watch
        self._fate = ""
        stored = record or world.record
        self.machine = StreamMachine(
            STREAM, 0, StateRecord.model_validate_json(stored) if stored else None, settings
        )
        self.next = self.machine.low_water
        self.in_flight: list[Effect] = []
        self._lake = _Lake(world.visible_table, COMMIT_USER, self._strike)

    def read(self, most: int) -> int:
        """Read up to that many records of the log; return how many there were."""
        batch = self._world.log[self.next : self.next + most]
        for entry in batch:
            body: Body | None = None if isinstance(entry.body, FilesWritten) else entry.body
            applied = self.machine.step(LogRecord(entry.offset, entry.time, entry.envelope, body))
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
        self._fate = fate
        self._watch(self, effect)
        return self._run_table(effect) if isinstance(effect, OF_TABLE) else self._run_topics(effect)

    def hear(self, effect: Effect, result: Result) -> None:
        """Hand the result in."""
        self.machine.finished(effect, result)

    def _run_topics(self, effect: Effect) -> Result:
        world = self._world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case Append(kind, body, region, incarnation):
                envelope = Envelope(world.new_id("c"), kind, STREAM, region, incarnation, effect.checkpoint)
                result = self._produce(lambda: world.append(envelope, body))
                return Appended(len(world.log) - 1) if isinstance(result, Done) else result
            case WriteRecord(record):
                return self._produce(lambda: setattr(world, "record", record.model_dump_json()))
            case Announce(due):
                return self._produce(lambda: world.announce(due))
            case WriteView(record) if self._fate != "view lost":
                world.view = record
        return Failed("it is away") if self._fate == "view lost" else Done()

    def _produce(self, write: Callable[[], object]) -> Result:
        if self._fate == "lost append":
            return Failed("it timed out, and nothing was written")
        write()
        return Failed("it timed out, but it was written") if self._fate == "unheard append" else Done()

    def _run_table(self, effect: Effect) -> Result:
        self._lake.find(self._world)
        try:
            return self._ask_table(effect)
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))

    def _ask_table(self, effect: Effect) -> Result:
        match effect:
            case InspectTable():
                return self._lake.inspect()
            case Ask(decision, digest, table, known):
                return self._lake.ask(decision, digest, table, ref_of(known))
            case CheckFiles(parts=parts, table=table):
                if self._lake.identity() != table:
                    return TableReplaced(self._lake.identity())
                self._lake.check([])
                refused = self._fate == "files refused"
                return FilesChecked({parts[0].region: Problem(code=Code.FILES_EXCLUDED)} if refused else {})
            case Publish():
                files = [self._body(offset) for offset in effect.offsets]
                head = ref_of(effect.head)
                return self._lake.publish(
                    CommitRequest(effect.decision, effect.digest, head, effect.watermark, files)
                )
        raise TypeError(f"{effect!r} is no effect of the table")

    def _strike(self, point: FaultPoint) -> Publication | None:
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
        body = self._world.log[offset].body
        if not isinstance(body, FilesWritten):
            raise TypeError(f"offset {offset} holds no files.written")
        return body
