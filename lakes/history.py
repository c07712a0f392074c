"""Whether a table's history holds a decision: the one answer that all committers give by the same rules."""

from collections.abc import Callable
from typing import NamedTuple

from sluicegate.lakes.port import Absent, Ahead, Answer, Found, OtherDigest, SnapshotRef, Unproven


class PastSnapshot(NamedTuple):
    """What a snapshot says about the commit that made it."""

    ref: SnapshotRef
    commit_user: str
    decision: int
    digest: str
    """Empty if the snapshot was not made by this product."""


class TableHistory(NamedTuple):
    """What can still be read of a table's history."""

    identity: str
    """Changes when the table is dropped and made again."""
    commits: tuple[PastSnapshot, ...]
    """The newest first, without a gap from the head on; all commit users."""
    whole: bool
    """Whether nothing has expired: the history goes back to the table's first snapshot."""


SnapshotAt = Callable[[int], PastSnapshot | None]
"""Reads the snapshot of that number; None if it is not, or no longer, there."""
LinkedAt = Callable[[int], bool]
"""Whether the snapshot of that number is, by its content, the one that the next number was made on."""


def newest_decision(
    head: PastSnapshot | None, at: SnapshotAt, linked: LinkedAt, commit_user: str
) -> int | None:
    """The highest decision of this user in the history that can be read.

    It need not be the newest one: a foreign job that commits as the same user may have put a lower id on top.
    """
    if head is None:
        return None
    found: dict[int, int] = {}
    past: PastSnapshot | None = head
    last = head.ref
    while past is not None:
        last = past.ref
        if past.commit_user == commit_user:
            found[last.id] = past.decision
        past = at(last.id - 1)
    if not found:
        return None
    oldest = _oldest(head.ref, at, linked, last, None)
    return max((decision for number, decision in found.items() if number >= oldest), default=None)


def read_history(identity: str, head: PastSnapshot | None, at: SnapshotAt, linked: LinkedAt) -> TableHistory:
    """Read the history back from its head, without the strays below it."""
    commits: list[PastSnapshot] = []
    past = head
    while past is not None:
        commits.append(past)
        past = at(past.ref.id - 1)
    if head is None:
        return TableHistory(identity, (), True)
    oldest = _oldest(head.ref, at, linked, commits[-1].ref, None)
    whole = oldest == commits[-1].ref.id == 1
    return TableHistory(identity, tuple(each for each in commits if each.ref.id >= oldest), whole)


class _Walk(NamedTuple):
    """Where a walk from the head ended, and which decisions of this user it met on the way."""

    answer: Found | OtherDigest | None
    highest: int | None
    """The highest decision that was met."""
    made: tuple[int, str] | None
    """The highest one that was met and made by this product, with its digest."""
    last: SnapshotRef
    """The oldest snapshot that was read, without a gap from the head."""


def _walk(head: PastSnapshot, at: SnapshotAt, commit_user: str, asked: tuple[int, str], stop: int) -> _Walk:
    """Walk to the decision or to `stop`: a lower id on the way may be a foreign job's, so it ends nothing."""
    decision, _ = asked
    highest: int | None = None
    made: tuple[int, str] | None = None
    other: OtherDigest | None = None
    past: PastSnapshot | None = head
    last = head.ref
    while past is not None:
        last = past.ref
        if past.commit_user == commit_user:
            if (past.decision, past.digest) == asked:
                return _Walk(Found(last), None, None, last)
            if past.decision == decision and (other is None or past.digest):
                # Ours is published only where the id is absent, so a foreign one of that id stands above it.
                other = OtherDigest(past.digest)
            highest = _highest(highest, past.decision)
            if past.digest and (made is None or past.decision > made[0]):
                made = (past.decision, past.digest)
        past = at(last.id - 1) if last.id > max(stop, 1) else None
    if other == OtherDigest("") and made is not None and made[0] > decision:
        # Ours has expired: a later one is there, and decisions are made in order.
        other = None
    return _Walk(other, highest, made, last)


