"""Random logs of two regions: a replica of the whole log is compared with replicas of state records.

A recovery knows a state record, and reads the log again from its low-water mark. It must end with the state
of a reader of the whole log, or the two judge a later record differently. A schedule of the simulator
restarts too rarely to show that: here, every offset of a log is the end of a state record. Few ids and
numbers make duplicates, losers, gaps and contradictions frequent. Half of the logs have further tables.

    python -m tests.simulation.random_logs 0 20000    # the logs of 20,000 seeds
"""

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from sluicegate.coordinator.core import cuts, undo
from sluicegate.coordinator.core.log import Applied, Log, PendingCheckpoints
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    FurtherTable,
    Planned,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)

STREAM: Final = "s"
REGIONS: Final = ("r1", "r2")
LENGTH: Final = 90
"""Records of a log."""
FOLLOWED: Final = 3
"""Replicas of state records that read on to the end of the log."""
_TIMES_OF: Final = {
    "files": 10,
    "completion": 11,
    "late files": 4,
    "heartbeat": 4,
    "closing": 1,
    "decision": 9,
    "outcome": 8,
    "order to revert": 3,
    "restart": 1,
    "incarnation": 1,
    "removal": 0.8,
    "savepoint": 0.8,
    "cancel": 0.2,
    "lost files": 0.3,
    "unreadable": 0.4,
    "repetition": 4,
    "assignment": 1.5,
    "withdrawal": 0.8,
    "pause": 0.4,
    "other policy": 0.3,
    "skipped": 0.6,
    "order to skip": 0.6,
    "statement": 0.4,
}
"""By kind of event, how often it is drawn."""


class Difference(NamedTuple):
    """A disagreement of two readers of one log."""

    seed: int
    record: int
    """The last offset that the state record includes."""
    offset: int
    """The last offset that both have read."""
    what: str


