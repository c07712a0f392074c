"""The answer to whether a table's history holds a decision: all committers give it by the same rules.

A history is walked from a snapshot to its parent, as the adapter finds it. The positions of its snapshots
rise; there may be gaps between them.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from sluicegate.events.causes import Cause, CauseCode
from sluicegate.lakes.port import Absent, Ahead, Answer, Found, OtherDigest, SnapshotRef, Unproven


class PastSnapshot(NamedTuple):
    """A snapshot, and the commit that made it."""

    ref: SnapshotRef
    commit_user: str
    decision: int
    digest: str
    """Empty if the snapshot was not made by this product."""


class TableHistory(NamedTuple):
    """The part of a table's history that can still be read."""

    identity: str
    """Changes when the table is dropped and made again."""
    commits: tuple[PastSnapshot, ...]
    """The newest first, without a gap from the head on; all commit users."""
    whole: bool
    """True if nothing has expired: the history goes back to the table's first snapshot."""


class NoParent(Enum):
    """Reason for which no parent of a snapshot can be read."""

    FIRST = "the table's first snapshot has none"
    UNREADABLE = "it has expired, or is missing"


ParentOf = Callable[[PastSnapshot], PastSnapshot | NoParent]
"""Reads the snapshot that one was made on. FIRST only if the table never had one before it."""
SnapshotAt = Callable[[int], PastSnapshot | None]
"""Reads the snapshot at a position, in the history or beside it; None if none is there (any more)."""


class Newest(NamedTuple):
    """The highest decisions of one commit user in a history.

    They need not be the newest: a foreign job that commits as the same user may have put a lower id on top.
    """

    decision: int | None
    """Made by anybody; None if there is none."""
    made: int | None
    """Made by this product; 0 if the whole history has none, None if the rest of it has expired."""


def newest_decisions(head: PastSnapshot | None, parent: ParentOf, commit_user: str) -> Newest:
    """Return the highest decisions of this user in the history that can be read."""
    commits, end = _read(head, parent)
    ours = [past for past in commits if past.commit_user == commit_user]
    made = max((past.decision for past in ours if past.digest), default=None)
    if made is None and end is NoParent.FIRST:
        made = 0
    return Newest(max((past.decision for past in ours), default=None), made)


def read_history(identity: str, head: PastSnapshot | None, parent: ParentOf) -> TableHistory:
    """Read the history back from its head."""
    commits, end = _read(head, parent)
    return TableHistory(identity, tuple(commits), end is NoParent.FIRST)


def _read(head: PastSnapshot | None, parent: ParentOf) -> tuple[list[PastSnapshot], NoParent]:
    commits: list[PastSnapshot] = []
    past: PastSnapshot | NoParent = head if head is not None else NoParent.FIRST
    while isinstance(past, PastSnapshot):
        commits.append(past)
        past = parent(past)
    return commits, past


class _Walk(NamedTuple):
    """The end of a walk from the head, and the decisions of this user that it met."""

    answer: Found | OtherDigest | None
    highest: int | None
    """The highest decision that was met."""
    made: tuple[int, str] | None
    """The highest one that was met and made by this product, with its digest."""
    last: SnapshotRef
    """The oldest snapshot that was read, without a gap from the head."""
    end: NoParent | None
    """Reason for the end of the walk; None if it reached the position of the recorded snapshot."""


