"""Surroundings of one coordinator process: its effects run against the simulated log, table and view."""

from collections.abc import Callable

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
    ReleaseOffsets,
    Result,
    TableUnfit,
    WriteRecord,
    WriteView,
)
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.lakes.port import (
    CommitRequest,
    LakeUnavailable,
    OutcomeUnknown,
    Publication,
    Refused,
    TableRefused,
    TableReplaced,
)
from tests.doubles.memory_lake import FaultPoint, MemoryCommitter
from tests.simulator.fates import OF_TABLE
from tests.simulator.world import COMMIT_USER, STREAM, World


class _Lake(MemoryCommitter):
    """A committer of whatever table is there."""

    def find(self, world: World) -> None:
        self._table = world.visible_table


class Surroundings:
    """Log, table and view, as one process meets them."""

    def __init__(self, world: World, low_water: int) -> None:
        self.low_water = low_water
        """The low-water mark of the newest record that the process has read or written."""
        self._world = world
        self._fate = ""
        self._lake = _Lake(world.visible_table, COMMIT_USER, self._strike)

    def perform(self, effect: Effect, fate: str) -> Result:
        """Run an effect, with something that goes wrong."""
        self._fate = fate
        return self._run_table(effect) if isinstance(effect, OF_TABLE) else self._run_topics(effect)

    def _run_topics(self, effect: Effect) -> Result:
        world = self._world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case Append(kind, body, region, incarnation):
                envelope = Envelope(world.new_id("c"), kind, STREAM, region, incarnation)
                result = self._produce(lambda: world.append(envelope, body))
                return Appended(len(world.log) - 1) if isinstance(result, Done) else result
            case WriteRecord(record):
                result = self._produce(lambda: setattr(world, "record", record.model_dump_json()))
                self.low_water = record.low_water if isinstance(result, Done) else self.low_water
                return result
            case ReleaseOffsets():
                world.released = max(world.released, self.low_water)
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
                return self._lake.ask(decision, digest, table, known)
            case CheckFiles(parts=parts, table=table):
                if self._lake.identity() != table:
                    return TableReplaced(self._lake.identity())
                self._lake.check([self._body(offset) for offsets in parts.values() for offset in offsets])
                refused = self._fate == "files refused"
                return FilesChecked({next(iter(parts)): Problem(code=Code.FILES_EXCLUDED)} if refused else {})
            case Publish():
                files = [self._body(offset) for offset in effect.offsets]
                head = effect.head
                return self._lake.publish(
                    CommitRequest(effect.decision, effect.digest, head, effect.watermark, files)
                )
        raise TypeError(f"{effect!r} is no effect of the table")

    def _strike(self, point: FaultPoint) -> Publication | None:
        match self._fate, point:
            case "away", "inspect" | "ask" | "check" | "publish.before":
                raise LakeUnavailable(f"storage away at {point}")
            case "conflict", "publish.before":
                return Refused(cause=Cause(code=CauseCode.OTHER_WRITER), again=True)
            case "refused", "publish.before":
                return Refused("the catalog forbids it for a while")
            case "unknown, invisible", "publish.before":
                return OutcomeUnknown("timed out, not visible")
            case "unknown, visible", "publish.after":
                return OutcomeUnknown("timed out, visible")
        return None

    def _body(self, offset: int) -> FilesWritten:
        if offset < self._world.begin:
            raise LakeUnavailable(f"the log begins at offset {self._world.begin}")
        files = self._world.log[offset].files
        if files is None:
            raise TypeError(f"the event at offset {offset} has no files")
        return files