class RandomLog:
    """The log of one seed, and the replica of the whole of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.records: list[LogRecord] = []
        self.replica = Replica(STREAM, 0)
        self._further = ("", "", "x", "y", "y") if self.random.random() < 0.5 else ("",)
        """Tables of the files; the policy may lack one."""
        self._lives = {name: [f"{name}i0"] for name in REGIONS}
        self._ids = 0

    def write(self) -> Iterator[tuple[LogRecord, Applied]]:
        """Yield each record of the log, and its effect on the replica of the whole log."""
        yield self._append(EventType.STREAM_POLICY, self._policy(1))
        for name in REGIONS:
            yield self._register(name, self._lives[name][0], None)
        acts = {kind: getattr(self, f"_{kind.replace(' ', '_')}") for kind in _TIMES_OF}
        while len(self.records) < LENGTH:
            kind = self.random.choices(list(_TIMES_OF), list(_TIMES_OF.values()))[0]
            found: tuple[LogRecord, Applied] | None = acts[kind](self.random.choice(REGIONS))
            if found is not None:
                yield found

    def _append(
        self,
        kind: EventType,
        body: Body | None,
        at: tuple[str, str, int] = ("", "", -1),
        event: str = "",
        written: tuple[Any, ...] = (),
    ) -> tuple[LogRecord, Applied]:
        self._ids += 1
        envelope = Envelope(event or f"e{self._ids}", kind, STREAM, *at, *written)
        return self._add(envelope, body)

    def _add(self, envelope: Envelope, body: Body | None, skipped: str = "") -> tuple[LogRecord, Applied]:
        offset = len(self.records)
        record = LogRecord(offset, offset * 10, envelope, body, "", skipped)
        self.records.append(record)
        return record, self.replica.step(record)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def _state(self) -> LogState:
        return self.replica.state

    def _life(self, name: str) -> str:
        """Return an incarnation of the region, most often the newest."""
        lives = self._lives[name]
        return self.random.choice(lives[-2:]) if self.random.random() < 0.15 else lives[-1]

    def _number(self, name: str, life: str) -> int:
        """Return the checkpoint of the region's position; -1 if it has none of this incarnation."""
        region = self._state.regions.get(name)
        at = region.position if region else None
        return at.checkpoint if at is not None and at.incarnation == life else -1

    def _tail(self, name: str) -> Position | None:
        pending = self.replica.log.pending.get(name)
        return pending.tail if pending is not None else self.replica.log.state.region(name).position

    def _policy(self, number: int) -> StreamPolicy:
        ratio = self.random.choice((1.0, 1.0, 0.5))
        partial = "never" if self.random.random() < 0.1 else "allow"
        most = self.random.choice((1, 2, 4))
        limits = {1: 0, 2: 40, 4: 86_400_000}
        return StreamPolicy(
            number=number,
            partial=partial,
            max_consecutive_fallbacks=most,
            max_failure_ratio=ratio,
            future_limit=limits[most],
            tables=self._tables(),
        )

    def _tables(self) -> dict[str, FurtherTable]:
        """Return the further tables of a policy: each may be missing, renamed, or made again."""
        choice = self.random.choice
        return {
            name: FurtherTable(
                identifier=f"db.{name}{choice(('', '', 'r'))}",
                identity=f"{name}{choice((1, 1, 1, 2))}",
                location=f"memory:/{name}",
            )
            for name in sorted({*self._further} - {""})
            if self.random.random() < 0.85
        }

    def _statement(self, _: str) -> Any:
        name = self.random.choice("xy")
        known = self._state.tables.get(name)
        seen = known.newest.decision if known is not None else 0
        return self._command(
            command="resume",
            table=name,
            head=SnapshotRef(id=seen, identity=f"stated {seen}"),
            decision=self.random.choice((None, seen or None, 1)),
            known=seen if self.random.random() < 0.7 else seen + 1,
        )

    def _skipped(self, name: str) -> Any:
        """A record that only a newer release reads; an order to skip it may follow."""
        kind = self.random.choice((EventType.CHECKPOINT_COMPLETED, EventType.FILES_WRITTEN))
        life = self._life(name)
        self._ids += 1
        number = max(0, self._number(name, life) + 1)
        return self._add(Envelope(f"e{self._ids}", kind, STREAM, name, life, number), None, "digest")

    def _order_to_skip(self, _: str) -> Any:
        skipped = [each.offset for each in self.records if each.skipped] or [0]
        body = StreamCommand(command="skip", offset=self.random.choice(skipped), digest="digest")
        return self._append(EventType.STREAM_COMMAND, body)

    # --- drivers and writers ----------------------------------------------------------------------

    def _files(self, name: str, numbers: tuple[int, ...] = (1, 1, 2, 2, 3)) -> Any:
        life, choice = self._life(name), self.random.choice
        number, writer = max(0, self._number(name, life) + choice(numbers)), choice("ab")
        table = choice(self._further)
        event = f"{life}-{number}-{writer}{table}{choice('01')}"
        written = (f"{table}{writer}", event if self.random.random() < 0.8 else "same", 1, 10, 0, table)
        return self._append(EventType.FILES_WRITTEN, None, (name, life, number), event, written)

    def _late_files(self, name: str) -> Any:
        return self._files(name, (0, 0, -1))

    def _completion(self, name: str) -> Any:
        life, tail, draw = self._life(name), self._tail(name), self.random
        number = tail.checkpoint + 1 if tail is not None else 0
        # Numbers may be left out.
        number = max(0, number + draw.choice((0, 0, 0, 0, 0, 1, 1, 2, -1)))
        predecessor = tail
        if draw.random() < 0.25:
            # It overtakes its predecessor, which may turn out to be of another source range.
            number += draw.choice((0, 1))
            predecessor = position(life, max(0, number - 1), draw.choice(("", "x")))
        writers = "ab"[: draw.choice((0, 1, 1, 2))]
        events = tuple(
            f"{life}-{number}-{writer}{draw.choice(self._further)}{draw.choice('01')}" for writer in writers
        )
        body = CheckpointCompleted(
            events=events,
            predecessor=predecessor,
            source_digest=digest(number, "x" if draw.random() < 0.03 else ""),
            watermark=draw.choice((None, number * 10, number * 7)),
            source_offsets=f"{life}:{number}",
        )
        place = (name, life, number)
        if draw.random() < 0.3:
            # It carries the files of one writer, and names itself.
            event = f"{life}-{number}-{draw.choice('ac')}{draw.choice('01')}"
            carrying = body.model_copy(update={"events": (event,)})
            written = (draw.choice("ab"), event, 1, 10, 0, draw.choice(self._further))
            return self._append(EventType.CHECKPOINT_COMPLETED, carrying, place, event, written)
        return self._append(EventType.CHECKPOINT_COMPLETED, body, place)

    def _unreadable(self, name: str) -> Any:
        life = self._life(name)
        number = max(0, self._number(name, life) + self.random.choice((0, 1, 2)))
        return self._append(EventType.CHECKPOINT_COMPLETED, None, (name, life, number))

    def _lost_files(self, name: str) -> Any:
        life = self._life(name)
        number = max(0, self._number(name, life) + self.random.choice((0, 1, 2)))
        declined = self.random.random() < 0.6
        run = self._state.regions[name].run if declined and name in self._state.regions else None
        body = CheckpointFailed(outcome="declined" if run else "lost", run=run, reason="because")
        return self._append(EventType.CHECKPOINT_FAILED, body, (name, life, number))

    def _heartbeat(self, name: str) -> Any:
        region = self._state.regions.get(name)
        if region is None or region.run is None:
            return None
        interval = self.random.choice((None, 5000))
        number = self._number(name, self._lives[name][-1]) + self.random.choice((0, 0, 1))
        match self.random.choice(("idle", "idle", "idle", "begins", "busy")):
            case "idle":
                after = number if number >= 0 else None
                body = RegionHeartbeat(idle=True, after=after, interval=interval, run=region.run)
            case "begins":
                body = RegionHeartbeat(begins=number + 1, interval=interval, run=region.run)
            case _:
                body = RegionHeartbeat(interval=interval, run=region.run)
        return self._append(EventType.REGION_HEARTBEAT, body, (name, self._life(name), -1))

    def _closing(self, name: str) -> Any:
        region, pending = self._state.regions.get(name), self.replica.log.pending.get(name)
        if region is None or region.run is None:
            return None
        life = self._lives[name][-1]
        last = pending.last_completed() if pending is not None else None
        own = self._number(name, life)
        final = last if last is not None else own if own >= 0 else None
        return self._append(
            EventType.REGION_CLOSED, RegionClosed(final=final, run=region.run), (name, life, -1)
        )

    def _repetition(self, name: str) -> Any:
        """Append an event of drivers or writers once more, most often one of the last ones."""
        del name
        last = self.records[-12:] if self.random.random() < 0.7 else self.records
        found = self.random.choice(last)
        return self._add(found.envelope, found.body) if found.envelope.region else None

    # --- registrations ----------------------------------------------------------------------------

    def _register(
        self,
        name: str,
        life: str,
        base: Position | None,
        *,
        replaces: str | None = None,
        planned: tuple[Planned, ...] = (),
        assignment: Assignment | None = None,
    ) -> tuple[LogRecord, Applied]:
        current = self._state.assignment
        if assignment is None and current is not None:
            regions = tuple(current.regions)
            assignment = Assignment(number=current.number, regions=regions, after=current.after)
        body = RegionRegistered(
            assignment=assignment or Assignment(number=0, regions=REGIONS),
            base=base,
            replaces=replaces,
            planned=planned,
        )
        record, applied = self._append(EventType.REGION_REGISTERED, body, (name, life, -1))
        if applied.ignored is None and life not in self._lives[name]:
            self._lives[name].append(life)
        return record, applied

    def _restart(self, name: str) -> Any:
        region = self._state.regions.get(name)
        if region is None or region.incarnation is None:
            return None
        life, at = region.incarnation, region.position
        planned = (
            [Planned(checkpoint=at.checkpoint, digest=at.digest)] if at and at.incarnation == life.id else []
        )
        return self._register(name, life.id, life.base, planned=tuple(planned))

    def _incarnation(self, name: str) -> Any:
        region = self._state.regions.get(name)
        if region is None:
            return None
        new = f"{name}i{len(self._lives[name])}"
        return self._register(name, new, region.position, replaces=region.live_incarnation)

    def _assignment(self, name: str) -> Any:
        state = self._state
        if state.assignment is None or state.unresolved is not None or any(True for _ in state.active()):
            return None
        number = max(state.assignment.number, state.withdrawn) + 1
        regions = REGIONS if self.random.random() < 0.8 else (name,)
        wanted = Assignment(number=number, regions=regions, after=state.decided)
        new = f"{name}i{len(self._lives[name])}"
        return self._register(name, new, self.replica.log.state.region(name).position, assignment=wanted)

    # --- operators --------------------------------------------------------------------------------

    def _command(self, **order: Any) -> tuple[LogRecord, Applied]:
        return self._append(EventType.STREAM_COMMAND, StreamCommand(**order))

    def _order_to_revert(self, name: str) -> Any:
        del name
        made = self._state.unresolved
        if made is None:
            return None
        return self._command(
            command="revert", decision=made.id, region=self.random.choice(sorted(made.moves))
        )

    def _removal(self, name: str) -> Any:
        current = self._state.assignment
        command = self.random.choice(("remove", "discard", "close"))
        number = current.number if current is not None else 0
        return self._command(command=command, number=number, region=None if command == "close" else name)

    def _savepoint(self, name: str) -> Any:
        del name
        return self._command(
            command=self.random.choice(("savepoint", "drain")), name=self.random.choice("pq")
        )

    def _cancel(self, name: str) -> Any:
        del name
        return self._command(command="cancel", name=self.random.choice("pq"))

    def _withdrawal(self, name: str) -> Any:
        del name
        current = self._state.assignment
        if current is None or not current.provisional:
            return None
        found = self._command(command="withdraw", number=current.number)
        for each, region in self._state.regions.items():
            if region.live_incarnation is not None:
                # The former incarnation works again.
                self._lives[each].remove(region.live_incarnation)
                self._lives[each].append(region.live_incarnation)
        return found

    def _pause(self, name: str) -> Any:
        del name
        return self._command(command="resume" if self._state.paused else "pause")

    def _other_policy(self, name: str) -> Any:
        del name
        return self._append(EventType.STREAM_POLICY, self._policy(self._state.policy.number + 1))

    # --- coordinators -----------------------------------------------------------------------------

    def _decision(self, name: str) -> Any:
        """Decide or abandon; a region may be left out, as if the table would not take its files."""
        log, draw = self.replica.log, self.random
        excluded = (name,) if draw.random() < 0.2 else ()
        waited = cuts.Waited(*[draw.random() < 0.6 for _ in range(3)])
        chosen = cuts.choose(log, excluded, waited=waited)
        if isinstance(chosen, CutDecided):
            # Another coordinator may not have read the newest records.
            moves = {each: at for each, at in cuts.moves_of(log, chosen.cut).items() if draw.random() < 0.95}
            shorter = {each: draw.choice(log.sealed(each)).position for each in moves if draw.random() < 0.2}
            chosen = cuts.decision(log, moves | shorter)
        if chosen is None:
            return None
        kind = EventType.CUT_ABANDONED if isinstance(chosen, CutAbandoned) else EventType.CUT_DECIDED
        return self._append(kind, chosen)

    def _outcome(self, name: str) -> Any:
        del name
        made = self._state.unresolved
        if made is None or (made.revert is None and self.random.random() < 0.5):
            return None
        head = SnapshotRef(id=made.id, identity=str(made.id))
        if made.revert is None:
            there = {name for name in made.tables if self.random.random() < 0.9}
            body = CutCommitted(
                decision=made.id,
                digest=made.digest,
                table="t",
                snapshot=head,
                tables={name: head if self.random.random() < 0.8 else None for name in sorted(there)},
                left_out=tuple(sorted(made.tables.keys() - there)),
            )
            return self._append(EventType.CUT_COMMITTED, body)
        text = undo.revert_digest(made) or ""
        gone = CutReverted(decision=made.id, digest=text, table="t", snapshot=head)
        return self._append(EventType.CUT_REVERTED, gone)


