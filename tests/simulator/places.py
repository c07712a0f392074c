"""Regions, savepoints and decisions, in the form in which the dumb account keeps them."""

from dataclasses import dataclass, field
from typing import Any, Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import CheckpointCompleted, CutDecided, Position, Predecessor, SnapshotRef

FAR: Final = 4_102_444_800_000
"""The year 2100: a watermark that counts as none."""


def _key(position: Predecessor | Position | None) -> tuple[int, str, str] | None:
    """Return what makes two positions equal; the models themselves compare ten times slower."""
    return None if position is None else (position.checkpoint, position.incarnation, position.digest)


@dataclass
class Life:
    """One incarnation."""

    name: str
    base: Position | None
    parts: dict[int, dict[str, Envelope]] = field(default_factory=dict)
    """By checkpoint, its events that count, in log order."""
    completions: dict[int, CheckpointCompleted] = field(default_factory=dict)
    impossible: set[int] = field(default_factory=set)
    """Checkpoints whose completion can never be sealed."""


@dataclass
class Place:
    """One region."""

    life: Life | None = None
    live: bool = False
    run: str = ""
    """Id of the newest accepted registration."""
    registered: int = -1
    """Offset of that registration."""
    at: Position | None = None
    watermark: int | None = None
    fallbacks: int = 0
    idle: bool = False
    rests: bool = False
    """True: it is idle whenever nothing of it is pending."""
    begun: int = -1
    """The highest checkpoint that the log says has begun in the run."""
    closed: bool = False
    final: int | None = None
    removed: bool = False
    stalled: bool = False

    def sealed(self) -> list[Position]:
        """Return the sealed positions after the decided one."""
        found: list[Position] = []
        if self.life is None or not self.life.completions:
            return found
        # The first completion that names a predecessor counts.
        after: dict[tuple[int, str, str] | None, int] = {}
        for number, body in self.life.completions.items():
            if number not in self.life.impossible and not self.is_past(number):
                after.setdefault(_key(body.predecessor), number)
        tail = self.at
        while (following := after.get(_key(tail))) is not None and self.is_whole(following):
            tail = Position(
                incarnation=self.life.name,
                checkpoint=following,
                digest=self.life.completions[following].source_digest,
            )
            found.append(tail)
        return found

    def tables_at(self, number: int) -> set[str]:
        """Return the further tables of which a whole checkpoint has files."""
        if self.life is None:
            return set()
        parts = self.life.parts.get(number, {})
        return {parts[event].table for event in self.life.completions[number].events} - {""}

    def advance(self, to: Position) -> None:
        """Move to a sealed position, with the watermarks on the way."""
        for at in self.sealed():
            mark = self.life.completions[at.checkpoint].watermark if self.life is not None else None
            if self.at is None or self.at.incarnation != at.incarnation:
                self.watermark = None
            if mark is not None and mark < FAR:
                self.watermark = mark if self.watermark is None else max(mark, self.watermark)
            self.at = at
            if at == to:
                return

    def is_past(self, number: int) -> bool:
        """True if the decided position includes a checkpoint of this incarnation."""
        own = self.at is not None and self.life is not None and self.at.incarnation == self.life.name
        return own and self.at is not None and number <= self.at.checkpoint

    def is_whole(self, number: int) -> bool:
        """True if all named events are there, one attempt for each writer."""
        if self.life is None:
            return False
        parts = self.life.parts.get(number, {})
        named = [parts.get(event) for event in self.life.completions[number].events]
        if any(each is None for each in named):
            return False
        pairs = {(each.writer, each.attempt) for each in named if each is not None}
        return len({writer for writer, _ in pairs}) == len(pairs)

    def has_two_attempts(self, number: int) -> bool:
        """True if everything named is there, and not whole."""
        if self.life is None:
            return False
        parts = self.life.parts.get(number, {})
        there = all(event in parts for event in self.life.completions[number].events)
        return there and not self.is_whole(number)

    def has_work(self) -> bool:
        """True if anything is pending."""
        if self.life is None:
            return False
        return any(not self.is_past(number) for number in (*self.life.parts, *self.life.completions))

    @property
    def is_idle(self) -> bool:
        return self.live and self.idle and not self.has_work() and (not self.closed or self.gone)

    @property
    def gone(self) -> bool:
        return self.closed and (self.final is None or self.is_past(self.final))


@dataclass
class Known:
    """The registry's entry of a further table."""

    identity: str
    decision: int = 0
    snapshot: SnapshotRef | None = None


@dataclass
class Savepoint:
    """A savepoint or drain."""

    name: str
    drain: bool
    targets: dict[str, tuple[str, int]]
    awaited: set[str]
    kept: set[tuple[str, tuple[str, int]]] = field(default_factory=set)
    """Targets that were committed."""


@dataclass
class Verdict:
    """A valid decision."""

    body: CutDecided
    moves: dict[str, Position]
    before: dict[str, Position | None]
    fallbacks: list[str]
    parts: list[str]
    """Ids of the events that it includes, in commit order."""
    full: bool
    watermark: int | None
    order: tuple[int, str] | None = None
    """Offset and region of the first order to revert it."""
    outcome: str = ""
    """"", committed, reverted."""
    tables: dict[str, str] = field(default_factory=dict)
    """By name, the identity of each further table that it touches."""
    parts_of: dict[str, list[str]] = field(default_factory=dict)
    """By name of a table, the anchor's empty, those of its events that are for it."""
    let_go: set[str] = field(default_factory=set)
    """Names that some policy since the decision has left out."""
    lasting: set[str] = field(default_factory=set)
    """Names that every policy since the decision has."""
    has: set[str] = field(default_factory=set)
    """Names that the outcome states as having it."""
    replaced: tuple[dict[str, tuple[int | None, int]], int | None, bool, Any] = ({}, None, False, None)
    """Watermarks and counters before it, the stream's watermark, and the assignment before."""
