"""Proofs from histories with gaps, branches and expired parts, beside a plain account of what is provable."""

import random
from dataclasses import dataclass, field

import pytest

from sluicegate.events.causes import Cause, CauseCode
from sluicegate.lakes.history import NoParent, PastSnapshot, look_for, newest_decisions, read_history
from sluicegate.lakes.port import Absent, Found, SnapshotRef, Unproven

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
    assert found == (newest, max(made, default=unknown), False)
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


def test_the_recorded_snapshot_must_be_an_ancestor_though_its_position_was_passed() -> None:
    tree = Tree()
    first = tree.add(None, 3, USER, 1)
    abandoned = tree.add(first, 7, USER, 2)
    head = tree.add(first, 12, "another", 1)
    answer = look_for(tree.commits[head], tree.parent, tree.at, USER, (3, "digest-3"), abandoned)
    assert isinstance(answer, Unproven)
    assert not answer.expired
    assert answer.cause == Cause(code=CauseCode.RECORDED_DIFFERS, snapshot=abandoned.id)
