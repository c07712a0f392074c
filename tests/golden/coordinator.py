"""Surroundings of the core in a golden case: a log, a table, topics, and a coordinator that can crash."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

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
    MachineSettings,
    Publish,
    Result,
    TableUnfit,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.files import Limits, fit, narrowed
from sluicegate.coordinator.stream.state_records import recovery_record
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import Body, FileInfo, FilesWritten, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import (
    CommitRequest,
    LakeUnavailable,
    OutcomeUnknown,
    Refused,
    TablePart,
    TableRefused,
    TableReplaced,
)
from tests.doubles.memory_group import Interrupted, MemoryCatalog
from tests.doubles.memory_lake import MemoryTable
from tests.golden.tell import effect_line, problem_line

STREAM = "s"
USUAL = frozenset({"Append", "Publish", "Announce"})
QUIET = frozenset({EventType.STREAM_POLICY, EventType.CUT_COMMITTED})
"""Events of the coordinator that are shown only on request."""
OF_THE_TABLE = (InspectTable, Ask, CheckFiles, Publish)


class Entry(NamedTuple):
    """A record of the log; its offset is its index."""

    time: int
    envelope: Envelope
    body: Body | None


@dataclass
class World:
    """Everything that outlives a coordinator."""

    settings: MachineSettings
    say: Callable[[str], None]
    now: int = 0
    log: list[Entry] = field(default_factory=list)
    table: MemoryTable = field(default_factory=lambda: MemoryTable("t"))
    """The stream's own table, the anchor."""
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    """By identifier, all tables."""
    wanted: dict[str, str] = field(default_factory=dict)
    """By name, the identifiers of the further tables in the settings of coordinators that start from here."""
    user: str = "sluicegate-s"
    bad: set[str] = field(default_factory=set)
    fits: int = 1_000
    """Events that fit into a commit."""
    """Files that the table would not take."""
    record: str | None = None
    bases: dict[int, str] = field(default_factory=dict)
    """Base records, by the first offset of the log that they are for."""
    begin: int = 0
    """The first offset that was not deleted."""
    view: StateRecord | None = None
    announced: set[str] = field(default_factory=set)
    seen: int = 0
    """How much of the log any coordinator has read: an event without effect is shown once."""
    traced: frozenset[str] = USUAL
    newer: set[int] = field(default_factory=set)
    """Offsets of records that only a newer release reads."""
    garbled: set[int] = field(default_factory=set)
    """Offsets of records whose body cannot be read."""
    away: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    once: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog.tables["t"] = self.table

    def append(
        self,
        kind: EventType,
        body: Body | None,
        at: tuple[str, str, int] = ("", "", -1),
        event: str = "",
        writer: str = "",
        attempt: str = "",
        table: str = "",
    ) -> int:
        """Append an event; return its offset. Each event is of a writer of its own, unless one is named."""
        number = len(self.log)
        identity = event or f"e{number}"
        has_files = kind is EventType.FILES_WRITTEN or writer
        written = (writer or identity, attempt or identity, 1, 10) if has_files else ()
        envelope = Envelope(identity, kind, STREAM, *at, *written)._replace(table=table)
        self.log.append(Entry(self.now, envelope, body))
        return number

    def read(self, offset: int) -> LogRecord | None:
        """Return a record as a reader of the whole log has it; None if it has no effect there."""
        entry, skipped = self.log[offset], ""
        if offset in self.newer:
            skipped = f"digest-{offset}"
            orders = (each.body for each in self.log[offset:] if isinstance(each.body, StreamCommand))
            if not any((each.offset, each.digest) == (offset, skipped) for each in orders):
                return None
        body = None if offset in self.garbled else entry.body
        return LogRecord(offset, entry.time, entry.envelope, body, skipped=skipped)

    def recovery(self) -> StateRecord | None:
        """Return the record from which a coordinator starts."""
        newest = StateRecord.model_validate_json(self.record) if self.record else None
        bases = {start: StateRecord.model_validate_json(base) for start, base in self.bases.items()}
        return recovery_record(newest, bases, self.begin)

    def files(self, offset: int, location: str = "memory://t") -> FilesWritten:
        """Return the files of the event at an offset: one file with the event's name."""
        return files_named(self.log[offset].envelope.id, location)


def files_named(event: str, location: str = "memory://t") -> FilesWritten:
    """Return the files of an event."""
    info = FileInfo(path=event, size=1, rows=10)
    return FilesWritten(format="memory", format_version=1, location=location, schema_id=0, files=(info,))


