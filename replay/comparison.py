"""What a log decided against what a table's history holds: by ids and digests, never by paths.

Compaction rewrites files, and expiry forgets snapshots; neither changes what a snapshot that is still there
says about the commit that made it.
"""

from collections import defaultdict
from enum import StrEnum
from typing import Final, NamedTuple

from sluicegate.coordinator.core.decisions import void_digest
from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.lakes.port import SnapshotRef
from sluicegate.replay.course import Settled


class Standing(StrEnum):
    """How a decision stands in the table."""

    THERE = "there"
    EXPIRED = "expired"
    """A later commit of the stream is the oldest that can be read. They are made in order, so it was there.

    Its digest, and whether it was there only once, cannot be told any more.
    """
    UNKNOWN = "unknown"
    """No commit of the stream can be read, and the history has expired: nothing can be told."""
    MISSING = "missing"
    """Absent: the history is whole, or an earlier commit of the stream is there. A repair proves it again."""
    PENDING = "pending"
    """Not there, at the end of the log of a stream that a coordinator is at work on."""
    OTHER = "other content"
    """Its id is there with another digest."""
    DOUBLED = "doubled"


WRONG: Final = frozenset({Standing.MISSING, Standing.OTHER, Standing.DOUBLED})


class Finding(NamedTuple):
    """One decision, or one commit that no decision made."""

    decision: int
    standing: Standing
    snapshots: tuple[int, ...]
    digest: str
    settled: Settled | None = None


class Foreign(NamedTuple):
    """A commit in the stream's name that is no decision of its log."""

    decision: int
    snapshot: int
    digest: str


def digests_of(settled: Settled) -> tuple[str, ...]:
    """What the table may hold for a decision; the one that is expected comes first."""
    decision = settled.decision
    void = void_digest(decision.digest)
    if settled.voided:
        return (void,)
    ordered = settled.open and decision.void is not None
    return (decision.digest, void) if ordered else (decision.digest,)


class Comparison:
    """One reading of a table's history, asked for decision after decision."""

    def __init__(self, history: TableHistory, commit_user: str) -> None:
        self.history = history
        self._ours: dict[int, list[PastSnapshot]] = defaultdict(list)
        self._others: dict[str, list[PastSnapshot]] = defaultdict(list)
        for past in reversed(history.commits):
            if past.commit_user == commit_user:
                self._ours[past.decision].append(past)
            elif past.digest:
                self._others[past.digest].append(past)
        made = (number for number, held in self._ours.items() if any(past.digest for past in held))
        # A commit without a digest is a foreign job's, whose ids prove nothing.
        self.oldest = min(made, default=None)
        self.newest = max(self._ours, default=None)
        self._asked: set[int] = set()

    def judge(self, settled: Settled) -> Finding:
        """How a decision stands."""
        number, digests = settled.decision.id, digests_of(settled)
        self._asked.add(number)
        held = self._ours.get(number, [])
        matching = [past for past in held if past.digest in digests]
        elsewhere = [past for digest in digests for past in self._others.get(digest, [])]
        found = tuple(past.ref.id for past in (*held, *elsewhere))
        if len(matching) < len(held):
            other = next(past.digest for past in held if past.digest not in digests)
            return Finding(number, Standing.OTHER, found, other, settled)
        if len(found) > 1:
            return Finding(number, Standing.DOUBLED, found, digests[0], settled)
        if found:
            return Finding(number, Standing.THERE, found, digests[0], settled)
        return Finding(number, self._absent(number), (), digests[0], settled)

    def _absent(self, number: int) -> Standing:
        # The history has no gap, and our own ids rise along it.
        if self.history.whole or (self.oldest is not None and self.oldest < number):
            return Standing.MISSING
        return Standing.UNKNOWN if self.oldest is None else Standing.EXPIRED

    def ref(self, number: int) -> SnapshotRef:
        """The identity of a snapshot of the history."""
        return next(past.ref for past in self.history.commits if past.ref.id == number)

    def lost(self, last: int) -> list[Finding]:
        """Decisions up to an id that are provably absent, though nothing else is known of them."""
        return [
            Finding(number, Standing.MISSING, (), "")
            for number in range(1, last + 1)
            if number not in self._ours and self._absent(number) is Standing.MISSING
        ]

    def foreign(self, first: int, last: int | None) -> list[Foreign]:
        """Commits in the stream's name that were asked for by no decision, from an id to another.

        `last` None: to the newest.
        """
        return [
            Foreign(number, past.ref.id, past.digest)
            for number, held in sorted(self._ours.items())
            if number not in self._asked and number >= first and (last is None or number <= last)
            for past in held
        ]
