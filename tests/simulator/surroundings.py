"""Surroundings of one coordinator process: its effects run against the simulated log, table and view."""

from collections.abc import Callable, Sequence

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
from sluicegate.lakes.group import Group, GroupTable, Member, Unchanged
from sluicegate.lakes.port import (
    CommitRequest,
    LakeError,
    LakeUnavailable,
    OutcomeUnknown,
    Publication,
    Refused,
    TablePart,
    TableRefused,
    TableReplaced,
)
from sluicegate.lakes.storage import Uncertain
from tests.doubles.memory_group import MemoryGroupTable, MemoryPart, MemoryState, state_of
from tests.doubles.memory_lake import FaultPoint
from tests.simulator.fates import OF_TABLE
from tests.simulator.world import ANCHOR, COMMIT_USER, STREAM, World


class _Lake(MemoryGroupTable):
    """A committer of whatever table is under the stream's name."""

    def __init__(self, world: World, faults: Callable[[FaultPoint], Publication | None]) -> None:
        super().__init__(world.catalog, ANCHOR, COMMIT_USER)
        self._world, self._faults = world, faults

    def find(self) -> None:
        self._table = self._world.visible_table

    def load(self) -> MemoryState:
        self.find()
        return state_of(self._table)


class _Further(MemoryGroupTable):
    """A committer of a further table, which may be away."""

    def __init__(self, world: World, identifier: str) -> None:
        if identifier not in world.catalog.tables:
            raise TableRefused(f"the catalog has no table {identifier}")
        super().__init__(world.catalog, identifier, COMMIT_USER)
        self._world = world

    def load(self) -> MemoryState:
        found = super().load()
        if any(self._world.identifiers[name] == self._name for name in self._world.away):
            raise LakeUnavailable(f"{self._name} is away")
        return found


class Surroundings:
    """Log, tables and view, as one process meets them."""

    def __init__(self, world: World, low_water: int, between: Callable[[], None]) -> None:
        """`between`: the act of another process between the questions to two tables."""
        self.low_water = low_water
        """The low-water mark of the newest record that the process has read or written."""
        self.settings = dict(world.settings)
        """Further tables in the settings of the process."""
        self._world = world
        self._between = between
        self._fate = ""
        self._asked_after = 0
        """Rollbacks of the anchor before the newest question to it."""
        self._lake = _Lake(world, self._strike)
        self._group = self._open()

    def _open(self) -> Group[MemoryState, MemoryPart]:
        wanted = {name: (identifier, ()) for name, identifier in self.settings.items()}
        return Group(self._lake, lambda found: _Further(self._world, found), lambda: self, wanted)

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
        self._lake.find()
        try:
            return self._ask_table(effect)
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))

    def _ask_table(self, effect: Effect) -> Result:
        rollbacks = self._world.table.rollbacks
        if isinstance(effect, Ask):
            self._asked_after = rollbacks
        elif isinstance(effect, Publish) and self._asked_after != rollbacks:
            self._world.raced.add(effect.decision)
        match effect:
            case InspectTable():
                self._group = self._open()
                return self._group.inspect()
            case Ask(decision, digest, table, known) if effect.tables:
                asked, left_out, undo = (decision, digest), effect.left_out, effect.undo
                return self._group.ask_all(asked, table, known, effect.tables, left_out=left_out, undo=undo)
            case Ask(decision, digest, table, known):
                return self._lake.ask(decision, digest, table, known)
            case CheckFiles():
                return self._check(effect)
            case Publish():
                further = {each for offsets in effect.offsets_of.values() for each in offsets}
                files = [self._body(offset) for offset in effect.offsets if offset not in further]
                parts = {
                    name: TablePart(effect.tables[name], [self._body(each) for each in offsets])
                    for name, offsets in effect.offsets_of.items()
                }
                vector = {name: each.newest for name, each in effect.tables.items()}
                own = effect.decision, effect.digest, effect.head, effect.watermark, files, ""
                return self._group.publish(CommitRequest(*own, parts, vector, effect.apart, effect.left_out))
        raise TypeError(f"{effect!r} is no effect of the table")

    def _check(self, effect: CheckFiles) -> Result:
        if self._lake.identity() != effect.table:
            return TableReplaced(self._lake.identity())
        trouble = self._group.trouble(effect.tables)
        problems: dict[str, Problem] = {}
        for region, names in effect.touched.items():
            for name in sorted(names & trouble.keys()):
                why = trouble[name]
                # The shell tries for a while before that.
                away = Problem(code=Code.TABLE_UNUSABLE, table=name, detail=str(why))
                problems[region] = away if isinstance(why, LakeUnavailable) else why
        own: list[FilesWritten] = []
        for region, offsets in effect.parts.items():
            for offset in offsets if region not in problems else ():
                name = self._world.log[offset].envelope.table
                if name:
                    self._group.table(effect.tables[name].terms).check([self._body(offset)])
                else:
                    own.append(self._body(offset))
        self._lake.check(own)
        if self._fate == "files refused":
            problems.setdefault(next(iter(effect.parts)), Problem(code=Code.FILES_EXCLUDED))
        return FilesChecked(problems)

    # --- the catalog ------------------------------------------------------------------------------

    def scope(self, state: MemoryState) -> str | None:
        return None

    def load_all(
        self, tables: Sequence[GroupTable[MemoryState, MemoryPart]]
    ) -> list[MemoryState | LakeError]:
        if self._fate == "zombie in between":
            self._between()
        return self._world.catalog.load_all(tables)

    def commit_all(
        self,
        members: Sequence[Member[MemoryState, MemoryPart]],
        unchanged: Unchanged[MemoryState, MemoryPart] | None = None,
    ) -> bool:
        match self._strike("publish.before"):
            case OutcomeUnknown(reason):
                raise Uncertain(reason)
            case Refused(again=True):
                members[-1].composed.base.table.foreign_commit()
            case Refused(reason):
                raise TableRefused(reason)
        done = self._world.catalog.commit_all(members, unchanged)
        late = self._strike("publish.after")
        if done and isinstance(late, OutcomeUnknown):
            raise Uncertain(late.reason)
        return done

    # --- faults -----------------------------------------------------------------------------------

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
