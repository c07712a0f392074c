"""Words of golden cases that append to the log: events of drivers, writers, operators, other coordinators."""

from sluicegate.coordinator.core import cuts, undo
from sluicegate.coordinator.core.effects import MachineSettings
from sluicegate.coordinator.core.replica import Replica
from sluicegate.events.codec import read_completion
from sluicegate.events.envelope import PER_CHECKPOINT, Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Planned,
    Position,
    Predecessor,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.problems import Problem
from tests.golden.coordinator import STREAM, World, files_named

POLICY = StreamPolicy(
    number=0, partial="allow", max_consecutive_fallbacks=3, allowed_locations=("memory://",)
)
SETTINGS = MachineSettings(POLICY, first_pause=100, longest_pause=1_000, head_interval=10**9)


class LogWords:
    """Each `do_x` is the word `x`; of a world that a subclass makes."""

    world: World
    regions: tuple[str, ...] = ("r1", "r2")

    def do_regions(self, *names: str) -> None:
        """Set the regions of the assignments of registrations from here on."""
        self.regions = names

    def do_register(self, region: str, incarnation: str, *flags: str, **how: str) -> None:
        """base=q.0:3 replaces=q.0 planned=3:x,2 number=1 after=4 regions=r1,r2 table=, and flags.

        over= (an end offset, or `end`) and kind= of a driver without state. The flags are unowned, probe,
        rests and bounded. A digest that is not given is `range-` with the number of the checkpoint.
        """
        names = tuple(how["regions"].split(",")) if "regions" in how else self.regions
        planned = [each.split(":") for each in how.get("planned", "").split(",") if each]
        assignment = Assignment(
            number=int(how.get("number", 0)), regions=names, after=int(how.get("after", 0))
        )
        body = RegionRegistered.model_validate(
            {
                "base": position(how["base"]) if "base" in how else None,
                "replaces": how.get("replaces"),
                "planned": [
                    Planned(checkpoint=int(number), digest=digest or f"range-{number}")
                    for number, digest in ([*each, ""][:2] for each in planned)
                ],
                "assignment": assignment,
                "bounded": "bounded" in flags,
                "probe": "probe" in flags,
                "rests": "rests" in flags,
                "table": how.get("table"),
                "tables": tuple(how["tables"].split(",")) if "tables" in how else (),
                "takes_over": self._end(how["over"]) if "over" in how else None,
                "offsets_kind": how.get("kind", ""),
            }
        )
        self.world.append(EventType.REGION_REGISTERED, body, (region, incarnation, -1))

    def _end(self, over: str) -> int:
        return len(self.world.log) if over == "end" else int(over)

    def do_write(self, region: str, incarnation: str, at: str, *events: str, **how: str) -> None:
        """Writers of a checkpoint publish their files: one event and one file for each name.

        `items:f1` is a file of a further table.
        """
        for each in events:
            table, _, event = each.rpartition(":")
            place = region, incarnation, int(at)
            self.world.append(EventType.FILES_WRITTEN, None, place, event, table=table, **how)

    def do_complete(self, region: str, incarnation: str, at: str, *events: str, **how: str) -> None:
        """after=2 (or -, or p.0:4) digest= watermark= offsets=, any other name is a listener's state."""
        number = int(at)
        after = how.get("after", str(number - 1) if number else "-")
        if after != "-" and ":" not in after:
            after = f"{incarnation}:{after}"
        known = ("after", "digest", "watermark", "offsets")
        body = CheckpointCompleted.model_validate(
            {
                "events": events,
                "predecessor": position_or_none(after),
                "source_digest": how.get("digest", f"range-{at}"),
                "watermark": how.get("watermark"),
                "source_offsets": how.get("offsets"),
                "listeners": {name: state for name, state in how.items() if name not in known},
            }
        )
        self.world.append(EventType.CHECKPOINT_COMPLETED, body, (region, incarnation, number))

    def do_carry(self, region: str, incarnation: str, at: str, event: str, **how: str) -> None:
        """Complete with the files of one writer, all in the event `event`.

        after=2 leaves the predecessor's incarnation and digest out, digest=- the source digest; else as
        `complete`. writer= attempt=.
        """
        number = int(at)
        after = how.get("after", str(number - 1) if number else "-")
        known = ("after", "digest", "watermark", "offsets", "writer", "attempt")
        writer, attempt = how.get("writer", event), how.get("attempt", event)
        digest = how.get("digest", f"range-{at}")
        body = CheckpointCompleted.model_validate(
            {
                "files": files_named(event),
                "predecessor": Predecessor(checkpoint=int(after))
                if after.isdigit()
                else position_or_none(after),
                "source_digest": "" if digest == "-" else digest,
                "watermark": how.get("watermark"),
                "source_offsets": how.get("offsets"),
                "listeners": {name: state for name, state in how.items() if name not in known},
            }
        )
        kind = EventType.CHECKPOINT_COMPLETED
        place = (region, incarnation, number)
        envelope = Envelope(event, kind, STREAM, *place, writer, attempt, 1)
        read = read_completion(envelope, body.model_dump_json().encode())
        if isinstance(read, Problem):
            raise ValueError(f"{event} cannot be read: {read}")  # noqa: TRY004
        self.world.append(kind, read, place, event, writer, attempt)

    def do_batch(self, region: str, incarnation: str, at: str, *events: str, **how: str) -> None:
        """Write and complete."""
        self.do_write(region, incarnation, at, *events)
        names = [each.rpartition(":")[2] for each in events]
        self.do_complete(region, incarnation, at, *names, **how)

    def do_garble(self) -> None:
        """Nobody can read the body of the newest event."""
        self.world.garbled.add(len(self.world.log) - 1)

    def do_newer(self, kind: str = "stream.policy", region: str = "", incarnation: str = "") -> None:
        """A record that only a newer release reads."""
        number = 0 if kind in PER_CHECKPOINT else -1
        self.world.newer.add(self.world.append(EventType(kind), None, (region, incarnation, number)))

    def do_failed(
        self, region: str, incarnation: str, at: str, outcome: str, *reason: str, run: str | None = None
    ) -> None:
        run = run or (self.run_of(region, incarnation) if outcome == "declined" else None)
        fields = {"outcome": outcome, "reason": " ".join(reason), "run": run}
        body = CheckpointFailed.model_validate(fields)
        self.world.append(EventType.CHECKPOINT_FAILED, body, (region, incarnation, int(at)))

    def run_of(self, region: str, incarnation: str) -> str:
        """Return the id of the newest registration of an incarnation."""
        found = "none"
        for entry in self.world.log:
            wanted = isinstance(entry.body, RegionRegistered) and not entry.body.probe
            if wanted and entry.envelope[3:5] == (region, incarnation):
                found = entry.envelope.id
        return found

    def newest_of(self, region: str, incarnation: str) -> int | None:
        """Return the highest checkpoint of an incarnation that the log names; None if there is none."""
        entries = [each for each in self.world.log if each.envelope[3:5] == (region, incarnation)]
        begun = [each.body.begins for each in entries if isinstance(each.body, RegionHeartbeat)]
        named = [each.envelope.checkpoint for each in entries if each.envelope.checkpoint >= 0]
        return max([*named, *(each for each in begun if each is not None)], default=None)

    def do_heartbeat(self, region: str, incarnation: str, state: str = "busy", **how: str) -> None:
        """Busy or idle; every= after=3 (or -) begins=3 run=.

        `run` is the id of the registration that the process began with; default: the newest. An idle one
        names the newest checkpoint that the log has of the incarnation, unless `after` says another one.
        """
        after = how.get("after", "")
        named = int(after) if after.isdigit() else None if after else self.newest_of(region, incarnation)
        body = RegionHeartbeat(
            idle=state == "idle",
            after=named if state == "idle" else None,
            begins=int(how["begins"]) if "begins" in how else None,
            interval=int(how["every"]) if "every" in how else None,
            run=how.get("run") or self.run_of(region, incarnation),
        )
        self.world.append(EventType.REGION_HEARTBEAT, body, (region, incarnation, -1))

    def do_close(self, region: str, incarnation: str, final: str, run: str = "") -> None:
        run = run or self.run_of(region, incarnation)
        body = RegionClosed(final=None if final == "-" else int(final), run=run)
        self.world.append(EventType.REGION_CLOSED, body, (region, incarnation, -1))

    def do_command(self, command: str, **how: str) -> None:
        """region= number= decision= name= head=SNAPSHOT offset=: an operator's order."""
        found: dict[str, object] = dict(how)
        if "offset" in how:
            found.setdefault("digest", f"digest-{how['offset']}")
        if "head" in how:
            number = int(how["head"])
            there = self.world.catalog.tables[how.get("table", "t")].at(number)
            found["head"] = SnapshotRef(id=number, identity=there.identity if there else "gone")
        self.world.append(
            EventType.STREAM_COMMAND, StreamCommand.model_validate({"command": command, **found})
        )

    def do_policy(self, **how: str) -> None:
        """Another coordinator's policy."""
        self.world.append(EventType.STREAM_POLICY, StreamPolicy.model_validate(dict(POLICY) | policy_of(how)))

    def do_decide(self, number: str, *cut: str) -> None:
        """Another coordinator's decision: 2 r1=q.0:3 [wrong-digest]."""
        log = self.reader().log
        moves = {each.split("=")[0]: position(each.split("=")[1]) for each in cut if "=" in each}
        sealed = {name: at for name, at in moves.items() if any(at == s.position for s in log.sealed(name))}
        digest = cuts.digest_of(log, sealed) if "wrong-digest" not in cut else "wrong"
        head = self.world.table.head
        body = CutDecided(
            decision=int(number),
            cut=cuts.whole_cut(log, moves),
            digest=digest,
            head=SnapshotRef(id=head.id, identity=head.identity) if head else None,
        )
        self.world.append(EventType.CUT_DECIDED, body)

    def do_outcome(self, number: str, *flags: str) -> None:
        """Another coordinator's outcome of a decision; `reverted`, `wrong-digest`."""
        made, head = self.reader().state.unresolved, self.world.table.head
        digest, reverted = made.digest if made else "none", "reverted" in flags
        if reverted and made is not None:
            digest = undo.revert_digest(made) or "no order"
        kind = CutReverted if reverted else CutCommitted
        body: Body = kind(
            decision=int(number),
            digest="wrong" if "wrong-digest" in flags else digest,
            table=self.world.table.identity,
            snapshot=SnapshotRef(id=head.id, identity=head.identity) if head else None,
        )
        self.world.append(EventType.CUT_REVERTED if reverted else EventType.CUT_COMMITTED, body)

    def do_abandon(self, number: str, attempt: str, kind: str, *regions: str) -> None:
        """Another coordinator's abandoned attempt."""
        body = CutAbandoned.model_validate(
            {"decision": int(number), "attempt": int(attempt), "kind": kind, "regions": regions}
        )
        self.world.append(EventType.CUT_ABANDONED, body)

    def reader(self) -> Replica:
        """Return a replica that has read all of the log."""
        replica = Replica(STREAM, 0)
        for offset in range(len(self.world.log)):
            if (record := self.world.read(offset)) is not None:
                replica.step(record)
        return replica


def position_or_none(text: str) -> Position | None:
    """Return a position; None for `-`."""
    return None if text == "-" else position(text)


def position(text: str) -> Position:
    """Return `q.0:3` or `q.0:3:digest` as a position."""
    incarnation, number, *digest = text.split(":")
    return Position(
        incarnation=incarnation, checkpoint=int(number), digest=digest[0] if digest else f"range-{number}"
    )


def policy_of(how: dict[str, str]) -> dict[str, object]:
    """Return the fields of a policy: number= partial= max= ratio= regions=r1,r2 file_names= future=."""
    names = {"future": "future_limit", "max": "max_consecutive_fallbacks", "ratio": "max_failure_ratio"}
    found: dict[str, object] = {names.get(key, key): value for key, value in how.items()}
    if "regions" in how:
        found["regions"] = tuple(how["regions"].split(","))
    return found
