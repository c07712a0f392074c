"""Proofs from histories with gaps, branches and expired parts, beside a plain account of what is provable."""

import random
from dataclasses import dataclass, field

import pytest

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.history import (
    Marker,
    Newest,
    NoParent,
    PastSnapshot,
    look_for,
    newest_decisions,
    read_history,
)
from sluicegate.lakes.port import Absent, Ahead, Found, OtherDigest, Unproven

USER = "stream-a"


@dataclass
class Tree:
    """Snapshots with their parents, of which some are readable no more."""

    parents: dict[SnapshotRef, SnapshotRef | None] = field(default_factory=dict)
    commits: dict[SnapshotRef, PastSnapshot] = field(default_factory=dict)
    gone: set[SnapshotRef] = field(default_factory=set)

    def add(self, parent: SnapshotRef | None, position: int, user: str, decision: int) -> SnapshotRef:
        ref = SnapshotRef(position, f"s{len(self.parents)}")
        self.parents[ref] = parent
        digest = f"digest-{decision}" if user == USER else ""
        self.commits[ref] = PastSnapshot(ref, user, decision, digest)
        return ref

    def parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        before = self.parents[past.ref]
        if before is None:
            return NoParent.FIRST
        return NoParent.UNREADABLE if before in self.gone else self.commits[before]

    def at(self, position: int) -> PastSnapshot | None:
        here = [ref for ref in self.commits if ref.id == position and ref not in self.gone]
        return self.commits[here[-1]] if here else None

    def ancestors(self, head: SnapshotRef) -> list[SnapshotRef]:
        """The head and all that it was made on, readable or not, newest first."""
        found: list[SnapshotRef] = []
        ref: SnapshotRef | None = head
        while ref is not None:
            found.append(ref)
            ref = self.parents[ref]
        return found


def grow(dice: random.Random) -> tuple[Tree, SnapshotRef, list[SnapshotRef]]:
    """Commit decisions in order among others' commits, with rollbacks; returns all heads that there were."""
    tree, heads = Tree(), list[SnapshotRef]()
    head: SnapshotRef | None = None
    for _ in range(dice.randint(1, 12)):
        if heads and dice.random() < 0.15:
            head = dice.choice(heads)
        mine = [
            tree.commits[ref].decision
            for ref in (tree.ancestors(head) if head else [])
            if _is_ours(tree, ref)
        ]
        user, decision = (USER, max(mine, default=0) + 1) if dice.random() < 0.5 else ("another", 1)
        head = tree.add(head, (head.id if head else 0) + dice.choice((1, 1, 2, 7)), user, decision)
        heads.append(head)
    assert head is not None
    for ref in tree.ancestors(head)[1:]:
        if dice.random() < 0.1:
            tree.gone.add(ref)
    return tree, head, heads


def _is_ours(tree: Tree, ref: SnapshotRef) -> bool:
    return tree.commits[ref].commit_user == USER


@pytest.mark.parametrize("series", range(10))
def test_an_absence_is_proven_exactly_by_an_ancestor_or_by_the_whole_history(series: int) -> None:
    for number in range(300):
        _ask_one(random.Random(f"{series}.{number}"))


def _ask_one(dice: random.Random) -> None:
    tree, head, heads = grow(dice)
    recorded = dice.choice([None, *heads])
    ancestors = tree.ancestors(head)
    readable = ancestors[: next((n for n, ref in enumerate(ancestors) if ref in tree.gone), len(ancestors))]
    ours = [tree.commits[ref].decision for ref in readable if _is_ours(tree, ref)]
    newest = max(ours, default=None)
    made = [
        tree.commits[ref].decision for ref in readable if _is_ours(tree, ref) and tree.commits[ref].digest
    ]
    unknown = 0 if readable == ancestors else None
    found = newest_decisions(tree.commits[head], tree.parent, tree.at, USER)
    own = (
        ""
        if not made
        else next(
            past.digest
            for ref in readable
            if (past := tree.commits[ref]).decision == max(made) and past.digest
        )
    )
    assert found == (newest, max(made, default=unknown), False, own)
    history = read_history("t", tree.commits[head], tree.parent)
    assert [past.ref for past in history.commits] == readable
    assert history.whole == (readable == ancestors)

    asked = dice.randint(1, 1 + max((past.decision for past in tree.commits.values()), default=1))
    digest = f"digest-{asked}"
    answer = look_for(tree.commits[head], tree.parent, tree.at, USER, (asked, digest), recorded)
    match answer:
        case Found(ref):
            assert ref in readable
            assert (tree.commits[ref].commit_user, tree.commits[ref].digest) == (USER, digest)
        case Absent(there):
            assert there == head
            read = readable if recorded is None else readable[: readable.index(recorded) + 1]
            assert recorded is not None or readable == ancestors
            assert not any(tree.commits[ref].digest == digest for ref in read)
        case Unproven(_, expired):
            assert recorded not in readable
            assert recorded is not None or readable != ancestors or asked > (newest or 0) + 1
            assert not (expired and readable == ancestors)
        case _:
            assert newest is not None
            assert newest > asked