def _walk(
    head: PastSnapshot,
    parent: ParentOf,
    commit_user: str,
    asked: tuple[int, str],
    recorded: SnapshotRef | None,
) -> _Walk:
    """Walk to the decision, or down to the position of the recorded snapshot.

    A lower id on the way may be a foreign job's, so it ends nothing.
    """
    decision, _ = asked
    highest: int | None = None
    made: tuple[int, str] | None = None
    other: OtherDigest | None = None
    end: NoParent | None = None
    past = head
    while True:
        if past.commit_user == commit_user and (past.digest or past.ref != recorded):
            # A foreign id of the recorded snapshot proves nothing: an operator may have named that one.
            if (past.decision, past.digest) == asked:
                return _Walk(Found(past.ref), None, None, past.ref, None)
            if past.decision == decision and (other is None or past.digest):
                # Ours is published only where the id is absent, so a foreign one of that id stands above it.
                other = OtherDigest(past.digest)
            highest = _highest(highest, past.decision)
            if past.digest and (made is None or past.decision > made[0]):
                made = (past.decision, past.digest)
        if recorded is not None and past.ref.id <= recorded.id:
            break
        before = parent(past)
        if isinstance(before, NoParent):
            end = before
            break
        past = before
    if other == OtherDigest("") and made is not None and made[0] > decision:
        # Ours has expired: a later one is there, and decisions are made in order.
        other = None
    return _Walk(other, highest, made, past.ref, end)


def _highest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def look_for(
    head: PastSnapshot | None,
    parent: ParentOf,
    at: SnapshotAt,
    commit_user: str,
    asked: tuple[int, str],
    recorded: SnapshotRef | None,
) -> Answer:
    """Answer whether `asked`, a decision's id and digest, is in the history that ends in `head`.

    Absence is proven only if the recorded snapshot is an ancestor of the head, with the same content, and
    everything after it could be read. Without a recorded one, the whole history must be readable. No id
    proves it: a foreign job that commits as the same user may use any.
    """
    if head is None:
        if recorded is None:
            return Absent(None)
        return _unproven(CauseCode.TABLE_EMPTY, recorded.id)
    walk = _walk(head, parent, commit_user, asked, recorded)
    if walk.answer is not None:
        return walk.answer
    if walk.highest is not None and walk.highest > asked[0]:
        made = walk.made if walk.made is not None and walk.made[0] > asked[0] else None
        return Ahead(walk.highest, made)
    lacks = walk.made is not None and walk.made[0] < asked[0] - 1
    if recorded is None:
        doubt = _doubt_of_all(walk, asked[0]) if lacks or walk.end is not NoParent.FIRST else None
    else:
        doubt = _doubt(head.ref, at, walk, recorded, lacks=lacks)
    return Absent(head.ref) if doubt is None else doubt


def _doubt_of_all(walk: _Walk, decision: int) -> Unproven:
    """Say why the history that was read, down to its end, does not prove an absence."""
    if walk.made is not None and walk.made[0] < decision - 1:
        lacking = Cause(code=CauseCode.DECISION_LACKING, number=walk.made[0], other=decision - 1)
        return Unproven(cause=lacking)
    return _unproven(CauseCode.HISTORY_EXPIRED, walk.last.id, expired=True)


def _doubt(
    head: SnapshotRef, at: SnapshotAt, walk: _Walk, recorded: SnapshotRef, *, lacks: bool
) -> Unproven | None:
    """Say why not having met the decision is no proof of its absence; None if it is one.

    `lacks`: decisions are missing between the newest that was met and the asked one.
    """
    if walk.last == recorded:
        return None
    if recorded.id > head.id:
        return Unproven(cause=Cause(code=CauseCode.HEAD_OLDER, snapshot=head.id, expected=recorded.id))
    there = at(recorded.id)
    if walk.end is NoParent.UNREADABLE and there is None:
        return _unproven(CauseCode.RECORDED_EXPIRED, recorded.id, expired=not lacks)
    if walk.end is NoParent.UNREADABLE and there is not None and there.ref == recorded:
        return _unproven(CauseCode.SNAPSHOT_MISSING, walk.last.id)
    # The walk has passed its position, or has read the whole history.
    return _unproven(CauseCode.RECORDED_DIFFERS, recorded.id)


def _unproven(code: CauseCode, snapshot: int, *, expired: bool = False) -> Unproven:
    return Unproven(expired=expired, cause=Cause(code=code, snapshot=snapshot))
