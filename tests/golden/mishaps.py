"""Words of golden cases for time, crashes, frozen processes, and other writers of the table."""

import copy
from typing import get_args

from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.adoption import Commits, Logged, Place, Stated, choose
from sluicegate.coordinator.stream.state_records import deletion_start
from sluicegate.events.models import CutDecided
from sluicegate.lakes.history import PastSnapshot
from sluicegate.lakes.port import CommitRequest, TableState
from tests.doubles.memory_lake import MarkerKind, MemoryTable
from tests.golden.coordinator import STREAM, Coordinator, Crashed, World
from tests.golden.tell import cut, problem_line
from tests.golden.writing import position

STEP = 1_000


class Mishaps:
    """Each `do_x` is the word `x`; of a world that a subclass makes."""

    world: World
    _node: Coordinator | None = None
    _frozen: Coordinator | None = None
    _down = False
    _kept: str | None = None
    _backup: MemoryTable | None = None

    @property
    def machine(self) -> StreamMachine:
        """Return the machine of the coordinator at work. Raises ValueError if there is none."""
        if self._node is None:
            raise ValueError("no coordinator is at work")
        return self._node.machine

    def work(self) -> None:
        """Let the coordinator do what it can; the first word starts one."""
        if self._node is None and not self._down:
            self._node = Coordinator(self.world)
        if self._node is not None:
            try:
                self._node.work()
            except Crashed as crash:
                self.world.say(f"crash {crash}")
                self.do_crash()

    def do_tick(self, length: str) -> None:
        """Let so many milliseconds pass, with the coordinator at work."""
        end = self.world.now + int(length)
        while self.world.now < end:
            self.world.now = min(end, self.world.now + STEP)
            self.work()

    def do_sleep(self, length: str) -> None:
        """Let time pass while the process stands still."""
        self.world.now += int(length)

    def do_crash(self) -> None:
        """The process is gone, with everything that it had in flight."""
        self._node, self._down = None, True

    def do_start(self) -> None:
        """Another process takes over, from the newest record."""
        self._node, self._down = Coordinator(self.world), False

    def do_freeze(self) -> None:
        """The process stands still with its effects in flight, and loses its partition."""
        self._frozen, self._node, self._down = self._node, None, True

    def do_thaw(self) -> None:
        """The frozen process continues, if there is one."""
        if self._frozen is None:
            return
        self._frozen.name = "zombie "
        try:
            self._frozen.work()
        except Crashed as crash:
            self.world.say(f"zombie crash {crash}")
        self._frozen = None

    def do_hold(self, *kinds: str) -> None:
        """Effects of these kinds stay in flight."""
        self.world.held |= set(kinds)

    def do_release(self, *kinds: str) -> None:
        """Effects in flight end, or those of these kinds."""
        self.world.held -= set(kinds) or set(self.world.held)

    def do_next(self, kind: str, *fate: str) -> None:
        """`crash before|after`, `conflict`, `refused REASON`, `is lost`, `is done but unknown`, `late`."""
        self.world.once[kind] = " ".join(fate)

    def do_away(self, *places: str) -> None:
        """The table, the log (for appends) or the view cannot be reached, or effects of these kinds fail."""
        self.world.away |= set(places)

    def do_back(self) -> None:
        self.world.away.clear()

    def do_fits(self, events: str) -> None:
        """Let so many events fit into a commit."""
        self.world.fits = int(events)

    def do_buckets(self) -> None:
        """Give the table fixed buckets; a coordinator sees it when it starts."""
        self.world.table.joined = "fixed buckets"

    def do_table(self, what: str, *rest: str) -> None:
        """marked KIND, foreign, impostor ID, ours ID DIGEST, replace, rollback N, expire N.

        refuse, take, bad F: the adapter does.
        """
        self._do_to(self.world.table, what, *rest)

    def do_tables(self, *names: str, **identifiers: str) -> None:
        """Set the further tables in the settings of coordinators that start from here on; `items=other`.

        Each identifier is made if the catalog lacks it.
        """
        self.world.wanted = {**dict(zip(names, names, strict=True)), **identifiers}
        for identifier in self.world.wanted.values():
            self.world.catalog.tables.setdefault(identifier, MemoryTable(identifier))

    def do_catalog(self, what: str, *rest: str) -> None:
        """apart: it applies tables one by one. drops NAME, drop NAME, rename NAME OTHER."""
        catalog = self.world.catalog
        match what:
            case "apart":
                catalog.atomic = False
            case "drops":
                catalog.atomic, catalog.drops = False, rest[0]
            case "drop":
                del catalog.tables[rest[0]]
            case "rename":
                catalog.tables[rest[1]] = catalog.tables.pop(rest[0])
            case _:
                raise ValueError(f"no such thing: {what}")

    def do_on(self, name: str, what: str, *rest: str) -> None:
        """The same as `table`, of a further table: on items rollback 1."""
        self._do_to(self.world.catalog.tables[name], what, *rest)

    def _do_to(self, table: MemoryTable, what: str, *rest: str) -> None:
        match what:
            case "marked":
                table.markers = next(kind for kind in get_args(MarkerKind) if kind == rest[0])
            case "unmark":
                table.unmark("sluicegate-s")
            case "foreign":
                table.foreign_commit()
            case "impostor":
                table.foreign_commit(made_by=("sluicegate-s", int(rest[0])))
            case "ours":
                self._commit_to(table, int(rest[0]), rest[1])
            case "replace":
                table.replace()
            case "rollback":
                table.rollback(int(rest[0]))
            case "expire":
                table.expire(int(rest[0]))
                table.expire_beside()
            case "refuse":
                table.refusal = " ".join(rest)
            case "take":
                table.refusal = None
                self.world.bad.clear()
            case "bad":
                self.world.bad |= set(rest)
            case _:
                raise ValueError(f"no such thing: {what}")

    def _commit_to(self, table: MemoryTable, number: int, digest: str) -> None:
        head, known = table.head.ref if table.head else None, digest != "logged"
        request = CommitRequest(number, digest if known else self._digest_of(number), head, None, [])
        table.commit("sluicegate-s", request)

    def _digest_of(self, number: int) -> str:
        bodies = (entry.body for entry in self.world.log)
        return next(b.digest for b in bodies if isinstance(b, CutDecided) and b.decision == number)

    def do_backup(self) -> None:
        """Remember the table as it is."""
        self._backup = copy.deepcopy(self.world.table)

    def do_restore(self) -> None:
        """Put back the table that was remembered."""
        vars(self.world.table).update(vars(copy.deepcopy(self._backup)))

    def do_keep(self, what: str) -> None:
        """Remember the record that is the newest now."""
        self._kept = self.world.record

    def do_put(self, what: str) -> None:
        """A zombie's record comes last, as the `record` or as the newest `base`: the one that was kept."""
        if what == "base":
            self.world.bases[max(self.world.bases)] = self._kept or ""
        else:
            self.world.record = self._kept

    def do_lose(self, what: str) -> None:
        """The record is gone."""
        self.world.record = None

    def do_adopt(self, **stated: str) -> None:
        """An operator adopts the table, and states the positions of these regions, such as `r1=q.0:3`."""
        world, newest = self.world, self.world.table.snapshots[-1]
        past = PastSnapshot(newest.ref, world.user, newest.decision, newest.digest)
        seen = TableState(world.table.identity, newest.ref, newest.decision, newest.decision)
        positions = {name: position(at) for name, at in stated.items()}
        end = len(world.log)
        logged = Logged(Place(0, end, world.log[-1].envelope.id), LogState())
        adopted = choose(STREAM, Commits(seen, past), logged, Stated(positions))
        record = adopted.record(STREAM, world.user, world.table.identity, logged, None)
        world.record, world.bases, world.begin = record.model_dump_json(), {}, end

    def do_delete(self, before: str = "") -> None:
        """Delete the records that nobody needs, after a base record; before an offset: by somebody else."""
        world = self.world
        if before:
            world.begin = int(before)
            return
        if world.record is None:
            raise ValueError("there is no record")
        needed = [StateRecord.model_validate_json(world.record).low_water]
        start = deletion_start(needed, len(world.log), world.begin)
        if start is None:
            raise ValueError("everything is needed")
        world.bases, world.begin = {start: world.record}, start
        world.say(f"deleted before {start}")

    def do_show(self, *what: str) -> None:
        """Show regions, the `table`, the `watermark`, the `conditions`, or the `ended` incarnations."""
        for each in what:
            self.world.say(self._shown(each))

    def _shown(self, what: str) -> str:
        if what == "table":
            return f"table: {_content(self.world.table)}"
        if what == "tables":
            return "; ".join(f"{name}: {_content(each)}" for name, each in self.world.catalog.tables.items())
        if what == "property":
            vector = self.world.catalog.vector or {}
            return "property: " + " ".join(f"{name}={each.decision}" for name, each in vector.items())
        if what == "vector":
            known = self.machine.replica.state.tables.items()
            found = " ".join(
                f"{name}={each.newest.decision}@{each.newest.snapshot.id if each.newest.snapshot else 'none'}"
                for name, each in known
            )
            return f"vector: {found or 'none'}"
        state = self.machine.replica.state
        if what == "watermark":
            return f"watermark {state.watermark}"
        if what == "conditions":
            found = "; ".join(
                f"{each.kind} {problem_line(each.problem)}" for each in self.machine.conditions()
            )
            return f"conditions: {found or 'none'}"
        if what == "assignment":
            held = state.assignment
            return f"assignment {held.number if held else 'none'}"
        if what == "ended":
            found = " ".join(f"{life} of {name}" if name else life for life, name in state.ended.items())
            return f"ended: {found or 'none'}"
        region = state.regions[what]
        shown = {
            "live": region.accepts_checkpoints,
            "idle": region.idle,
            "closed": region.ends,
            "gone": region.has_ended,
        }
        flags = [name for name, holds in shown.items() if holds]
        life = region.incarnation.id if region.incarnation else "none"
        return " ".join([cut({what: region.position}), life, f"fallbacks {region.fallbacks}", *flags])


def _content(table: MemoryTable) -> str:
    """Return the files of each snapshot that can be read."""
    return " | ".join(" ".join(one.files) or "-" for one in table.snapshots) or "empty"