# --- markers --------------------------------------------------------------------------------------


def grow_marked(dice: random.Random) -> tuple[Tree, SnapshotRef, Marker | None]:
    """Commit as coordinators of a table with a property do, among rollbacks that are taken back, too.

    They ask first, so none publishes a decision below the marker's.
    """
    tree, marker, heads = Tree(), None, list[SnapshotRef]()
    head: SnapshotRef | None = None
    for _ in range(dice.randint(1, 12)):
        if heads and dice.random() < 0.2:
            head = dice.choice(heads)
        mine = [tree.commits[ref].decision for ref in (tree.ancestors(head) if head else [])]
        decision = 1 + max((each for each in mine if each < 100), default=0)
        ours = dice.random() < 0.5 and (marker is None or marker.decision <= decision)
        top = max((ref.id for ref in heads), default=0)
        user, number = (USER, decision) if ours else ("another", 100)
        head = tree.add(head, top + dice.choice((1, 1, 2, 7)), user, number)
        heads.append(head)
        if ours:
            marker = Marker(decision, f"digest-{decision}", head)
    assert head is not None
    return tree, head, marker


def decisions(tree: Tree, refs: list[SnapshotRef]) -> dict[int, SnapshotRef]:
    return {tree.commits[ref].decision: ref for ref in refs if _is_ours(tree, ref)}


@pytest.mark.parametrize("series", range(10))
def test_a_marker_proves_only_what_is_so(series: int) -> None:
    """Some history has expired, and snapshots that a rollback has left are still there."""
    alone = 0
    for number in range(300):
        dice = random.Random(f"marked.{series}.{number}")
        tree, head, marker = grow_marked(dice)
        ancestors = tree.ancestors(head)
        tree.gone.update(ancestors[dice.randint(1, len(ancestors)) :])
        recorded = dice.choice([None, *tree.commits])
        there = decisions(tree, ancestors)
        asked = dice.randint(1, 2 + max(there, default=0))
        line = tree.commits[head], tree.parent, tree.at, USER
        answer = look_for(*line, (asked, f"digest-{asked}"), recorded, marker)
        plain = look_for(*line, (asked, f"digest-{asked}"), recorded)
        alone += getattr(answer, "by_marker", False)
        match answer:
            case Found(ref):
                assert there[asked] == ref
            case Absent(ref) if isinstance(plain, Unproven):
                assert ref == head
                assert asked not in there
                assert asked == 1 or asked - 1 in there
            case Ahead(newest, made) if answer != plain:
                assert marker is not None
                assert (newest, made) == (marker.decision, marker[:2])
                assert newest > asked
            case _:
                assert answer == plain or isinstance(plain, Unproven)
        shown = newest_decisions(*line, marker)
        assert shown.made is None or shown.made == max(there, default=0)
        assert not shown.by_marker or shown.made == max(there)
    assert alone > 0


def test_a_marker_leaves_no_doubt_where_it_can_be_certain() -> None:
    """All that it is about has expired, and the head shows that it contains that."""
    tree = Tree()
    first = tree.add(None, 1, USER, 1)
    second = tree.add(first, 4, USER, 2)
    head = tree.add(second, 9, "another", 1)
    tree.gone |= {first, second}
    line = tree.commits[head], tree.parent, tree.at, USER
    marker = Marker(2, "digest-2", second, certain=True)
    assert newest_decisions(*line, marker) == Newest(2, 2, digest="digest-2")
    found, absent = (look_for(*line, (n, f"digest-{n}"), first, marker) for n in (2, 3))
    assert (found, absent) == (Found(second), Absent(head))
    assert isinstance(found, Found)
    assert isinstance(absent, Absent)
    assert not found.by_marker
    assert not absent.by_marker
    assert look_for(*line, (2, "digest-of-a-void"), first, marker) == OtherDigest("digest-2")


