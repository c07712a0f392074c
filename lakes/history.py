"""The answer to whether a table's history holds a decision: all committers give it by the same rules.

A history is walked from a snapshot to its parent, as the adapter finds it. The positions of its snapshots
rise; there may be gaps between them.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import count
from typing import NamedTuple

from sluicegate.events.models import SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.port import Absent, Ahead, Answer, Found, OtherDigest, Unproven


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


class Marker(NamedTuple):
    """The table's own mark of the newest commit of one commit user.

    Each of our commits writes it atomically with its snapshot. It survives the expiry of that snapshot. In
    some formats it survives a rollback, too. So it counts only if its snapshot is in the history or has
    expired.

    An adapter reads it together with the head. It gives none that another product could have set or replaced,
    and none that was written to another table.
    """

    decision: int
    digest: str
    snapshot: SnapshotRef
    """The snapshot of the commit."""
    certain: bool = False
    """True if the head shows that it was made on that snapshot, also where the snapshot has expired.

    So it is where the marker is part of the head's state, and where the head lists what the snapshot added.
    """


class Newest(NamedTuple):
    """The highest decisions of one commit user in a history.

    They need not be the newest: a foreign job that commits as the same user may have put a lower id on top.
    """

    decision: int | None
    """Made by anybody; None if there is none."""
    made: int | None
    """Made by this product; 0 if the whole history has none, None if the rest of it has expired."""
    by_marker: bool = False
    """True if only the table's marker shows them: their snapshot has expired."""
    digest: str = ""
    """Of `made`; empty if there is none."""


def newest_decisions(
    head: PastSnapshot | None,
    parent: ParentOf,
    at: SnapshotAt,
    commit_user: str,
    marker: Marker | None = None,
) -> Newest:
    """Return the highest decisions of this user in the history that can be read, or that the marker shows."""
    if head is None:
        return Newest(None, 0)
    line = _Ancestors(head, parent)
    ours = [past for past in line.back_to(None) if past.commit_user == commit_user]
    newest = max((past.decision for past in ours), default=None)
    by_us = max((past for past in ours if past.digest), key=lambda past: past.decision, default=None)
    made, digest = (None, "") if by_us is None else (by_us.decision, by_us.digest)
    if made is None and line.end is NoParent.FIRST:
        made = 0
    standing = _standing(line, at, commit_user, marker) if marker is not None else _Standing.UNKNOWN
    if marker is None or standing not in (_Standing.ANCESTOR, _Standing.EXPIRED):
        return Newest(newest, made, digest=digest)
    if made is None or made < marker.decision:
        digest = marker.digest
    only = standing is _Standing.EXPIRED and (made is None or made < marker.decision)
    return Newest(_highest(newest, marker.decision), _highest(made, marker.decision), only, digest)


def read_history(identity: str, head: PastSnapshot | None, parent: ParentOf) -> TableHistory:
    """Read the history back from its head."""
    if head is None:
        return TableHistory(identity, (), whole=True)
    line = _Ancestors(head, parent)
    commits = tuple(line.back_to(None))
    return TableHistory(identity, commits, line.end is NoParent.FIRST)


class _Ancestors:
    """A head and the snapshots that it was made on, each read once, the newest first."""

    def __init__(self, head: PastSnapshot, parent: ParentOf) -> None:
        self.end: NoParent | None = None
        """Reason for which no snapshot below the last one can be read; None: nobody has tried yet."""
        self._read = [head]
        self._parent = parent

    @property
    def last(self) -> PastSnapshot:
        """The oldest one that was read, without a gap from the head."""
        return self._read[-1]

    def back_to(self, position: int | None) -> Iterator[PastSnapshot]:
        """Yield them, down to the first one that is not above the position; None: as far as possible."""
        for number in count():
            if number == len(self._read) and not self._read_on():
                return
            past = self._read[number]
            yield past
            if position is not None and past.ref.id <= position:
                return

    def _read_on(self) -> bool:
        if self.end is None:
            found = self._parent(self.last)
            if isinstance(found, PastSnapshot):
                self._read.append(found)
                return True
            self.end = found
        return False