class Crashed(Exception):
    """The process is gone."""


LATE: Final = "late"
"""Fate of an effect whose result comes when it is released."""


class Coordinator:
    """One life of a coordinator: it reads, polls and runs effects until nothing is left to do."""

    def __init__(self, world: World, name: str = "") -> None:
        self.world = world
        self.name = name
        wanted = {name: (identifier, ()) for name, identifier in world.wanted.items()}
        self._committer = world.catalog.group("t", world.user, wanted)
        self._begin(frozenset())

    def _begin(self, skipped: frozenset[int]) -> None:
        """Read the log from the newest record, without the records that orders skip."""
        world = self.world
        self.machine = StreamMachine(STREAM, 0, world.recovery(), world.settings)
        self.flying: list[Effect] = []
        self._late: list[tuple[Effect, Result]] = []
        """Effects whose results are on their way."""
        self._skipped, self._stalled_at = skipped, cast("int | None", None)
        self._next = max(self.machine.low_water, world.begin)
        if self.machine.low_water < world.begin:
            problem = Problem(code=Code.LOG_DISCONTINUOUS, number=self.machine.low_water)
            self.machine.block(problem, world.begin)

    def _is_way_out(self, offset: int, body: StreamCommand) -> bool:
        """True for the order to skip the record at which the stream stalls."""
        at = self._stalled_at
        return (
            at is not None and body.command == "skip" and (body.offset, body.digest) == (at, f"digest-{at}")
        )

    def work(self) -> None:
        """Do everything that can be done at this time. Raises Crashed if a crash was ordered."""
        for _ in range(300):
            self._read()
            late, self._late = ([], self._late) if LATE in self.world.held else (self._late, [])
            for done in late:
                self.machine.finished(*done)
            self.flying += self.machine.poll(self.world.now)
            ready = [each for each in self.flying if type(each).__name__ not in self.world.held]
            if not ready:
                return
            for effect in ready:
                self.flying.remove(effect)
                self._run(effect)
        raise RuntimeError("the coordinator does not come to rest")

    def _read(self) -> None:
        world = self.world
        while self._next < len(world.log):
            offset, entry = self._next, world.log[self._next]
            self._next += 1
            known = offset in self._skipped or offset <= self.machine.replica.applied
            if offset in world.newer and not known:
                self._stalled_at = offset if self._stalled_at is None else self._stalled_at
                self.machine.block(Problem(code=Code.RECORD_UNREADABLE, number=offset), offset)
                continue
            if isinstance(entry.body, StreamCommand) and self._is_way_out(offset, entry.body):
                # What came in between is read again, after the record.
                self._begin(self._skipped | {self._stalled_at or 0})
                continue
            body = None if offset in world.garbled else entry.body
            reason = "no JSON" if offset in world.garbled else ""
            newer = f"digest-{offset}" if offset in world.newer else ""
            record = LogRecord(offset, entry.time, entry.envelope, body, reason, newer)
            applied = self.machine.step(record)
            quiet = entry.envelope.type is EventType.REGION_REGISTERED or offset < world.seen
            if applied.ignored is not None and not quiet:
                world.say(f"{self.name}ignored {entry.envelope.type}: {problem_line(applied.ignored)}")
            world.seen = max(world.seen, offset + 1)
        self.machine.reached(self._next)

    def _run(self, effect: Effect) -> None:
        world, kind = self.world, type(effect).__name__
        fate = world.once.pop(kind, "") or (
            world.once.pop(str(effect.type), "") if isinstance(effect, Append) else ""
        )
        if fate == "crash before":
            raise Crashed(f"before {kind}")
        again = " again" if isinstance(effect, Announce) and effect.due.id in world.announced else ""
        if isinstance(effect, Publish) and fate.startswith("crash after table "):
            # Only a catalog that applies a transaction table by table can end in between.
            world.catalog.crash_after = int(fate.rsplit(" ", 1)[1])
        result = self._perform(effect, fate)
        crash = fate.startswith("crash after")
        shown = kind in world.traced and not (
            isinstance(effect, Append) and effect.type in QUIET and str(effect.type) not in world.traced
        )
        if shown:
            names = [world.log[each].envelope.id for each in getattr(effect, "offsets", ())]
            world.say(self.name + effect_line(effect, None if crash else result, names) + again)
        if crash:
            raise Crashed(f"after {kind}")
        if fate == LATE:
            world.held.add(LATE)
            self._late.append((effect, result))
            return
        self.machine.finished(effect, result)

    def _perform(self, effect: Effect, fate: str) -> Result:
        of_table = isinstance(effect, OF_THE_TABLE)
        place = "table" if of_table else "view" if isinstance(effect, WriteView) else "log"
        if {place, type(effect).__name__} & self.world.away:
            return Failed(f"the {place} is away")
        if fate == "is lost":
            return OutcomeUnknown("lost") if isinstance(effect, Publish) else Failed("it timed out")
        result = self._on_table(effect, fate) if of_table else self._on_topics(effect)
        if fate == "is done but unknown":
            return OutcomeUnknown("timeout") if isinstance(effect, Publish) else Failed("it timed out")
        return result

    def _on_topics(self, effect: Effect) -> Result:
        world = self.world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case WriteRecord(record):
                world.record = record.model_dump_json()
            case Announce(due):
                world.announced.add(due.id)
            case WriteView(record):
                world.view = record
            case Append(kind, body, region, incarnation):
                return Appended(world.append(kind, body, (region, incarnation, -1)))
        return Done()

    def _on_table(self, effect: Effect, fate: str) -> Result:
        world = self.world
        if isinstance(effect, Publish) and fate.startswith("refused "):
            return Refused(fate.removeprefix("refused "))
        if isinstance(effect, Publish) and fate.startswith("conflict"):
            world.catalog.tables[fate.partition(" ")[2] or "t"].foreign_commit()
        try:
            result = self._ask_table(effect)
        except Interrupted:
            # The line of the effect shows the crash.
            return OutcomeUnknown("crash")
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))
        self._check()
        return result

    def _ask_table(self, effect: Effect) -> Result:
        world, committer = self.world, self._committer
        match effect:
            case InspectTable():
                return committer.inspect()
            case Ask(decision, digest, table, known) if not effect.tables:
                return committer.ask(decision, digest, table, known)
            case Ask(decision, digest, table, known):
                asked = decision, digest
                return committer.ask_all(
                    asked, table, known, effect.tables, left_out=effect.left_out, undo=effect.undo
                )
            case CheckFiles(parts=parts, table=table):
                if table != world.table.identity:
                    return TableReplaced(world.table.identity)
                bad = {region: self._bad(offsets) for region, offsets in parts.items()}
                problems = {
                    name: Problem(code=Code.FILES_EXCLUDED, detail=why) for name, why in bad.items() if why
                }
                # Each event of a golden case is one file, and counts as one byte.
                found = fit(Limits(1_000, world.fits), self.machine.replica.log, effect.moves, lambda _: 1)
                _, left = narrowed(self.machine.replica.log, parts, found)
                trouble = committer.trouble(effect.tables)
                for region, names in effect.touched.items():
                    for why in (trouble[name] for name in sorted(names) if name in trouble):
                        if isinstance(why, LakeUnavailable):
                            raise why
                        problems[region] = why
                return FilesChecked({**problems, **found.problems}, found.upto, left)
            case Publish():
                if any(offset < world.begin for offset in effect.offsets):
                    raise LakeUnavailable(f"the log begins at offset {world.begin}")
                further = {each for offsets in effect.offsets_of.values() for each in offsets}
                files = [world.files(offset) for offset in effect.offsets if offset not in further]
                further_parts = {
                    name: TablePart(known, [world.files(each, known.terms.location) for each in offsets])
                    for name, offsets in effect.offsets_of.items()
                    for known in (effect.tables[name],)
                }
                vector = {name: each.newest for name, each in effect.tables.items()}
                own = effect.decision, effect.digest, effect.head, effect.watermark, files, ""
                return committer.publish(
                    CommitRequest(*own, further_parts, vector, effect.apart, effect.left_out)
                )
        raise TypeError(f"{effect!r} is no effect of the table")

    def _bad(self, offsets: tuple[int, ...]) -> str:
        names = [self.world.log[offset].envelope.id for offset in offsets]
        return ", ".join(f"{name} is missing" for name in names if name in self.world.bad)

    def _check(self) -> None:
        """No file twice, and decision ids of one user that only rise, in each table."""
        for table in self.world.catalog.tables.values():
            ours = [
                each for each in table.history if not each.foreign and each.commit_user == self.world.user
            ]
            ids = [each.decision for each in ours]
            if len(set(table.files)) < len(table.files) or ids != sorted(set(ids)):
                raise AssertionError(f"files {table.files} by decisions {ids}")
