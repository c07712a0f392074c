"""What surrounds the core in a golden case: a log, a table, topics, and one coordinator that can crash."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Appended,
    Carry,
    CheckFiles,
    Done,
    Effect,
    EndOffset,
    Failed,
    FetchEnd,
    FilesChecked,
    Publish,
    Result,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import Envelope, EventType, Origin
from sluicegate.events.models import Body, FileInfo, FilesWritten, LineageCarried
from sluicegate.events.naming import attempt_digest
from sluicegate.lakes.memory import MemoryTable
from sluicegate.lakes.port import OutcomeUnknown, Refused, TableReplaced
from sluicegate.simulator.performing import LOGGED, OF_THE_TABLE, Door, Written, newer_view
from tests.golden.tell import effect_line

STREAM = "s"
USUAL = frozenset({"AppendDecision", "AppendAbandoned", "AppendVoided", "Carry", "Publish", "Announce"})


class Entry(NamedTuple):
    """A record of the log; its offset is its place there."""

    time: int
    envelope: Envelope
    body: Body | None


class Watch:
    """Is told of everything that a coordinator does; the base does nothing with it."""

    def booted(self, machine: StreamMachine) -> None: ...
    def stepped(self, machine: StreamMachine) -> None: ...
    def finished(self, machine: StreamMachine, effect: Effect, result: Result) -> None: ...
    def handed(self, machine: StreamMachine, effect: Effect) -> None: ...


@dataclass
class World:
    """What outlives a coordinator."""

    settings: MachineSettings
    watch: Watch
    say: Callable[[str], None]
    now: int = 0
    log: list[Entry] = field(default_factory=list)
    table: MemoryTable = field(default_factory=lambda: MemoryTable("t"))
    user: str = "sluicegate-s"
    """The commit user of the next coordinator."""
    joined: str | None = None
    """Why the table makes all writers one region."""
    bad: set[str] = field(default_factory=set)
    """Files that the table would not take."""
    named: dict[str, str] = field(default_factory=dict)
    """Events that name the file of another one."""
    record: str | None = None
    view: StateRecord | None = None
    told: set[str] = field(default_factory=set)
    """Ids of the notifications that stand on the commits topic."""
    seen: int = 0
    """How much of the log any coordinator has read: what it ignores is told once."""
    traced: frozenset[str] = USUAL
    whole: bool = False
    """Whether reasons are told with what to do about them."""
    newer: set[int] = field(default_factory=set)
    """Offsets of records that only a newer release reads."""
    garbled: set[int] = field(default_factory=set)
    """Offsets of records whose body cannot be read."""
    away: set[str] = field(default_factory=set)
    """What fails now: table, log, view, or effects of a kind."""
    held: set[str] = field(default_factory=set)
    """Effects that take long: they stay in flight."""
    once: dict[str, str] = field(default_factory=dict)
    """What happens to the next effect of a kind, once."""

    def append(
        self,
        kind: EventType,
        body: Body | None,
        at: tuple[str, str, int],
        event: str = "",
        writer: str = "",
        attempt: str = "",
    ) -> int:
        """Write to the log; returns the offset. Each event is of a writer of its own, unless one is named."""
        number = len(self.log)
        identity = event or f"e{number}"
        written = (writer or identity, 1, attempt or identity) if kind is EventType.FILES_WRITTEN else ()
        self.log.append(Entry(self.now, Envelope(identity, kind, STREAM, *at, *written), body))
        return number

    def files(self, offset: int) -> Written:
        """The event at an offset, whose file has its name unless it names another event's."""
        envelope = self.log[offset].envelope
        info = FileInfo(path=self.named.get(envelope.id) or self.path(envelope), size=1, rows=1)
        return envelope, FilesWritten(
            format="memory", format_version=1, location="memory://t", schema_id=0, files=(info,)
        )

    def path(self, envelope: Envelope) -> str:
        """The event's own file."""
        return f"data-{attempt_digest(STREAM, *envelope[3:7], envelope.attempt)}-{envelope.id}"

    def path_of(self, event: str) -> str:
        """The file of an event that was written."""
        return next(self.path(entry.envelope) for entry in self.log if entry.envelope.id == event)


class Crashed(Exception):
    """The process is gone."""