class _Standing(Enum):
    """Relation of the marker's snapshot to the history."""

    ANCESTOR = "the head was made on it"
    EXPIRED = "it is not there any more, and the rest of the history is newer"
    ROLLED_BACK = "it is in no place where the history could have it"
    UNKNOWN = "the history cannot be read so far, or the marker contradicts its snapshot"


def _standing(line: _Ancestors, at: SnapshotAt, commit_user: str, marker: Marker) -> _Standing:
    """Return the standing of a marker.

    Where history has expired, nothing shows a rollback before that. It shows while one snapshot of that time
    is there: positions rise, so one below the marker's in the history means that the marker's is not.
    """
    ref = marker.snapshot
    past = line.last
    for past in line.back_to(ref.id):
        if past.ref == ref:
            made = (past.commit_user, past.decision, past.digest)
            right = made == (commit_user, marker.decision, marker.digest)
            return _Standing.ANCESTOR if right else _Standing.UNKNOWN
    if past.ref.id <= ref.id or line.end is NoParent.FIRST:
        return _Standing.ROLLED_BACK
    there = at(ref.id)
    if there is None:
        return _Standing.ANCESTOR if marker.certain else _Standing.EXPIRED
    if there.ref != ref:
        return _Standing.ROLLED_BACK
    return _Standing.ANCESTOR if marker.certain else _Standing.UNKNOWN


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


def _walk(line: _Ancestors, commit_user: str, asked: tuple[int, str], recorded: SnapshotRef | None) -> _Walk:
    """Walk to the decision, or down to the position of the recorded snapshot.

    A lower id on the way may be a foreign job's, so it ends nothing.
    """
    decision, _ = asked
    highest: int | None = None
    made: tuple[int, str] | None = None
    other: OtherDigest | None = None
    for past in line.back_to(recorded.id if recorded is not None else None):
        # A foreign id of the recorded snapshot proves nothing: an operator may have named that one.
        if past.commit_user != commit_user or not (past.digest or past.ref != recorded):
            continue
        if (past.decision, past.digest) == asked:
            return _Walk(Found(past.ref), None, None, past.ref, None)
        if past.decision == decision and (other is None or past.digest):
            # Ours is published only where the id is absent, so a foreign one of that id stands above it.
            other = OtherDigest(past.digest)
        highest = _highest(highest, past.decision)
        if past.digest and (made is None or past.decision > made[0]):
            made = (past.decision, past.digest)
    return _Walk(other, highest, made, line.last.ref, line.end)


def _highest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def look_for(
    head: PastSnapshot | None,
    parent: ParentOf,
    at: SnapshotAt,
    commit_user: str,
    asked: tuple[int, str],
    recorded: SnapshotRef | None,
    marker: Marker | None = None,
) -> Answer:
    """Answer whether `asked`, a decision's id and digest, is in the history that ends in `head`.

    Absence is proven if the recorded snapshot is an ancestor of the head, with the same content, and
    everything after it could be read. Without a recorded one, the whole history must be readable. No id in
    the history proves it: a foreign job that commits as the same user may use any.

    The table's marker proves more while its snapshot is in the history: no commit of ours is newer. If that
    snapshot has expired, the marker counts where nothing but expired history is missing. A marker of a
    snapshot that was rolled back proves nothing but that: a recorded head that is an ancestor counts. Nor
    does a marker of an earlier decision that is later than a recorded snapshot that was rolled back: it may
    be of another commit of the same decision.
    """
    if head is None:
        return Absent(None) if recorded is None else _unproven(CauseCode.TABLE_EMPTY, recorded.id)
    line = _Ancestors(head, parent)
    walk = _walk(line, commit_user, asked, recorded)
    if isinstance(walk.answer, Found) or (walk.answer is not None and walk.answer.digest):
        return walk.answer
    if walk.made is not None and walk.made[0] > asked[0]:
        return Ahead(_highest(walk.highest, walk.made[0]), walk.made)
    doubt, proof = _doubt(head.ref, at, walk, asked[0], recorded), None
    if marker is not None and marker.decision < asked[0] and _replaces(marker.snapshot, recorded, doubt):
        marker = None
    if marker is not None and (doubt is not None or marker.decision >= asked[0]):
        standing = _standing(line, at, commit_user, marker)
        if marker.decision > asked[0] and _shows_higher(standing, doubt):
            return Ahead(_highest(walk.highest, marker.decision), (marker.decision, marker.digest))
        doubt = _doubt_with(marker, standing, asked[0], doubt)
        alone = standing is _Standing.EXPIRED and doubt is not None and doubt.expired
        proof = _Proof(marker, alone) if alone or standing is _Standing.ANCESTOR else None
    return _concluded(head.ref, asked, walk, doubt, proof)


