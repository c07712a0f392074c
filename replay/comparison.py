"""Comparison of a log's decisions with a table's history, by ids and digests, never by file paths.

Compaction rewrites files, and expiry removes snapshots. Neither changes the commit properties of a snapshot
that still exists.
"""

from collections import defaultdict
from enum import StrEnum
from typing import Final, NamedTuple

from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.lakes.port import SnapshotRef
from sluicegate.replay.decisions import LoggedDecision


class CommitStatus(StrEnum):
    """State of a decision in the table."""

    THERE = "there"
    EXPIRED = "expired"
    """The oldest readable commit of the stream is a later one. Commits are ordered, so this one was there.

    Its digest cannot be checked any more, nor that it was committed only once.
    """
    UNKNOWN = "unknown"
    """No commit of the stream is readable, and the history has expired: nothing can be proven."""
    MISSING = "missing"
    """The log has its outcome, and it is absent: the history is complete, or has an earlier commit.

    A repair proves it again.
    """
    UNRESOLVED = "unresolved"
    """Absent, and the log has no outcome of it either: the coordinator publishes it."""
    OTHER = "other content"
    """Its id is in the table with another digest."""
    DOUBLED = "doubled"


WRONG: Final = frozenset({CommitStatus.MISSING, CommitStatus.OTHER, CommitStatus.DOUBLED})


class Finding(NamedTuple):
    """One decision, and its state in the table."""

    decision: int
    status: CommitStatus
    snapshots: tuple[SnapshotRef, ...]
    digest: str
    logged: LoggedDecision | None = None
    """None: the log begins after it."""


class Foreign(NamedTuple):
    """A commit under the stream's commit user that is no decision of its log."""

    decision: int
    snapshot: SnapshotRef
    digest: str


class Comparison:
    """One reading of a table's history, queried decision by decision."""

    def __init__(self, history: TableHistory, commit_user: str) -> None:
        self.history = history
        self._ours: dict[int, list[PastSnapshot]] = defaultdict(list)
        self._others: dict[str, list[PastSnapshot]] = defaultdict(list)
        for past in reversed(history.commits):
            if past.commit_user == commit_user:
                self._ours[past.decision].append(past)
            elif past.digest:
                self._others[past.digest].append(past)
        # Decisions begin with 1. A commit with a lower id is foreign, and orders nothing.
        ours = {number: held for number, held in self._ours.items() if number > 0}
        made = [number for number, held in ours.items() if any(past.digest for past in held)]
        # A commit without a digest was made by another job, so its id proves nothing.
        self.oldest = min(made, default=None)
        self.newest = max(ours, default=None)
        self._asked: set[int] = set()

    def judge(self, logged: LoggedDecision) -> Finding:
        """Find the state of a decision in the table."""
        number, digests = logged.decision.id, logged.digests
        self._asked.add(number)
        held = self._ours.get(number, [])
        matching = [past for past in held if past.digest in digests]
        elsewhere = [past for digest in digests for past in self._others.get(digest, [])]
        found = tuple(past.ref for past in (*held, *elsewhere))
        if len(matching) < len(held):
            other = next(past.digest for past in held if past.digest not in digests)
            return Finding(number, CommitStatus.OTHER, found, other, logged)
        if len(found) > 1:
            return Finding(number, CommitStatus.DOUBLED, found, digests[0], logged)
        if found:
            return Finding(number, CommitStatus.THERE, found, digests[0], logged)
        if logged.outcome is None:
            return Finding(number, CommitStatus.UNRESOLVED, (), digests[0], logged)
        return Finding(number, self._absent(number), (), digests[0], logged)

    def _absent(self, number: int) -> CommitStatus:
        # The history has no gap, and ids of one commit user only rise along it.
        if self.history.whole or (self.oldest is not None and self.oldest < number):
            return CommitStatus.MISSING
        return CommitStatus.UNKNOWN if self.oldest is None else CommitStatus.EXPIRED

    def lost(self, last: int) -> list[Finding]:
        """Return decisions up to an id that are provably absent, although only their ids are known."""
        return [
            Finding(number, CommitStatus.MISSING, (), "")
            for number in range(1, last + 1)
            if number not in self._ours and self._absent(number) is CommitStatus.MISSING
        ]

    def foreign(self, first: int, last: int | None) -> list[Foreign]:
        """Return commits under the stream's commit user that were never judged, from `first` to `last`.

        An id below 1 is of no decision, so it is in every range.
        `last` None: up to the newest commit.
        """
        return [
            Foreign(number, past.ref, past.digest)
            for number, held in sorted(self._ours.items())
            if number not in self._asked
            and (number >= first or number < 1)
            and (last is None or number <= last)
            for past in held
        ]