class Coordinator:
    """One life of a coordinator: it reads, polls and runs effects until nothing is left to do."""

    def __init__(self, world: World, name: str = "") -> None:
        self.world = world
        self.name = name
        record = StateRecord.model_validate_json(world.record) if world.record else None
        self.machine = StreamMachine(STREAM, 0, record, world.settings)
        self.flying: list[Effect] = []
        self._next = self.machine.low_water
        self._lake = Door(world.table, world.user)
        world.watch.booted(self.machine)

    def work(self) -> None:
        """Do all that can be done at this time. Raises Crashed if a crash was ordered."""
        for _ in range(200):
            self._read()
            handed = self.machine.poll(self.world.now)
            for effect in handed:
                self.world.watch.handed(self.machine, effect)
            self.flying += handed
            ready = [each for each in self.flying if type(each).__name__ not in self.world.held]
            if not ready:
                return
            for effect in ready:
                self.flying.remove(effect)
                self._run(effect)
        raise RuntimeError("the coordinator does not come to rest")

    def _read(self) -> None:
        while self._next < len(self.world.log):
            offset, entry = self._next, self.world.log[self._next]
            self._next += 1
            if offset in self.world.newer:
                self.machine.unreadable(offset, "a newer release is needed")
                continue
            if offset in self.world.garbled:
                self.machine.garbled(offset, entry.time, entry.envelope, "no JSON")
                continue
            ignored = self.machine.arrived(offset, *entry)
            if ignored and offset >= self.world.seen and entry.envelope.type is not EventType.REGION_OPENED:
                self.world.say(f"{self.name}ignored {entry.envelope.type}: {ignored}")
            self.world.seen = max(self.world.seen, offset + 1)
            self.world.watch.stepped(self.machine)
        self.machine.reached(self._next)

    def _run(self, effect: Effect) -> None:
        kind = type(effect).__name__
        fate = self.world.once.pop(kind, "")
        if fate == "crash before":
            raise Crashed(f"before {kind}")
        again = " again" if isinstance(effect, Announce) and effect.due.id in self.world.told else ""
        result = self._perform(effect, fate)
        crash = fate == "crash after"
        if kind in self.world.traced:
            world = self.world
            names = [world.log[each].envelope.id for each in getattr(effect, "offsets", ())]
            low_water = self.machine.book.low_water(self.machine.position)
            said = effect_line(effect, None if crash else result, names, low_water, whole=world.whole)
            self.world.say(self.name + said + again)
        if crash:
            raise Crashed(f"after {kind}")
        self.machine.finished(effect, result)
        self.world.watch.finished(self.machine, effect, result)

    def _perform(self, effect: Effect, fate: str) -> Result:
        place = (
            "table"
            if isinstance(effect, OF_THE_TABLE)
            else "view"
            if isinstance(effect, WriteView)
            else "log"
        )
        if {place, type(effect).__name__} & self.world.away:
            return Failed(f"the {place} is away")
        if fate == "is lost":
            return OutcomeUnknown("lost") if isinstance(effect, Publish) else Failed("it timed out")
        result = self._table(effect, fate) if isinstance(effect, OF_THE_TABLE) else self._topics(effect)
        if fate == "is done but unknown":
            return OutcomeUnknown("timeout") if isinstance(effect, Publish) else Failed("it timed out")
        return result

    def _topics(self, effect: Effect) -> Result:
        world = self.world
        match effect:
            case FetchEnd():
                return EndOffset(len(world.log))
            case WriteRecord(record):
                world.record = record.model_dump_json()
            case Announce(due):
                world.told.add(due.id)
            case WriteView(record):
                world.view = newer_view(world.view, record)
            case Carry():
                for offset in effect.offsets:
                    old = world.log[offset]
                    origin = old.envelope.origin or Origin(offset, old.time)
                    world.log.append(Entry(world.now, old.envelope._replace(origin=origin), old.body))
                mark, at = LineageCarried(upto=effect.upto), (effect.region, effect.lineage, -1)
                return Appended(world.append(EventType.LINEAGE_CARRIED, mark, at))
            case _ if isinstance(effect, Append):
                return Appended(world.append(LOGGED[type(effect)], effect.body, ("", "", -1)))
        return Done()

    def _table(self, effect: Effect, fate: str) -> Result:
        if isinstance(effect, CheckFiles) and effect.table != self.world.table.identity:
            return TableReplaced(self.world.table.identity)
        if isinstance(effect, Publish) and fate.startswith("refused "):
            return Refused(fate.removeprefix("refused "))
        if isinstance(effect, Publish) and fate == "conflict":
            self.world.table.foreign_commit()
        self._lake.find(self.world.table, self.world.joined)
        result = self._lake.perform(effect, self.world.files)
        if isinstance(effect, CheckFiles) and isinstance(result, FilesChecked):
            bad = {each.region: self._bad(each.offsets) for each in effect.parts}
            return FilesChecked({name: why for name, why in bad.items() if why} | result.problems)
        self._check()
        return result

    def _bad(self, offsets: tuple[int, ...]) -> str:
        names = [self.world.log[offset].envelope.id for offset in offsets]
        return ", ".join(f"{name} is not what the table takes" for name in names if name in self.world.bad)

    def _check(self) -> None:
        """No file twice, and decision ids of one user that only rise."""
        table = self.world.table
        ours = [each for each in table.history if not each.foreign and each.commit_user == self.world.user]
        ids = [each.decision for each in ours]
        if len(set(table.files)) < len(table.files) or ids != sorted(set(ids)):
            raise AssertionError(f"files {table.files} by decisions {ids}")
