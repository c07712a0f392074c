"""Words of golden cases that write to the log: what jobs, operators and other coordinators say."""

from sluicegate.coordinator.core import decisions
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.settings import MachineSettings
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
from tests.golden.coordinator import STREAM, World

POLICY = StreamPolicy(
    number=0, partial="allow", max_consecutive_fallbacks=3, allowed_locations=("memory://",)
)
SETTINGS = MachineSettings(POLICY, first_pause=100, longest_pause=1_000, probe_interval=10**9)


class LogWords:
    """Each `do_x` is the word `x`; of a world that a subclass makes."""

    world: World
    regions: tuple[str, ...] = ("r1", "r2")

    def do_regions(self, *names: str) -> None:
        """Name the regions of the assignments of openings from here on."""
        self.regions = names

    def _say(
        self, kind: EventType, body: Body | None, region: str = "", lineage: str = "", at: int = -1
    ) -> None:
        self.world.append(kind, body, (region, lineage, at))

    def do_open(self, region: str, lineage: str, *flags: str, **how: str) -> None:
        """parents=r1:q.0:3,r2:q.0:- number=1 regions=r1,r2 sink=all-to-all table=..., unowned, bounded.

        planned=3:range-3, previous=range-2, behind=range-2: what the location has as its newest checkpoint,
        the one before it, and its parent.
        """
        parents = [each.split(":") for each in how.get("parents", "").split(",") if each]
        names = tuple(how["regions"].split(",")) if "regions" in how else self.regions
        planned, _, digest = how.get("planned", "").partition(":")
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
                "planned": int(planned) if planned else None,
                "planned_digest": digest or None,
                "previous_digest": how.get("previous"),
                "parent_digest": how.get("behind"),
            }
        )
        self._say(EventType.REGION_OPENED, body, region, lineage)

    def do_write(self, region: str, lineage: str, at: str, *events: str, **how: str) -> None:
        """Writers of a checkpoint say what they wrote: one file for each event.

        writer= attempt= and file=f1: the event names the file of f1 in place of one of its own.
        """
        other = how.pop("file", None)
        for event in events:
            self.world.append(EventType.FILES_WRITTEN, None, (region, lineage, int(at)), event, **how)
            if other is not None:
                self.world.named[event] = self.world.path_of(other)

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

    def do_garble(self) -> None:
        """What was written last cannot be read."""
        self.world.garbled.add(len(self.world.log) - 1)

    def do_newer(self) -> None:
        """A record that only a newer release reads."""
        self.world.newer.add(self.world.append(EventType.STREAM_POLICY, None, ("", "", -1)))

    def do_upgrade(self) -> None:
        """The next coordinator reads it: to this core it is a type that it does not expect."""
        self.world.newer.clear()

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
        """behind=q.0:3 and the other fields of an order."""
        at = how.pop("behind", None)
        behind = {} if at is None else {"behind": None if at == "-" else _position(at)}
        body = StreamCommand.model_validate({"command": command, **how, **behind})
        self._say(EventType.STREAM_COMMAND, body)

    def do_policy(self, **how: str) -> None:
        """Another coordinator's policy, as the log has it."""
        changes = {"max_consecutive_fallbacks": how.pop("max")} if "max" in how else {}
        self._say(EventType.STREAM_POLICY, StreamPolicy.model_validate(dict(POLICY) | how | changes))

    def do_decide(self, number: str, *cut: str, **how: str) -> None:
        """Another coordinator's decision: 2 r1=q.0:3 [final] [wrong-digest]; refs are filled in."""
        flags = [each for each in cut if "=" not in each]
        moved = {each.split("=")[0]: _position(each.split("=")[1]) for each in cut if "=" in each}
        body = CutDecided(decision=int(number), cut=moved, final="final" in flags, completions="wrong")
        if "wrong-digest" not in flags:
            book = self.reader().book
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

    def reader(self) -> StreamMachine:
        """One that has read all of the log."""
        machine = StreamMachine(STREAM, 0, None, SETTINGS)
        for offset, entry in enumerate(self.world.log):
            machine.arrived(offset, *entry)
        return machine


def _position(text: str) -> Position:
    lineage, checkpoint = text.split(":")
    return Position(lineage=lineage, checkpoint=int(checkpoint))