def digest(number: int, other: str = "") -> str:
    """Return the source digest of a checkpoint; `other` makes it another one."""
    return f"d{number}{other}"


def position(life: str, number: int, other: str = "") -> Position:
    """Return a position with the digest of its number."""
    return Position(incarnation=life, checkpoint=number, digest=digest(number, other))


# --- the comparison -------------------------------------------------------------------------------


def recover(records: list[LogRecord], replica: Replica) -> Replica:
    """Return a replica that starts from a state record of this one, and has read as far."""
    state = LogState.model_validate_json(replica.state.model_dump_json())
    found = Replica(STREAM, 0, state, replica.applied)
    for record in records[replica.log.low_water(len(records)) :]:
        found.step(record)
    found.finish_refill()
    return found


def content(replica: Replica) -> dict[str, object]:
    """Return everything that a later record's effect can depend on."""
    log = replica.log
    found: dict[str, object] = {"lost content": replica.lost_content}
    found |= {field: getattr(log.state, field) for field in LogState.model_fields if field != "regions"}
    for name, region in log.state.regions.items():
        found |= {f"{name} {field}": getattr(region, field) for field in type(region).model_fields}
        found |= {f"{name} {key}": each for key, each in _pending(log, name).items()}
    return found


def _pending(log: Log, name: str) -> dict[str, object]:
    pending, region = log.pending.get(name), log.state.regions[name]
    found: dict[str, object] = {}
    if (kept := log.taken.get(name)) is not None:
        found |= {f"decided {key}": each for key, each in _of(kept, every=region.accepts_checkpoints).items()}
    if pending is not None and (region.accepts_checkpoints or pending.checkpoints):
        found |= _of(pending, every=region.accepts_checkpoints)
    return found


