"""Openings that the log surely refuses where they stand: of old jobs, and of such as know too little."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Parent, RegionOpened
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.lineages import problem_of
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.world import STREAM, World

WANTED: Final = ("others went on from the lineage", "another region goes on from there")

Opening = tuple[Envelope, RegionOpened]


@dataclass
class Refused:
    """What is known to be refused, because the dumb reading says so."""

    world: World
    reading: Reading

    def open(self, dice: Dice) -> None:
        """Let somebody open what others went on from, or what goes on."""
        found = [each for each in self._candidates() if problem_of(self.reading, *each) in WANTED]
        if found:
            envelope, body = dice.pick(found)
            self.world.saw("opened what others have")
            self.world.append(envelope._replace(id=self.world.new_id("o")), body)

    def _candidates(self) -> Iterator[Opening]:
        newest = self.reading.next or self.reading.assignment
        if newest is None:
            return
        for name, account in self.reading.regions.items():
            if account.live is None:
                continue
            life = account.lives[account.live]
            if life.limit is not None:
                # An old job starts once more, and puts its region back into the assignment.
                more = tuple(dict.fromkeys((*newest.regions, name)))
                number = newest.number + (name not in newest.regions)
                yield self._opening(name, account.live, Assignment(number=number, regions=more), ())
                continue
            last = max(life.piles, default=None)
            parent = Parent(region=name, lineage=account.live, checkpoint=last)
            for other in newest.regions:
                if other != name:
                    yield self._opening(other, f"eager-{other}", newest, (parent, *self._own(other)))

    def _own(self, name: str) -> tuple[Parent, ...]:
        account = self.reading.regions.get(name)
        if account is None or account.live is None:
            return ()
        last = max(account.lives[account.live].piles, default=None)
        return (Parent(region=name, lineage=account.live, checkpoint=last),)

    def _opening(
        self, region: str, lineage: str, assignment: Assignment, parents: tuple[Parent, ...]
    ) -> Opening:
        envelope = Envelope("", EventType.REGION_OPENED, STREAM, region, lineage)
        return envelope, RegionOpened(assignment=assignment, parents=parents, bounded=True)
