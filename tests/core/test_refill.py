"""Whatever stands in the log: the core takes it, and a restart at any point changes nothing.

Random logs of valid, stale, contradictory and hostile events are read by one machine without a stop, and by
another that is replaced, after any event, by one made from its record and the log from the low-water mark on.
"""

from random import Random
from typing import NamedTuple

import pytest

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.carrying import next_carry
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import Envelope, EventType, Origin
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutDecided,
    CutVoided,
    LineageCarried,
    Parent,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)
from tests.core.scene import SETTINGS
from tests.simulation.planting import Defect, planted

UNNOTED = Defect(
    "a dispute is not noted",
    Book,
    "completion",
    "ledger.disputed = offset\n        if fresh:",
    "if fresh:",
    "I8",
)
REGIONS = ("r1", "r2")
LINEAGES = ("a", "b", "c")


class Entry(NamedTuple):
    offset: int
    envelope: Envelope
    body: Body | None


class Author:
    """Writes a log that makes sense more often than not."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def entry(self, offset: int, reader: StreamMachine) -> Entry:
        random = self.random
        region, (lineage, checkpoint) = random.choice(REGIONS), (random.choice(LINEAGES), random.randrange(4))
        live = reader.book.state.regions.get(region)
        if live and live.live and random.random() < 0.9:
            lineage = live.live
            ledger = reader.book.ledgers[region, lineage]
            last = (
                ledger.sealed[-1] if ledger.sealed else max(ledger.floor, live.lineages[lineage].start or -1)
            )
            checkpoint = max(0, last + random.choice([-1, 0, 1, 1, 1, 1, 2]))
        if random.random() < 0.12:
            return self._decision(offset, reader)
        kind = random.choice([*USUAL * 6, *OTHERS]) if offset > 2 else OTHERS[offset]
        envelope = Envelope(f"x{offset}", kind, "s", region, lineage, checkpoint, "w")
        if kind is EventType.FILES_WRITTEN:
            event = f"{region}{lineage}{checkpoint}{random.randrange(3)}"
            return Entry(offset, envelope._replace(id=event, files=1, attempt="a"), None)
        return Entry(offset, envelope, self._body(kind, envelope, reader))

    def _body(self, kind: EventType, envelope: Envelope, reader: StreamMachine) -> Body:
        random, pick = self.random, self.random.choice
        region, checkpoint = envelope.region, envelope.checkpoint
        match kind:
            case EventType.CHECKPOINT_COMPLETED:
                named = [f"{region}{envelope.lineage}{checkpoint}{number}" for number in range(3)]
                known = (region, envelope.lineage) in reader.book.ledgers
                usual = self._first(envelope, reader) if known else None
                return CheckpointCompleted(
                    events=tuple(random.sample(named, pick([0, 1, 1, 2]))),
                    predecessor=random.randrange(4) if random.random() < 0.02 else usual,
                    source_digest="other" if random.random() < 0.03 else f"range-{checkpoint}",
                    watermark=pick([None, 100 * checkpoint]),
                )
            case EventType.REGION_OPENED:
                return self._opening(region, reader)
            case EventType.REGION_HEARTBEAT:
                return RegionHeartbeat(idle=pick([True, False]))
            case EventType.REGION_CLOSED:
                return RegionClosed(final=pick([None, checkpoint, checkpoint + 1]))
            case EventType.CHECKPOINT_FAILED:
                return CheckpointFailed(outcome=pick(["redo", "late", "redo", "late", "redo", "lost"]))
            case EventType.STREAM_COMMAND:
                return StreamCommand(
                    command=pick(["accept", "resume", "pause", "remove", "void", "savepoint", "drain"]),
                    region=region,
                    lineage=pick(LINEAGES),
                    decision=max(1, reader.book.state.decided),
                    checkpoint=checkpoint,
                    name=f"s{random.randrange(3)}",
                )
            case EventType.STREAM_STALLED:
                return StreamStalled(reason="elsewhere")
        return StreamPolicy(
            number=pick([1, 2, 3]),
            partial=pick(["never", "allow", "allow"]),
            max_consecutive_fallbacks=2,
            allowed_locations=("memory://",),
        )

    def _first(self, envelope: Envelope, reader: StreamMachine) -> int | None:
        """The predecessor that a driver would name: None for its lineage's first checkpoint."""
        lived = reader.book.state.regions[envelope.region].lineages[envelope.lineage]
        start = -1 if lived.start is None else lived.start
        return envelope.checkpoint - 1 if envelope.checkpoint - 1 > start else None

    def _opening(self, region: str, reader: StreamMachine) -> Body:
        held = reader.book.state.regions.get(region)
        at = held.ref if held else None
        parent = Parent(
            region=region,
            lineage=at.lineage if at else self.random.choice(LINEAGES),
            checkpoint=at.checkpoint + self.random.choice([-1, 0, 0, 0, 1]) if at and at.checkpoint else None,
        )
        number = self.random.choice([1, 2]) if self.random.random() < 0.1 else 0
        parents: tuple[Parent, ...] = () if self.random.random() < 0.5 else (parent,)
        if number and self.random.random() < 0.5:
            other = "r1" if region == "r2" else "r2"
            theirs = reader.book.state.regions.get(other)
            if theirs and theirs.live:
                last = reader.book.ledgers[other, theirs.live].last_completed()
                decided = theirs.lineages[theirs.live].decided
                parents += (Parent(region=other, lineage=theirs.live, checkpoint=last or decided),)
        return RegionOpened(
            parents=parents,
            assignment=Assignment(number=number, regions=REGIONS if number < 2 else ("r1", "r2", "r3")),
            sink="all-to-all" if self.random.random() < 0.02 else "independent",
            owned=self.random.random() < 0.9,
        )

    def _decision(self, offset: int, reader: StreamMachine) -> Entry:
        pending = reader.book.state.pending
        if pending and pending[-1].void is not None and self.random.random() < 0.7:
            region, checkpoint = pending[-1].void
            given_up = CutVoided(decision=pending[-1].id, region=region, checkpoint=checkpoint)
            return Entry(offset, Envelope(f"x{offset}", EventType.CUT_VOIDED, "s"), given_up)
        body = cuts.choose(reader.book, expired=self.random.random() < 0.5)
        if isinstance(body, CutAbandoned):
            return Entry(offset, Envelope(f"x{offset}", EventType.CUT_ABANDONED, "s"), body)
        if body is None or self.random.random() < 0.1:
            place = Position(lineage=self.random.choice(LINEAGES), checkpoint=self.random.randrange(4))
            body = CutDecided(decision=self.random.randrange(1, 4), cut={"r1": place}, completions="x")
        return Entry(offset, Envelope(f"x{offset}", EventType.CUT_DECIDED, "s"), body)

    def carried(self, log: list[Entry], reader: StreamMachine) -> list[Entry]:
        """A checkpoint once more, seldom, and sometimes not whole; nothing, if it is not the time."""
        if self.random.random() > 0.04:
            return []
        carry = next_carry(reader.book, 1_000_000, len(log) - 1)
        if carry is None:
            return []
        offsets = carry.offsets if self.random.random() < 0.8 else carry.offsets[1:]
        originals = [log[offset] for offset in offsets]
        # Others write between what was read to be carried, the copies, and their mark.
        before = self._some(len(log), reader)
        first = len(log) + len(before)
        copies = [
            Entry(first + place, old.envelope._replace(origin=_origin(old)), old.body)
            for place, old in enumerate(originals)
        ]
        after = self._some(first + len(copies), reader)
        offset = first + len(copies) + len(after)
        mark = Envelope(f"x{offset}", EventType.LINEAGE_CARRIED, "s", carry.region, carry.lineage)
        return [*before, *copies, *after, Entry(offset, mark, LineageCarried(upto=carry.upto))]

    def _some(self, offset: int, reader: StreamMachine) -> list[Entry]:
        return [self.entry(offset + place, reader) for place in range(self.random.randrange(5))]


