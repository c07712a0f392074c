"""The ledger: which parts and completions of a lineage have arrived, and what of it is sealed."""

from typing import NamedTuple

from sluicegate.events.models import CheckpointCompleted


class Part(NamedTuple):
    """A `files.written` event."""

    offset: int
    files: int
    rows: int
    writer: str
    attempt: str


class Completion(NamedTuple):
    """The first completion of a checkpoint."""

    offset: int
    time: int
    body: CheckpointCompleted
    first: int
    """Where it stood first, which orders it; the same as the offset, unless it was carried."""


class Copy(NamedTuple):
    """Where an event stands that was appended again."""

    offset: int
    time: int
    first_time: int
    """Append time of the original."""


class Checkpoint:
    """What has arrived of one checkpoint of a lineage."""

    __slots__ = (
        "completion",
        "copies",
        "files",
        "first_offset",
        "first_time",
        "last_time",
        "missing",
        "parts",
        "rows",
        "sealed_at",
        "stored_at",
    )

    def __init__(self, offset: int, time: int) -> None:
        self.parts: dict[str, Part] = {}
        self.files = self.rows = 0
        """Of all parts. Each record and each look at the status has them, so nobody adds them up then."""
        self.completion: Completion | None = None
        self.missing: set[str] = set()
        self.first_offset = offset
        self.first_time = self.last_time = time
        self.sealed_at = time
        """Append time of the event that sealed it, once it is sealed."""
        self.stored_at = time
        """Append time of the oldest record that holds it; of the copies, once it was carried."""
        self.copies: dict[str, Copy] = {}
        """Of what was appended again, by event id; the completion's under its checkpoint's empty name."""

    def add(self, event: str, part: Part) -> None:
        """Enter an event, or the copy of one in its place."""
        known = self.parts.get(event)
        if known is None:
            self.files += part.files
            self.rows += part.rows
        else:
            self.files += part.files - known.files
            self.rows += part.rows - known.rows
        self.parts[event] = part

    @property
    def whole(self) -> bool:
        """Completed, every named event has arrived, and no two of them are attempts of one writer."""
        return self.completion is not None and not self.missing and self.doubled() is None

    def doubled(self) -> str | None:
        """The writer of whom two attempts are named; None if there is none, or while events are missing."""
        attempts: dict[str, str] = {}
        for part in self.named() if not self.missing else ():
            if attempts.setdefault(part.writer, part.attempt) != part.attempt:
                return part.writer
        return None

    def named(self) -> list[Part]:
        """The parts that the completion names; the others are a loser's or a zombie's."""
        if self.completion is None:
            return []
        return [self.parts[event] for event in dict.fromkeys(self.completion.body.events)]