def _replaces(made: SnapshotRef, recorded: SnapshotRef | None, doubt: Unproven | None) -> bool:
    """True if a commit may be in the place of a recorded one that was rolled back.

    It is at or after the position of that one, which is no ancestor of the head, and has not expired.
    """
    lost = recorded is not None and doubt is not None and not doubt.expired
    return lost and recorded is not None and made != recorded and made.id >= recorded.id


def _shows_higher(standing: _Standing, doubt: Unproven | None) -> bool:
    """Return True if a marker above the asked decision shows that the table is ahead."""
    return standing is _Standing.ANCESTOR or (doubt is not None and standing is not _Standing.ROLLED_BACK)


class _Proof(NamedTuple):
    """A marker that proves something."""

    marker: Marker
    alone: bool
    """True if nothing else proves it, as its snapshot has expired."""


def _concluded(
    head: SnapshotRef,
    asked: tuple[int, str],
    walk: _Walk,
    doubt: Unproven | None,
    proof: _Proof | None,
) -> Answer:
    """Return the answer that the history and a marker that proves something give together."""
    decision, digest = asked
    if proof is not None and proof.marker.decision == decision:
        found, other = proof.marker.snapshot, proof.marker.digest
        return Found(found, proof.alone) if other == digest else OtherDigest(other)
    if walk.answer is not None:
        return walk.answer
    if walk.highest is not None and walk.highest > decision:
        return Ahead(walk.highest)
    if doubt is None:
        return Absent(head)
    if proof is not None and proof.marker.decision == decision - 1:
        return Absent(head, proof.alone)
    return doubt


def _doubt_with(
    marker: Marker, standing: _Standing, decision: int, doubt: Unproven | None
) -> Unproven | None:
    """Return the doubt, or a graver one where the marker shows that not only history has expired."""
    if doubt is None or not doubt.expired:
        return doubt
    if standing is _Standing.ROLLED_BACK:
        return _unproven(CauseCode.MARKER_ROLLED_BACK, marker.snapshot.id)
    lacking = marker.decision < decision - 1 and standing is not _Standing.UNKNOWN
    return _lacking(marker.decision, decision) if lacking else doubt


def _lacking(newest: int, decision: int) -> Unproven:
    """Return the doubt where a decision between the newest of ours and the asked one is missing."""
    return Unproven(cause=Cause(code=CauseCode.DECISION_LACKING, number=newest, other=decision - 1))


