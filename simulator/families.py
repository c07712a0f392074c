"""The dumb reading's account of which lineages go on from which."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from sluicegate.events.models import Assignment, Parent
from sluicegate.simulator.accounts import Life
from sluicegate.simulator.standing import Standing


class Member(NamedTuple):
    """A lineage of a region."""

    region: str
    lineage: str


def last(parent: Parent) -> int:
    """The named checkpoint; -1 for nothing."""
    return -1 if parent.checkpoint is None else parent.checkpoint


class Families:
    """The lineages that count where the standing is, with the one after each and those that name it."""

    def __init__(self, now: Standing) -> None:
        self._now = now
        self._next: dict[Member, Member] = {}
        self._named_by: dict[Member, list[Member]] = {}
        for name, account in now.regions.items():
            counting = [Member(name, each) for each, life in account.lives.items() if not life.killed]
            self._next |= dict(pairwise(counting))
            for member in counting:
                for parent in self.life(member).elsewhere:
                    self._named_by.setdefault(Member(parent.region, parent.lineage), []).append(member)

    def life(self, member: Member) -> Life:
        """What is known of a lineage."""
        return self._now.regions[member.region].lives[member.lineage]

    def _spread(self, found: set[Member]) -> set[Member]:
        """With everything that goes on from these."""
        while True:
            more = {self._next[member] for member in found if member in self._next}
            more |= {child for member in found for child in self._named_by.get(member, ())}
            if more <= found:
                return found
            found = found | more

    def displaced(
        self, parent: Parent, region: str, wanted: Assignment, named: Iterable[Parent]
    ) -> list[Member]:
        """What cannot stay when a region goes on from a parent under an assignment."""
        number = wanted.number
        at = Member(parent.region, parent.lineage)
        mine, after = parent.region == region, self._next.get(at)
        children = self._named_by.get(at, [])
        gone: set[Member] = set()
        left_out = parent.region not in wanted.regions
        if after is not None and (mine or left_out or self._is_stranger(after, region, number)):
            gone.add(after)
        elsewhere = self.life(at).limit is not None and self.life(at).limit != last(parent)
        for child in children:
            replaced = self._is_stranger(child, region, number) and not (mine and after)
            merged = any(child in self._above(Member(each.region, each.lineage)) for each in named)
            if elsewhere or (replaced and not merged):
                gone.add(child)
        return sorted(self._spread(gone), key=self._age)

    def is_behind(self, member: Member, named: Iterable[Member]) -> bool:
        """Whether one of these goes on from a lineage."""
        return any(member in self._above(each) for each in named)

    def _is_stranger(self, member: Member, region: str, number: int) -> bool:
        """Whether it was opened before this assignment, under one in which the region had no share."""
        under = self.life(member).assignment
        shares = region != member.region and region in self._now.shared.get(under, frozenset())
        return under < number and not shares

    def _above(self, member: Member) -> set[Member]:
        """A lineage and all that it goes on from."""
        everybody = {*self._next, *self._next.values(), *self._named_by}
        everybody |= {child for children in self._named_by.values() for child in children} | {member}
        return {each for each in everybody if member in self._spread({each})}

    def _age(self, member: Member) -> tuple[str, int]:
        return member.region, list(self._now.regions[member.region].lives).index(member.lineage)

    def kill(self, member: Member) -> None:
        """Let a lineage count no more, if it is not decided."""
        account = self._now.regions[member.region]
        if member.lineage in account.chain and self.life(member).decided is None:
            account.chain = [each for each in account.chain if each != member.lineage]
            self.life(member).limit, self.life(member).killed = -1, True

    def is_held_out(self, parent: Parent) -> bool:
        """Whether the named checkpoint never comes into a cut."""
        life = self._now.regions[parent.region].lives[parent.lineage]
        if life.decided is not None and life.decided >= last(parent):
            return False
        held = life.held
        return (held is not None and held <= last(parent)) or self.is_hopeless(
            Member(parent.region, parent.lineage)
        )

    def is_hopeless(self, member: Member) -> bool:
        """Whether a lineage stands on what never comes into a cut."""
        chain = self._now.regions[member.region].chain
        below = chain[: chain.index(member.lineage)] if member.lineage in chain else []
        lives = [self._now.regions[member.region].lives[each] for each in (*below, member.lineage)]
        stuck = any(life.held is not None and life.held <= (life.limit or 0) for life in lives[:-1])
        return stuck or any(self.is_held_out(parent) for life in lives for parent in life.elsewhere)