def _highest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def look_for(
    head: PastSnapshot | None,
    at: SnapshotAt,
    linked: LinkedAt,
    commit_user: str,
    asked: tuple[int, str],
    recorded: SnapshotRef | None,
) -> Answer:
    """Answer whether `asked`, a decision's id and digest, is in the history that ends in `head`.

    A snapshot that a process put after it stood still, where others had expired, stands right below the
    history and is in none. Such strays are passed over: they hold nothing that a reader sees.

    Absence is proven only if the recorded snapshot is still there with the same content, and everything
    after it could be read. No id proves it: a foreign job that commits as the same user may use any.
    """
    if head is None:
        if recorded is None:
            return Absent(None)
        return Unproven(f"the table has no snapshots, but snapshot {recorded.id} was recorded: rolled back?")
    stop = recorded.id if recorded is not None else 1
    walk = _walk(head, at, commit_user, asked, stop)
    oldest = _oldest(head.ref, at, linked, walk.last, recorded)
    stray = walk.last if oldest > walk.last.id else None
    if stray is not None:
        at = _from(oldest, at)
        walk = _walk(head, at, commit_user, asked, stop)
    if walk.answer is not None:
        return walk.answer
    if walk.highest is not None and walk.highest > asked[0]:
        made = walk.made if walk.made is not None and walk.made[0] > asked[0] else None
        return Ahead(walk.highest, made)
    doubt = _doubt(head.ref, at, walk, asked[0], recorded)
    if doubt is not None and stray is not None:
        text = f"snapshot {stray.id} is there, but {oldest} was not made on it: it was put too late to count"
        return Unproven(f"{doubt.reason}; {text}", expired=doubt.expired)
    return Absent(head.ref) if doubt is None else doubt


def _oldest(
    head: SnapshotRef, at: SnapshotAt, linked: LinkedAt, last: SnapshotRef, recorded: SnapshotRef | None
) -> int:
    """The number, from `last` on, where the history begins that can be read without a gap.

    History expires from its oldest snapshot on, so strays are below all of it: what stands above a snapshot
    of the history is of the history too. One that was recorded, or that the next was made on, is.
    """
    if last in (head, recorded) or (recorded is not None and _ref(at(recorded.id)) == recorded):
        return last.id
    return next((number for number in range(last.id, head.id) if linked(number)), head.id)


def _from(oldest: int, at: SnapshotAt) -> SnapshotAt:
    return lambda number: at(number) if number >= oldest else None


def _doubt(
    head: SnapshotRef, at: SnapshotAt, walk: _Walk, decision: int, recorded: SnapshotRef | None
) -> Unproven | None:
    """Say why not having met the decision is no proof of its absence; None if it is one."""
    lacks = walk.made is not None and walk.made[0] < decision - 1
    if recorded is None:
        if walk.made is not None and lacks:
            return Unproven(f"decision {walk.made[0]} is in the table, but not {decision - 1}: rolled back?")
        if walk.last.id == 1:
            return None
        return Unproven(
            f"no snapshot was recorded, and the history before snapshot {walk.last.id} has expired",
            expired=True,
        )
    if recorded.id > head.id:
        return Unproven(
            f"snapshot {recorded.id} was recorded, but the head is {head.id}: the table was rolled back"
        )
    there = walk.last if walk.last.id == recorded.id else _ref(at(recorded.id))
    if there is None:
        return Unproven(
            f"the recorded snapshot {recorded.id} has expired, and nothing newer proves the absence",
            expired=not lacks,
        )
    if there != recorded:
        return Unproven(
            f"snapshot {recorded.id} is not the one that was recorded: rolled back or overwritten"
        )
    if walk.last.id > recorded.id:
        return Unproven(f"snapshot {walk.last.id - 1} is missing between the recorded one and the head")
    return None


def _ref(past: PastSnapshot | None) -> SnapshotRef | None:
    return None if past is None else past.ref
