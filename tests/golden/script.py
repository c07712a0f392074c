"""The language of golden cases: each line is an event or a mishap, each `> ` line what the core made of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from sluicegate.coordinator.core import cuts, decisions
from sluicegate.coordinator.core.machine import MachineSettings, StreamMachine
from sluicegate.events.envelope import EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutDecided,
    CutVoided,
    Parent,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)
from sluicegate.lakes.port import CommitRequest
from tests.golden.coordinator import STREAM, USUAL, Coordinator, Crashed, Watch, World
from tests.golden.tell import cut

POLICY = StreamPolicy(
    number=0, partial="allow", max_consecutive_fallbacks=3, allowed_locations=("memory://",)
)
SETTINGS = MachineSettings(POLICY, first_pause=100, longest_pause=1_000, probe_interval=10**9)
STEP = 1_000


class Script:
    """Runs one case."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._out: list[str] = []
        self.world = World(SETTINGS, watch or Watch(), lambda line: self._out.append(f"> {line}"))
        self._regions: tuple[str, ...] = ("r1", "r2")
        self._node: Coordinator | None = None
        self._frozen: Coordinator | None = None

    def run(self, text: str) -> str:
        """Return the case with its expected lines as they come out now."""
        for line in text.splitlines():
            if line.startswith(">"):
                continue
            self._out.append(line)
            words = line.partition("#")[0].split()
            if words:
                self._step(words)
        return "\n".join(self._out) + "\n"

    def _step(self, words: list[str]) -> None:
        unseen = words[-1] == "&"
        verb, *rest = words[:-1] if unseen else words
        method = cast("Callable[..., None] | None", getattr(self, f"do_{verb}", None))
        if method is None:
            raise ValueError(f"no such word: {verb}")
        plain = [each for each in rest if "=" not in each or verb in ("decide", "next")]
        method(*plain, **dict(each.split("=", 1) for each in rest if each not in plain))
        if verb not in ("settings", "regions") and not unseen:
            self._work()

    def _work(self) -> None:
        if self._node is None and not self._down and self.world.log:
            self._node = Coordinator(self.world)
        if self._node is not None:
            try:
                self._node.work()
            except Crashed as crash:
                self._out.append(f"> crash {crash}")
                self.do_crash()

    # --- the setting ------------------------------------------------------------------------------

    _down = False
    _kept: str | None = None

    def do_settings(self, **wanted: str) -> None:
        """partial=, max=, timeout= (of the alignment, ms), probe=."""
        names = {"timeout": "alignment_timeout", "probe": "probe_interval", "record": "record_interval"}
        times = {names[key]: int(value) for key, value in wanted.items() if key in names}
        policy = dict(POLICY) | {key: value for key, value in wanted.items() if key == "partial"}
        policy |= {"max_consecutive_fallbacks": int(wanted["max"])} if "max" in wanted else {}
        self.world.settings = replace(
            self.world.settings, policy=StreamPolicy.model_validate(policy), **cast(Any, times)
        )

    def do_regions(self, *names: str) -> None:
        self._regions = names

    def do_trace(self, *kinds: str) -> None:
        """Show effects of these kinds too."""
        self.world.traced = USUAL | set(kinds)

    # --- the log ----------------------------------------------------------------------------------

    def _say(
        self, kind: EventType, body: Body | None, region: str = "", lineage: str = "", at: int = -1
    ) -> None:
        self.world.append(kind, body, (region, lineage, at))

    def do_open(self, region: str, lineage: str, *flags: str, **how: str) -> None:
        """parents=r1:q.0:3,r2:q.0:- number=1 regions=r1,r2 sink=all-to-all table=..., unowned, bounded."""
        parents = [each.split(":") for each in how.get("parents", "").split(",") if each]
        names = tuple(how["regions"].split(",")) if "regions" in how else self._regions
        body = RegionOpened.model_validate(
            {
                "parents": [
                    Parent(region=name, lineage=life, checkpoint=None if at == "-" else int(at))
                    for name, life, at in parents
                ],
                "assignment": Assignment(number=int(how.get("number", 0)), regions=names),
                "sink": how.get("sink", "independent"),
                "bounded": "bounded" in flags,
                "owned": "unowned" not in flags,
                "table": how.get("table"),
            }
        )
        self._say(EventType.REGION_OPENED, body, region, lineage)

    def do_write(self, region: str, lineage: str, at: str, *events: str) -> None:
        """Writers of a checkpoint say what they wrote; each event is one file of the same name."""
        for event in events:
            self.world.append(EventType.FILES_WRITTEN, None, (region, lineage, int(at)), event)

    def do_complete(self, region: str, lineage: str, at: str, *events: str, **how: str) -> None:
        """after=2 (or -) digest= watermark= and any other name: the state of the listener of that name."""
        number = int(at)
        after = how.get("after", str(number - 1) if number else "-")
        known = ("after", "digest", "watermark")
        body = CheckpointCompleted.model_validate(
            {
                "events": events,
                "predecessor": None if after == "-" else int(after),
                "source_digest": how.get("digest", f"range-{at}"),
                "watermark": how.get("watermark"),
                "listeners": {name: state for name, state in how.items() if name not in known},
            }
        )
        self._say(EventType.CHECKPOINT_COMPLETED, body, region, lineage, number)

    def do_batch(self, region: str, lineage: str, at: str, *events: str, **how: str) -> None:
        """Write and complete."""
        self.do_write(region, lineage, at, *events)
        self.do_complete(region, lineage, at, *events, **how)

    def do_failed(self, region: str, lineage: str, at: str, outcome: str) -> None:
        self._say(
            EventType.CHECKPOINT_FAILED,
            CheckpointFailed.model_validate({"outcome": outcome}),
            region,
            lineage,
            int(at),
        )

    def do_heartbeat(self, region: str, lineage: str, state: str = "busy") -> None:
        self._say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=state == "idle"), region, lineage)

    def do_close(self, region: str, lineage: str, final: str) -> None:
        body = RegionClosed(final=None if final == "-" else int(final))
        self._say(EventType.REGION_CLOSED, body, region, lineage)

    def do_command(self, command: str, **how: str) -> None:
        self._say(EventType.STREAM_COMMAND, StreamCommand.model_validate({"command": command, **how}))

    def do_policy(self, **how: str) -> None:
        """Another coordinator's policy, as the log has it."""
        changes = {"max_consecutive_fallbacks": how.pop("max")} if "max" in how else {}
        self._say(EventType.STREAM_POLICY, StreamPolicy.model_validate(dict(POLICY) | how | changes))

    def do_decide(self, number: str, *cut: str, **how: str) -> None:
        """Another coordinator's decision: 2 r1=q.0:3 [final] [wrong-digest]; refs are filled in."""
        flags = [each for each in cut if "=" not in each]
        moves = {each.split("=")[0]: each.split("=")[1].split(":") for each in cut if "=" in each}
        moved = {name: Position(lineage=life, checkpoint=int(at)) for name, (life, at) in moves.items()}
        body = CutDecided(decision=int(number), cut=moved, final="final" in flags, completions="wrong")
        if "wrong-digest" not in flags:
            book = self._reader().book
            fresh = {name: at for name, at in moved.items() if at != book.region(name).ref}
            content = decisions.included(
                book, {name: at for name, at in fresh.items() if name in book.state.regions}
            )
            body = body.model_copy(update={"completions": decisions.completions_digest(content)})
        self._say(EventType.CUT_DECIDED, body)

    def do_abandon(self, number: str, attempt: str, *regions: str) -> None:
        """Another coordinator's abandonment."""
        body = CutAbandoned(decision=int(number), attempt=int(attempt), regions=regions)
        self._say(EventType.CUT_ABANDONED, body)

    def do_voided(self, number: str, region: str, at: str) -> None:
        """Another coordinator's news of a void."""
        self._say(EventType.CUT_VOIDED, CutVoided(decision=int(number), region=region, checkpoint=int(at)))

    def do_stall(self, *reason: str) -> None:
        """A stall that the log itself holds."""
        self._say(EventType.STREAM_STALLED, StreamStalled(reason=" ".join(reason)))

    def _reader(self) -> StreamMachine:
        """One that has read all of the log."""
        machine = StreamMachine(STREAM, 0, None, SETTINGS)
        for offset, entry in enumerate(self.world.log):
            machine.arrived(offset, *entry)
        return machine

    # --- time, processes, mishaps -----------------------------------------------------------------

    def do_tick(self, length: str) -> None:
        """Let so many milliseconds pass, with the coordinator at work."""
        end = self.world.now + int(length)
        while self.world.now < end:
            self.world.now = min(end, self.world.now + STEP)
            self._work()

    def do_sleep(self, length: str) -> None:
        """Let time pass while the process stands still."""
        self.world.now += int(length)

    def do_crash(self) -> None:
        """The process is gone, with all that it had in flight."""
        self._node, self._down = None, True

    def do_start(self) -> None:
        """Another process takes over, from the newest record."""
        self._node, self._down = Coordinator(self.world), False

    def do_freeze(self) -> None:
        """The process stands still with its effects in flight, and loses its partition."""
        self._frozen, self._node, self._down = self._node, None, True

    def do_thaw(self) -> None:
        """The frozen process goes on, and learns of nothing but what it reads and is told."""
        if self._frozen is None:
            raise ValueError("nothing is frozen")
        self._frozen.name = "zombie "
        self._frozen.work()
        self._frozen = None

    def do_hold(self, *kinds: str) -> None:
        """Effects of these kinds take long."""
        self.world.held |= set(kinds)

    def do_release(self) -> None:
        """What takes long comes to its end."""
        self.world.held.clear()

    def do_next(self, kind: str, *fate: str) -> None:
        """`crash before|after`, `conflict`, `refused REASON`, `is lost`, `is done but unknown`."""
        self.world.once[kind] = " ".join(fate)

    def do_away(self, *places: str) -> None:
        """The table, the log (for appends) or the view cannot be reached."""
        self.world.away |= set(places)

    def do_back(self) -> None:
        self.world.away.clear()

    def do_table(self, what: str, *rest: str) -> None:
        """What others do to the table: foreign, ours N DIGEST, replace, rollback N, expire N, refuse WHY, take, joined WHY."""
        table = self.world.table
        match what:
            case "foreign":
                table.foreign_commit()
            case "ours":
                request = CommitRequest(
                    int(rest[0]), rest[1], table.head.ref if table.head else None, None, []
                )
                table.commit("sluicegate-s", request)
            case "replace":
                table.replace()
            case "rollback":
                table.rollback(int(rest[0]))
            case "expire":
                table.expire(int(rest[0]))
            case "refuse":
                table.refusal = " ".join(rest)
            case "take":
                table.refusal = None
                self.world.bad.clear()
            case "joined":
                self.world.joined = " ".join(rest)
            case "bad":
                self.world.bad |= set(rest)
            case _:
                raise ValueError(f"no such thing: {what}")

    def do_keep(self, what: str) -> None:
        """Remember the record that is the newest now."""
        self._kept = self.world.record

    def do_put(self, what: str) -> None:
        """A zombie's record comes last: the one that was kept."""
        self.world.record = self._kept

    def do_lose(self, what: str) -> None:
        """The record is gone."""
        self.world.record = None

    def do_show(self, *what: str) -> None:
        """Tell of regions, of the `table` or of the `view`."""
        for each in what:
            if each == "table":
                said = " | ".join(" ".join(one.files) or "-" for one in self.world.table.snapshots)
                self._out.append(f"> table: {said or 'empty'}")
            elif each == "view":
                view = self.world.view
                self._out.append(f"> view: {f'decision {view.state.committed}' if view else 'none'}")
            elif self._node is not None:
                region = self._node.machine.book.state.regions[each]
                owned = "" if region.owned else " unowned"
                self._out.append(f"> {cut({each: region.ref})} fallbacks {region.fallbacks}{owned}")