@pytest.mark.parametrize("certain", [True, False])
def test_a_marker_is_nothing_where_its_snapshot_was_rolled_back(certain: bool) -> None:
    tree = Tree()
    first = tree.add(None, 1, USER, 1)
    lost = tree.add(first, 4, USER, 2)
    head = tree.add(first, 9, "another", 1)
    line = tree.commits[head], tree.parent, tree.at, USER
    marker = Marker(2, "digest-2", lost, certain)
    for asked in (2, 3):
        answer = look_for(*line, (asked, f"digest-{asked}"), lost, marker)
        assert answer == look_for(*line, (asked, f"digest-{asked}"), lost)
        assert isinstance(answer, Unproven)
    tree.gone |= {lost}
    answer = look_for(*line, (3, "digest-3"), SnapshotRef(5, "expired"), marker)
    assert isinstance(answer, Unproven)
    assert not answer.expired
    assert newest_decisions(*line, marker) == Newest(1, 1, digest="digest-1")


def test_a_marker_of_a_table_without_snapshots_proves_nothing() -> None:
    tree = Tree()
    marker = Marker(3, "digest-3", SnapshotRef(7, "lost"))
    line = None, tree.parent, tree.at, USER
    for asked in (2, 3, 4):
        assert look_for(*line, (asked, f"digest-{asked}"), None, marker) == Absent(None)
        answer = look_for(*line, (asked, f"digest-{asked}"), SnapshotRef(7, "lost"), marker)
        assert isinstance(answer, Unproven)
    assert newest_decisions(*line, marker) == Newest(None, 0)


def test_a_marker_that_contradicts_its_snapshot_proves_nothing() -> None:
    tree = Tree()
    first = tree.add(None, 1, "another", 1)
    head = tree.add(first, 4, "another", 1)
    tree.gone |= {first}
    line = tree.commits[head], tree.parent, tree.at, USER
    assert isinstance(look_for(*line, (2, "digest-2"), None, Marker(1, "digest-1", head)), Unproven)
    assert newest_decisions(*line, Marker(1, "digest-1", head)) == Newest(None, None)


def test_a_marker_above_the_asked_decision_says_that_the_table_is_ahead() -> None:
    """Unless it was rolled back, or a recorded head proves more."""
    tree = Tree()
    first = tree.add(None, 1, "another", 1)
    lost = tree.add(first, 4, USER, 3)
    ahead = tree.add(lost, 5, "another", 1)
    head = tree.add(first, 9, "another", 1)
    marker = Marker(3, "digest-3", lost)
    tree.gone |= {first}
    rolled_back = tree.commits[head], tree.parent, tree.at, USER
    assert look_for(*rolled_back, (2, "digest-2"), head, marker) == Absent(head)
    assert look_for(*rolled_back, (2, "digest-2"), first, marker) == Ahead(3, marker[:2])
    tree.gone.clear()
    assert look_for(*rolled_back, (2, "digest-2"), first, marker) == Absent(head)
    answer = look_for(*rolled_back, (2, "digest-2"), lost, marker)
    assert isinstance(answer, Unproven)
    assert not answer.expired
    tree.gone |= {first, lost}
    expired = tree.commits[ahead], tree.parent, tree.at, USER
    assert look_for(*expired, (2, "digest-2"), first, marker) == Ahead(3, marker[:2])


def line_of(*commits: tuple[str, int, str]) -> tuple[Tree, SnapshotRef]:
    """Return a history from its first snapshot on: by whom, which decision, its digest."""
    tree, head = Tree(), None
    for position, (user, decision, digest) in enumerate(commits, 1):
        head = tree.add(head, position, user, decision)
        tree.commits[head] = PastSnapshot(head, user, decision, digest)
    assert head is not None
    return tree, head


def test_a_foreign_id_of_the_recorded_snapshot_proves_nothing() -> None:
    """An operator has named that snapshot: a foreign job of the same user made it, with the asked id."""
    tree, head = line_of((USER, 1, "d1"), (USER, 2, ""), ("another", 0, ""))
    recorded = tree.ancestors(head)[1]
    asked = look_for(tree.commits[head], tree.parent, tree.at, USER, (2, "d2"), recorded)
    assert isinstance(asked, Absent)
    # Above it, a foreign commit with this id is in the way.
    tree, head = line_of((USER, 1, "d1"), ("another", 0, ""), (USER, 2, ""))
    asked = look_for(tree.commits[head], tree.parent, tree.at, USER, (2, "d2"), tree.ancestors(head)[1])
    assert isinstance(asked, OtherDigest)