def _of(pending: PendingCheckpoints, *, every: bool) -> dict[str, object]:
    """Return the content; `every`: with all that is not sealed, which the end of a region discards."""
    sealed = {each.position.checkpoint for each in pending.sealed}
    return {
        "life": pending.incarnation,
        "sealed": [each.position for each in pending.sealed],
        "followers": pending._followers,
        "start": pending._position,
        "unreadable": pending.unreadable,
        "checkpoints": {
            number: (each.first_offset, each.body, each.missing, each.parts if every else each.named)
            for number, each in sorted(pending.checkpoints.items())
            if every or number in sealed
        },
    }


def differences(seed: int) -> Iterator[Difference]:
    """Yield the first disagreement about the log of a seed, if there is one."""
    log = RandomLog(seed)
    followed: list[tuple[int, Replica]] = []
    at = sorted(log.random.sample(range(3, LENGTH), FOLLOWED))
    for record, applied in log.write():
        for begun, other in followed:
            verdict = other.step(record)
            if (verdict.ignored, verdict.answer) != (applied.ignored, applied.answer):
                yield Difference(seed, begun, record.offset, f"{applied.ignored}, not {verdict.ignored}")
                return
        restored = recover(log.records, log.replica)
        for begun, other in (*followed, (record.offset, restored)):
            right, found = content(log.replica), content(other)
            if right != found:
                keys = [key for key in {**right, **found} if right.get(key) != found.get(key)]
                what = "; ".join(f"{key}: {right.get(key)}, not {found.get(key)}" for key in keys)
                yield Difference(seed, begun, record.offset, what)
                return
        if record.offset in at:
            followed.append((record.offset, restored))


def main() -> None:
    """Compare the replicas of many logs, and print the first disagreement of each kind."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    kinds, examples = Counter[str](), dict[str, Difference]()
    for seed in range(first, first + count):
        for each in differences(seed):
            kind = ", ".join(part.partition(":")[0][3:] for part in each.what.split("; "))
            kinds[kind] += 1
            examples.setdefault(kind, each)
    for kind, number in kinds.most_common():
        print(f"{number} {kind}\n    {examples[kind]}")
    print(f"{count} logs, {sum(kinds.values())} with a disagreement")


if __name__ == "__main__":
    main()
