"""Log: LogState with the pending checkpoints in memory, and the questions that the rules ask about both.

Only the rules of this package change it, on behalf of `Replica`."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.coordinator.core import savepoints
from sluicegate.coordinator.core.state import (
    MOST_ENDED,
    MOST_STEP,
    Decision,
    LogState,
    RegionPhase,
    RegionState,
    Savepoint,
)
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CheckpointCompleted, Position, Predecessor
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem

# PendingCheckpoints: the checkpoints of one incarnation that no decision includes yet.
#
# Events, completions and predecessors may arrive in any order. A checkpoint is sealed once it is completed
# and all events that it names have arrived. No two of them may be attempts of one writer, and its
# predecessor is sealed or is the decided position.
#
# The content depends on the position of now alone: a recovery reads the events after the position of a
# state record again, and must find the same. So an event has the same effect here whether an earlier
# checkpoint was pending at its arrival, was decided, or is pending again after a revert.

_DUPLICATE = Problem(code=Code.DUPLICATE)
_SETTLED = Problem(code=Code.SETTLED)


class Part(NamedTuple):
    """The files of one event: a `files.written`, or a completion that carries them."""

    offset: int
    files: int
    rows: int
    writer: str
    attempt: str
    bytes: int = 0
    table: str = ""


class Checkpoint:
    """Events of one checkpoint that have arrived."""

    __slots__ = (
        *("body", "completed_at", "files", "first_offset", "first_time", "last_time", "missing", "parts"),
        "rows",
    )

    def __init__(self, offset: int, time: int) -> None:
        self.parts: dict[str, Part] = {}
        self.files = self.rows = 0
        """Sums over the parts. Each record and each status has them, so neither adds them up."""
        self.body: CheckpointCompleted | None = None
        """The first completion."""
        self.completed_at = time
        """Its append time, in milliseconds."""
        self.missing: set[str] = set()
        """Named events that have not arrived."""
        self.first_offset = offset
        self.first_time = self.last_time = time
        """Append times of the first and the last event, in milliseconds."""

    @property
    def named(self) -> list[Part]:
        """Return the parts that the completion names; the others are a loser's or a zombie's."""
        if self.body is None or self.missing:
            return []
        return [self.parts[event] for event in dict.fromkeys(self.body.events)]

    @property
    def doubled_writer(self) -> str | None:
        """Return a writer of which the completion names two attempts; None if there is none."""
        attempts: dict[str, str] = {}
        for part in self.named:
            if attempts.setdefault(part.writer, part.attempt) != part.attempt:
                return part.writer
        return None


class Sealed(NamedTuple):
    """A sealed checkpoint."""

    position: Position
    checkpoint: Checkpoint
    time: int
    """Append time of the event that sealed it, in milliseconds."""
    tables: frozenset[str] = frozenset()
    """Further tables of which it has files."""


class PendingCheckpoints:
    """The checkpoints of one incarnation of a region after a position."""

    def __init__(self, region: str, incarnation: str, position: Position | None) -> None:
        self.region = region
        self.incarnation = incarnation
        self.checkpoints: dict[int, Checkpoint] = {}
        self.sealed: list[Sealed] = []
        self.has_tables = False
        """True once files of a further table have arrived: most streams have none, and need no search."""
        self.unreadable: set[int] = set()
        """Checkpoints with a completion that cannot be read, and with no other one."""
        self._position = position
        """The decided position of the region that the incarnation starts from, or has reached."""
        self._followers: dict[int | None, int] = {}
        """By number of the predecessor (None: not of this incarnation), the checkpoint that follows it."""

    @property
    def tail(self) -> Position | None:
        """Return the newest sealed position, or the position that all of this follows."""
        return self.sealed[-1].position if self.sealed else self._position

    def checkpoint_at(self, number: int, offset: int, time: int) -> Checkpoint:
        """Return the entry of a checkpoint, which is new if nothing of it has arrived."""
        found = self.checkpoints.get(number)
        if found is None:
            found = self.checkpoints[number] = Checkpoint(offset, time)
        if time > found.last_time:
            found.last_time = time
        return found

    def add_part(self, record: LogRecord) -> Problem | None:
        """Add the files of an event of the incarnation; return the reason if it has no effect."""
        envelope, at = record.envelope, self._position
        number, event, files, rows = envelope.checkpoint, envelope.id, envelope.files, envelope.rows
        if at is not None and at.checkpoint >= number and at.incarnation == self.incarnation:
            return _SETTLED
        entry = self.checkpoint_at(number, record.offset, record.time)
        if event in entry.parts:
            return _DUPLICATE
        attempt = (envelope.writer, envelope.attempt)
        # `_make` takes half the time of the constructor.
        entry.parts[event] = Part._make(
            (record.offset, files, rows, *attempt, envelope.bytes, envelope.table)
        )
        entry.files += files
        entry.rows += rows
        entry.missing.discard(event)
        if envelope.table:
            self.has_tables = True
        return None

    def complete(self, number: int, body: CheckpointCompleted, offset: int, time: int) -> Problem | None:
        """Add the first completion of a checkpoint; return the reason if it can never be sealed."""
        problem = self._impossible(number, body.predecessor)
        # A rejected one is kept, too: it is the first completion, so no later one counts.
        entry = self.checkpoint_at(number, offset, time)
        entry.body, entry.completed_at = body, time
        entry.missing = set(body.events).difference(entry.parts)
        self.unreadable.discard(number)
        if problem is None or self._contradicts_tail(number, body.predecessor):
            self._followers.setdefault(self._key(body.predecessor), number)
        return problem

    def add_unreadable(self, number: int, offset: int, time: int) -> None:
        """Note a completion whose body cannot be read: the checkpoint waits for another one."""
        if self.checkpoint_at(number, offset, time).body is None:
            self.unreadable.add(number)

    def problem(
        self, code: Code, number: int, *, other: int | None = None, names: tuple[str, ...] = ()
    ) -> Problem:
        """Return a problem of one checkpoint."""
        return Problem(
            code=code,
            region=self.region,
            incarnation=self.incarnation,
            checkpoint=number,
            other=other,
            names=names,
        )

    def _key(self, predecessor: Predecessor | None) -> int | None:
        own = predecessor is not None and predecessor.incarnation == self.incarnation
        return predecessor.checkpoint if own and predecessor is not None else None

    def _is_tail(self, predecessor: Predecessor | None) -> bool:
        """True if the newest sealed position is this predecessor, whose digest may be unknown."""
        tail = self.tail
        if predecessor is None or tail is None:
            return predecessor is tail
        # The comparison of the models takes ten times as long.
        same = (predecessor.checkpoint, predecessor.incarnation) == (tail.checkpoint, tail.incarnation)
        return same and predecessor.digest in ("", tail.digest)

    def _impossible(self, number: int, predecessor: Predecessor | None) -> Problem | None:
        """Return the reason if a predecessor can never be the newest sealed checkpoint before this one."""
        key, tail = self._key(predecessor), self.tail
        # A driver may continue the numbers of the incarnation before its own.
        if number > (0 if predecessor is None else predecessor.checkpoint) + MOST_STEP:
            return self.problem(Code.CHECKPOINT_TOO_HIGH, number, other=MOST_STEP)
        # Two checkpoints with one predecessor are two courses of events: only a reset can choose.
        follower = self._followers.get(key)
        if follower is not None:
            return self.problem(Code.PREDECESSOR_IMPOSSIBLE, number, other=follower)
        if self._is_tail(predecessor) and (key is None or key < number):
            return None
        tail_key = self._key(tail)
        ahead = key is not None and key < number and (tail_key is None or key > tail_key)
        return None if ahead else self.problem(Code.PREDECESSOR_IMPOSSIBLE, number, other=key)

    def _contradicts_tail(self, number: int, predecessor: Predecessor | None) -> bool:
        """True if a completion follows the newest sealed checkpoint's number, and another source range.

        It is kept as the one that follows, as if it had arrived before its predecessor.
        """
        key = self._key(predecessor)
        return key is not None and key < number and key == self._key(self.tail)

    def seal(self, time: int) -> Problem | None:
        """Seal all checkpoints that have become contiguous; return the first one that never can be.

        `time` is the append time of the event that was added.
        """
        while (number := self._followers.get(self._key(self.tail))) is not None:
            entry = self.checkpoints[number]
            if entry.body is None:
                return None
            if not self._is_tail(entry.body.predecessor):
                # The predecessor has the right number, and was completed for another source range.
                key = self._key(entry.body.predecessor)
                return self.problem(Code.PREDECESSOR_IMPOSSIBLE, number, other=key)
            if entry.missing:
                # Uploads may follow the completion.
                return None
            if (writer := entry.doubled_writer) is not None:
                return self.problem(Code.TWO_ATTEMPTS, number, names=(writer,) if writer else ())
            position = Position(
                incarnation=self.incarnation, checkpoint=number, digest=entry.body.source_digest
            )
            tables = frozenset(part.table for part in entry.named if part.table)
            self.sealed.append(Sealed(position, entry, max(time, entry.last_time), tables))
        return None

    def digest_of(self, number: int) -> str | None:
        """Return the source digest of a completed checkpoint; None if it is not completed."""
        entry = self.checkpoints.get(number)
        return entry.body.source_digest if entry is not None and entry.body is not None else None

    def last_completed(self) -> int | None:
        """Return the highest completed checkpoint; None if none is."""
        completed = (number for number, each in self.checkpoints.items() if each.body is not None)
        return max(completed, default=None)

    def gap(self) -> tuple[int, int] | None:
        """Return a completed checkpoint and its predecessor that nobody completed; None if there is none."""
        sealed = {each.position.checkpoint for each in self.sealed}
        for key, number in sorted(self._followers.items(), key=lambda each: each[1]):
            if key is None or number in sealed or self._key(self.tail) == key:
                continue
            if self.digest_of(key) is None:
                return number, key
        return None

    def upto(self, at: Position) -> list[Sealed]:
        """Return the sealed checkpoints up to a position; all of them if it is not sealed."""
        # Their numbers rise. The comparison of the models takes long, and thousands may wait for a cut.
        index = bisect_left(self.sealed, at.checkpoint, key=lambda each: each.position.checkpoint)
        found = index < len(self.sealed) and self.sealed[index].position == at
        return self.sealed[: index + 1 if found else None]

    def split(self, upto: Position) -> "PendingCheckpoints":
        """Remove and return everything up to a sealed position, which is the new start.

        That includes checkpoints that are not sealed: a revert makes them pending again.
        """
        taken, last = PendingCheckpoints(self.region, self.incarnation, self._position), upto.checkpoint
        taken.has_tables, taken.sealed = self.has_tables, self.upto(upto)
        self.sealed = self.sealed[len(taken.sealed) :]
        self._position = upto
        for number in [each for each in self.checkpoints if each <= last]:
            taken.checkpoints[number] = self.checkpoints.pop(number)
        taken.unreadable = {each for each in self.unreadable if each <= last}
        self.unreadable -= taken.unreadable
        taken._followers = {key: number for key, number in self._followers.items() if number <= last}
        self._followers = {key: number for key, number in self._followers.items() if number > last}
        return taken

    def restore(self, taken: "PendingCheckpoints") -> None:
        """Undo a `split`: put the checkpoints back after the position before it."""
        self._position = taken._position
        self.checkpoints |= taken.checkpoints
        self.unreadable |= taken.unreadable
        self._followers |= taken._followers
        self.has_tables |= taken.has_tables
        self.sealed = [*taken.sealed, *self.sealed]

    def keep_sealed(self) -> None:
        """Drop everything after the newest sealed checkpoint: it never counts.

        What the chain has passed over stays until the cut. It holds the first completion of its number, so a
        reader of the log has to begin before it.
        """
        last = self.sealed[-1].position.checkpoint if self.sealed else -1
        sealed = {each.position.checkpoint for each in self.sealed}
        self.checkpoints = {number: entry for number, entry in self.checkpoints.items() if number <= last}
        self._followers = {key: number for key, number in self._followers.items() if number in sealed}
        self.unreadable.clear()

    def first_offset(self) -> int | None:
        """Return the offset of the first event of anything pending; None if nothing is."""
        return min((entry.first_offset for entry in self.checkpoints.values()), default=None)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of one record."""

    ignored: Problem | None = None
    """Reason for which it has no effect; None if it has one."""
    answer: RegistrationAnswered | None = None
    """The answer to a registration or a probe, as of its offset."""
    resolved: Decision | None = None
    """The decision that got its outcome."""
    savepoints: tuple[Savepoint, ...] = ()
    """Savepoints and drains that are reached."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """By region, the live incarnation that an order has ended."""


class Log:
    """The fold of one stream's log in memory."""

    def __init__(self, stream: str, state: LogState) -> None:
        self.stream = stream
        self.state = state
        self.pending: dict[str, PendingCheckpoints] = {}
        """By region, for its newest incarnation."""
        self.taken: dict[str, PendingCheckpoints] = {}
        """By region, everything up to the position of the unresolved decision: a revert puts it back."""
        for name, region in state.regions.items():
            self.begin_pending(name, region)
        if (made := state.unresolved) is not None:
            for name, to in made.moves.items():
                self.taken[name] = PendingCheckpoints(
                    name, to.incarnation, made.before.regions[name].position
                )

    def begin_pending(self, name: str, region: RegionState) -> None:
        """Begin an empty set of pending checkpoints after the region's position."""
        if region.incarnation is not None:
            self.pending[name] = PendingCheckpoints(name, region.incarnation.id, region.position)

    @property
    def taken_checkpoints(self) -> dict[str, list[Sealed]]:
        """Return, by region, the checkpoints that the unresolved decision includes."""
        return {name: each.sealed for name, each in self.taken.items()}

    # --- one region -------------------------------------------------------------------------------

    def sealed(self, name: str) -> list[Sealed]:
        """Return the region's sealed checkpoints after its position, in order."""
        found = self.pending.get(name)
        return found.sealed if found is not None else []

    def known(self, name: str) -> list[Sealed]:
        """Return the sealed checkpoints that a cut may take: those before one of a table that is unknown."""
        sealed = self.sealed(name)
        if not sealed or not self.pending[name].has_tables:
            return sealed
        known = self.state.policy.tables.keys()
        first = next((place for place, each in enumerate(sealed) if not each.tables <= known), None)
        return sealed if first is None else sealed[:first]

    def unknown_table(self, name: str) -> Problem | None:
        """Return the condition of a region of which a sealed checkpoint has files of an unknown table."""
        sealed, known = self.sealed(name), self.known(name)
        if len(known) == len(sealed):
            return None
        at = sealed[len(known)]
        lacking = min(at.tables - self.state.policy.tables.keys())
        number = at.position.checkpoint
        return self.pending[name].problem(Code.TABLE_UNKNOWN, number).model_copy(update={"table": lacking})

    def is_idle(self, name: str) -> bool:
        """True if the newest heartbeat says that the region has no work, and nothing of it is pending."""
        region, pending = self.state.region(name), self.pending.get(name)
        if not region.accepts_checkpoints or not region.idle:
            return False
        if region.fault is not None and region.fault.code is Code.RECORD_SKIPPED:
            # The skipped record may have stated rows, so nothing is known of what the driver has begun.
            return False
        # A long first batch may be under way when a heartbeat says idle: the watermark must not pass it. The
        # same holds for the final checkpoint of a closed region, even if nothing of it has arrived yet.
        return not (pending is not None and pending.checkpoints) and (not region.ends or region.has_ended)

    def expected(self) -> Iterator[str]:
        """Yield the regions that a full cut must move: active and not idle, registered or not."""
        return (name for name in self.state.active() if not self.is_idle(name))

    def lagging(self) -> list[str]:
        """Return the lagging regions: expected, with nothing sealed after their position."""
        return [name for name in self.expected() if not self.sealed(name)]

    # --- changes ----------------------------------------------------------------------------------

    def end_incarnation(self, name: str, phase: RegionPhase, *, upto: Position | None = None) -> None:
        """End the region's incarnation, and discard its checkpoints after `upto` (None: all of them)."""
        region = self.state.regions[name]
        self.remember_ended(name, region)
        region.phase, region.fault = phase, None
        found = self.pending.get(name)
        if found is not None:
            if upto is None:
                found.sealed.clear()
            found.keep_sealed()
        savepoints.discard(self.state, name, upto, gone=phase is RegionPhase.REMOVED)

    def remember_ended(self, name: str, region: RegionState) -> None:
        """Note that the region's incarnation has ended, until a registration of it fails by its base."""
        life = region.incarnation
        if life is not None:
            ended = self.state.ended
            ended.setdefault(life.id, name if life.base is not None else None)
            if len(ended) > MOST_ENDED:
                del ended[next(iter(ended))]

    def forget_ended(self, moved: Collection[str]) -> None:
        """Forget the ended incarnations of regions that a committed cut has moved.

        A new incarnation begins at a committed position. So each of them has a base before the cut, and no
        position comes back. The newest one of a region is part of its state, and stays.
        """
        regions, ended = self.state.regions, self.state.ended
        newest = {each.incarnation.id for each in regions.values() if each.incarnation is not None}
        self.state.ended = {life: name for life, name in ended.items() if name not in moved or life in newest}

    def low_water(self, position: int) -> int:
        """Return the smallest offset that a recovery reads, if everything before `position` was read."""
        needed = [position]
        if self.state.unresolved is not None:
            needed.append(self.state.unresolved.first_offset)
        needed += [first for each in self.pending.values() if (first := each.first_offset()) is not None]
        return min(needed)