def _origin(entry: Entry) -> Origin:
    return entry.envelope.origin or Origin(entry.offset, 1000 + entry.offset)


USUAL = (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED)
OTHERS = (
    EventType.STREAM_POLICY,
    EventType.REGION_OPENED,
    EventType.REGION_OPENED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
    EventType.CHECKPOINT_FAILED,
    EventType.STREAM_COMMAND,
    EventType.STREAM_STALLED,
)


def feed(machine: StreamMachine, entry: Entry) -> None:
    machine.arrived(entry.offset, 1000 + entry.offset, entry.envelope, entry.body)


def resolve(machine: StreamMachine, decision: int) -> None:
    """The outcome of the oldest decision becomes known."""
    state = machine.book.state
    if state.pending and state.pending[0].id <= decision:
        state.committed = state.pending.pop(0).id
        if not state.pending:
            machine.book.forget_included()


def sight(machine: StreamMachine) -> tuple[object, ...]:
    """What decides the content of commits from here on."""
    book = machine.book
    return (
        content(machine),
        {
            name: [(lineage, number) for lineage, number, _ in book.sealed(name)]
            for name in book.state.regions
        },
        cuts.choose(book),
        cuts.choose(book, expired=True),
        machine.position,
    )


def content(machine: StreamMachine) -> dict[str, object]:
    """The light state without what only says from where a recovery reads, and how old things are."""
    said = machine.book.state.model_dump()
    for decision in said["pending"]:
        for name in ("first_offset", "last_time", "parts"):
            del decision[name]
    return said


def restart_at_any_point(seed: int) -> None:
    author = Author(seed)
    steady = StreamMachine("s", 0, None, SETTINGS)
    restarted = StreamMachine("s", 0, None, SETTINGS)
    log: list[Entry] = []
    while len(log) < 150:
        written = author.carried(log, steady) or [author.entry(len(log), steady)]
        for entry in written:
            log.append(entry)
            feed(steady, entry)
            feed(restarted, entry)
        if author.random.random() < 0.2:
            known = steady.book.state.decided
            resolve(steady, known)
            resolve(restarted, known)
        if author.random.random() < 0.1:
            record = StateRecord.model_validate_json(restarted.record().model_dump_json())
            assert record.low_water <= restarted.position
            restarted = StreamMachine("s", 0, record, SETTINGS)
            for entry in log[record.low_water :]:
                feed(restarted, entry)
            restarted.reached(len(log))
            steady.reached(len(log))
        # A mark that was not whole may be so for who reads less: that one needs no more than the other.
        assert restarted.book.low_water(len(log)) >= steady.book.low_water(len(log))
        assert sight(restarted) == sight(steady), f"{log[-1]}"


@pytest.mark.parametrize("seed", range(250))
def test_a_restart_at_any_point_changes_nothing(seed: int) -> None:
    restart_at_any_point(seed)


def test_a_dispute_that_is_not_noted_is_seen() -> None:
    """A planted defect: a lineage counts as carried whole, though a completion has lost since it was read."""

    def is_seen(seed: int) -> bool:
        try:
            restart_at_any_point(seed)
        except AssertionError:
            return True
        return False

    with planted(UNNOTED):
        assert any(is_seen(seed) for seed in (234, *range(400)))