class LineageLedger:
    """The pending checkpoints of one lineage, from behind the last decided one."""

    __slots__ = (
        "_successors",
        "_tail",
        "ceiling",
        "checkpoints",
        "disputed",
        "floor",
        "gaps",
        "garbled",
        "opened_at",
        "sealed",
    )

    def __init__(self, opened_at: int, decided: int | None) -> None:
        self.opened_at = opened_at
        self.floor = -1 if decided is None else decided
        """The last decided checkpoint; -1 if none is."""
        self.ceiling: int | None = None
        """The last checkpoint that counts, if a child or a closing set one."""
        self.checkpoints: dict[int, Checkpoint] = {}
        self.garbled: dict[int, str] = {}
        """Checkpoints whose completion cannot be read, with the problem, as long as no other has come."""
        self.gaps: dict[int, int] = {}
        """Completed checkpoints whose predecessor nobody completed, with that predecessor."""
        self.disputed = -1
        """Offset of the last completion that lost against an earlier one."""
        self.sealed: list[int] = []
        """Sealed and undecided checkpoints, in order."""
        self._successors: dict[int | None, int] = {}
        self._tail: int | None = decided

    def open_checkpoint(self, checkpoint: int, offset: int, time: int) -> Checkpoint | None:
        """The checkpoint's entry, made if need be; None if it is decided, void or beyond the end."""
        entry = self.checkpoints.get(checkpoint)
        if entry is None:
            if (
                checkpoint <= self.floor
                or offset < self.opened_at
                or (self.ceiling is not None and checkpoint > self.ceiling)
            ):
                return None
            entry = self.checkpoints[checkpoint] = Checkpoint(offset, time)
        return entry

    def complete(self, checkpoint: int, entry: Checkpoint, completion: Completion) -> bool:
        """Enter the first completion; False if another checkpoint already follows its predecessor."""
        body = completion.body
        if self._successors.setdefault(body.predecessor, checkpoint) != checkpoint:
            return False
        entry.completion = completion
        self._note_gap(checkpoint, body.predecessor)
        self.garbled.pop(checkpoint, None)
        entry.missing = set(body.events).difference(entry.parts)
        self.advance(completion.time)
        return True

    def withdraw(self, checkpoint: int) -> None:
        """Forget a completion: an earlier one turned up in a copy."""
        entry = self.checkpoints[checkpoint]
        entry.completion, entry.missing = None, set()
        self._successors = {
            before: number for before, number in self._successors.items() if number != checkpoint
        }
        if checkpoint in self.sealed:
            self.sealed = self.sealed[: self.sealed.index(checkpoint)]
            self._tail = self.sealed[-1] if self.sealed else (self.floor if self.floor >= 0 else None)

    def follower(self, predecessor: int | None) -> int | None:
        """The checkpoint whose completion names this predecessor; None if there is none."""
        return self._successors.get(predecessor)

    def _note_gap(self, checkpoint: int, predecessor: int | None) -> None:
        """Completions come in order, so a predecessor that has not come by now was lost, or never was."""
        before = None if predecessor is None else self.checkpoints.get(predecessor)
        if predecessor not in (None, self._tail) and (before is None or before.completion is None):
            self.gaps[checkpoint] = predecessor or 0
        self.gaps = {at: lacking for at, lacking in self.gaps.items() if lacking != checkpoint}

    def advance(self, time: int) -> None:
        """Seal what has become contiguous: completed, whole, and its predecessor sealed or decided."""
        while (successor := self._successors.get(self._tail)) is not None:
            entry = self.checkpoints[successor]
            if not entry.whole:
                return
            # Copies of older events come behind younger ones.
            time = max(time, entry.last_time)
            entry.sealed_at = time
            self.sealed.append(successor)
            self._tail = successor

    def decide(self, checkpoint: int) -> "LineageLedger":
        """Split off what a decision takes: the checkpoints up to this one, with what losers left behind."""
        taken = LineageLedger(self.opened_at, self.floor if self.floor >= 0 else None)
        taken.ceiling = self.floor = checkpoint
        taken.checkpoints = {
            number: entry for number, entry in self.checkpoints.items() if number <= checkpoint
        }
        taken.sealed = [number for number in self.sealed if number <= checkpoint]
        taken._tail = checkpoint
        taken._successors = {
            before: number for before, number in self._successors.items() if number <= checkpoint
        }
        self.sealed = self.sealed[len(taken.sealed) :]
        for number in taken.checkpoints:
            self._forget(number)
        for predecessor in taken._successors:
            del self._successors[predecessor]
        return taken

    def undecide(self, taken: "LineageLedger") -> None:
        """Put back what `decide` split off."""
        self.floor = taken.floor
        self.checkpoints |= taken.checkpoints
        self.sealed = taken.sealed + self.sealed
        self._successors |= taken._successors

    def last_completed(self) -> int | None:
        """The last checkpoint beyond the decided ones that is completed; None if none is."""
        return max(
            (number for number, entry in self.checkpoints.items() if entry.completion is not None),
            default=None,
        )

    def cap(self, ceiling: int) -> None:
        """Make everything beyond the ceiling void."""
        self.ceiling = ceiling if self.ceiling is None else min(self.ceiling, ceiling)
        for number in [number for number in self.checkpoints if number > ceiling]:
            self._forget(number)
        self.sealed = [number for number in self.sealed if number <= ceiling]
        self._successors = {
            predecessor: number for predecessor, number in self._successors.items() if number <= ceiling
        }
        if self._tail is not None and self._tail > ceiling:
            self._tail = self.sealed[-1] if self.sealed else (self.floor if self.floor >= 0 else None)

    def forget_empty(self) -> None:
        """Forget checkpoints of which nothing is needed."""
        for number, entry in list(self.checkpoints.items()):
            if not entry.parts and entry.completion is None:
                self._forget(number)

    def _forget(self, number: int) -> None:
        del self.checkpoints[number]
        self.garbled.pop(number, None)
        self.gaps.pop(number, None)

    def forget_passed(self) -> None:
        """Forget what is not sealed: the lineage went on without it."""
        for number in self.checkpoints.keys() - set(self.sealed):
            self._forget(number)

    def first_offset(self) -> int | None:
        """The first event of anything pending."""
        return min((entry.first_offset for entry in self.checkpoints.values()), default=None)