def _doubt(
    head: SnapshotRef, at: SnapshotAt, walk: _Walk, decision: int, recorded: SnapshotRef | None
) -> Unproven | None:
    """Say why not having met the decision is no proof of its absence; None if it is one."""
    # Decisions are made in order, so the one before the asked one must be there.
    newest = walk.made[0] if walk.made is not None and walk.made[0] < decision - 1 else None
    if recorded is None:
        if newest is not None:
            return _lacking(newest, decision)
        whole = walk.end is NoParent.FIRST
        return None if whole else _unproven(CauseCode.HISTORY_EXPIRED, walk.last.id, expired=True)
    if walk.last == recorded:
        return None
    if recorded.id > head.id:
        return Unproven(cause=Cause(code=CauseCode.HEAD_OLDER, snapshot=head.id, expected=recorded.id))
    there = at(recorded.id)
    if walk.end is NoParent.UNREADABLE and there is None:
        return _unproven(CauseCode.RECORDED_EXPIRED, recorded.id, expired=newest is None)
    if walk.end is NoParent.UNREADABLE and there is not None and there.ref == recorded:
        return _unproven(CauseCode.SNAPSHOT_MISSING, walk.last.id)
    # The walk has passed its position, or has read the whole history.
    return _unproven(CauseCode.RECORDED_DIFFERS, recorded.id)


def _unproven(code: CauseCode, snapshot: int, *, expired: bool = False) -> Unproven:
    return Unproven(expired=expired, cause=Cause(code=code, snapshot=snapshot))


# Evidence: a further table of a stream, before a decision that touches it is published there.
#
# The anchor of the stream proves that the decision is absent, so no history has to be whole here. What is
# left is to find the table's own contradictions: it has the decision already, or a commit of ours that the
# log does not know, or it lacks the newest one that the log knows.


class Evidence(NamedTuple):
    """The part of a decision that a further table shows."""

    has: bool
    """True if it has the decision, so that it takes no part in the publication."""
    snapshot: SnapshotRef | None = None
    """The snapshot of the decision; None if that has expired."""
    contradiction: Cause | None = None
    """Reason for which nothing may be published; None if it may."""
    shown: bool = False
    """True if the history that can be read shows it, and not a mark or an expiry alone."""


def evidence_of(
    head: PastSnapshot | None,
    parent: ParentOf,
    at: SnapshotAt,
    commit_user: str,
    asked: tuple[int, str],
    newest: TableVersion,
    marker: Marker | None = None,
) -> Evidence:
    """Return what a table shows of `asked`, a decision's id and digest.

    `newest`: the newest decision before it that touched the table, as the log has it. The history that can be
    read counts before the mark: a mark survives a rollback. Where both show no commit of ours, all of them
    have expired, or the log knows of none.
    """
    if head is None:
        return Evidence(False, contradiction=_unexpected(0, newest))
    line = _Ancestors(head, parent)
    ours = [each for each in line.back_to(None) if each.commit_user == commit_user and each.digest]
    for each in ours:
        if (each.decision, each.digest) == asked:
            return Evidence(True, each.ref, shown=True)
    if ours:
        found = _unexpected(max(each.decision for each in ours), newest)
        return Evidence(False, contradiction=found, shown=True)
    standing = _standing(line, at, commit_user, marker) if marker is not None else _Standing.UNKNOWN
    if marker is not None and standing in (_Standing.ANCESTOR, _Standing.EXPIRED):
        if (marker.decision, marker.digest) == asked:
            return Evidence(True)
        return Evidence(False, contradiction=_unexpected(marker.decision, newest))
    known = newest.snapshot
    if known is not None and known in [each.ref for each in line.back_to(known.id)]:
        # An operator has named a head of another writer, and no commit of ours is newer.
        return Evidence(False, shown=True)
    # What is listed is no ancestor, and what is not older than the history that was read is not in it.
    listed = known is not None and (there := at(known.id)) is not None and there.ref == known
    lost = listed or line.end is NoParent.FIRST or (known is not None and known.id >= line.last.ref.id)
    return Evidence(False, contradiction=_unexpected(0, newest) if lost else None)


def _unexpected(found: int, newest: TableVersion) -> Cause | None:
    """Return the contradiction if the newest commit of ours in the table is another one than in the log."""
    if found == newest.decision:
        return None
    return Cause(code=CauseCode.OTHER_NEWEST, number=found, other=newest.decision)
