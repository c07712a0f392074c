"""The state of the dumb account, and the questions that its rules ask.

It keeps every event, and computes every answer again from them.
"""

import json
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from sluicegate.events.models import Position, StreamPolicy
from tests.simulator.places import Known, Life, Place, Savepoint, Verdict


@dataclass
class Account:
    """The state of one stream."""

    places: dict[str, Place] = field(default_factory=dict)
    policy: StreamPolicy | None = None
    number: int | None = None
    regions: tuple[str, ...] = ()
    provisional: bool = False
    """True if the assignment has decided nothing yet."""
    former: tuple[int, tuple[str, ...], dict[str, Place]] | None = None
    withdrawn: int = -1
    ended: set[str] = field(default_factory=set)
    savepoints: list[Savepoint] = field(default_factory=list)
    paused: bool = False
    verdicts: list[Verdict] = field(default_factory=list)
    watermark: int | None = None
    attempts: int = 0
    reached: list[str] = field(default_factory=list)
    """Names of savepoints and drains that were reached."""
    lives: dict[tuple[str, str], Life] = field(default_factory=dict)
    """Former incarnations, by region and name."""
    accepted: dict[str, bool] = field(default_factory=dict)
    """By id of the registration."""
    told: dict[str, list[Position | None]] = field(default_factory=dict)
    """By id of the registration, the committed positions of its region where it is in the log."""
    followed: dict[int, int] = field(default_factory=dict)
    """By number of an assignment, the decision that it follows."""
    tables: dict[str, Known] = field(default_factory=dict)
    """By name, each further table that any policy had."""

    @property
    def decided(self) -> int:
        return len(self.verdicts)

    @property
    def open(self) -> Verdict | None:
        """Return the decision without an outcome."""
        return self.verdicts[-1] if self.verdicts and not self.verdicts[-1].outcome else None

    def identity_of(self, name: str) -> str | None:
        """Return the identity of a further table by the policy; None if it leaves it out."""
        terms = self.policy.tables.get(name) if self.policy is not None else None
        return terms.identity if terms is not None else None

    def known(self, name: str) -> list[Position]:
        """Return a region's sealed positions before the first one with files of an unknown table."""
        found: list[Position] = []
        place, names = self.places[name], self.policy.tables.keys() if self.policy is not None else ()
        for at in place.sealed():
            if not place.tables_at(at.checkpoint) <= {*names}:
                break
            found.append(at)
        return found

    def unknown(self) -> set[str]:
        """Return the tables that the policy lacks, and for which sealed checkpoints wait."""
        names = self.policy.tables.keys() if self.policy is not None else ()
        waiting = ((each, at) for each in self.places.values() for at in each.sealed())
        return {name for place, at in waiting for name in place.tables_at(at.checkpoint)} - {*names}

    def committed(self, name: str) -> Position | None:
        """Return the position of a region without a decision that has no outcome."""
        if self.open is not None and name in self.open.moves:
            return self.open.before[name]
        place = self.places.get(name)
        return place.at if place is not None else None

    def active(self) -> list[str]:
        return [name for name in self.regions if name not in self.places or not self.places[name].gone]

    def expected(self) -> list[str]:
        return [name for name in self.active() if name not in self.places or not self.places[name].is_idle]

    def lacks(self, name: str, end: tuple[str, int]) -> bool:
        """True if the region's position is not at or after a checkpoint of an incarnation."""
        at = self.places[name].at if name in self.places else None
        return at is None or at.incarnation != end[0] or at.checkpoint < end[1]

    def may_be_partial(self) -> bool:
        policy = self.policy
        return policy is not None and policy.partial == "allow" and not policy.single_region

    def is_forced(self) -> bool:
        most = self.policy.max_consecutive_fallbacks if self.policy else 1
        return any(name in self.places and self.places[name].fallbacks >= most for name in self.expected())

    def most_fallbacks(self) -> int:
        return floor(
            Fraction(str(self.policy.max_failure_ratio if self.policy else 1)) * len(self.expected())
        )

    def asleep(self) -> dict[str, Place]:
        """Return the regions that a withdrawal brings back to life."""
        places = self.former[2] if self.former is not None else {}
        return {name: each for name, each in places.items() if each.live}

    def is_unresolved(self, name: str, incarnation: str, number: int) -> bool:
        """True if a checkpoint is in the open decision, or may enter a later one."""
        made, place = self.open, self.places.get(name)
        to = made.moves.get(name) if made is not None else None
        if to is not None and to.incarnation == incarnation and number <= to.checkpoint:
            return True
        life = place.life if place is not None else None
        if place is None or life is None or life.name != incarnation or place.is_past(number):
            return False
        return number in life.parts or number in life.completions

    def may_include(self, name: str, incarnation: str, number: int, event: str) -> bool:
        """True if an event is in the open decision, or may enter a later one."""
        if self.open is not None and event in self.open.parts:
            return True
        place = self.places.get(name)
        if place is None or place.life is None or place.life.name != incarnation or place.is_past(number):
            return False
        return event in place.life.parts.get(number, {})

    def offsets_of(self, name: str) -> dict[str, int]:
        """Return the source offsets of a region's position, as its completion states them; else none."""
        place = self.places.get(name)
        if place is None or place.at is None:
            return {}
        own = place.life is not None and place.life.name == place.at.incarnation
        life = place.life if own else self.lives.get((name, place.at.incarnation))
        body = life.completions.get(place.at.checkpoint) if life is not None else None
        found: dict[str, int] = json.loads(body.source_offsets) if body and body.source_offsets else {}
        return found

    def awaits(self, savepoint: Savepoint) -> bool:
        return any(
            name not in self.places or not (self.places[name].gone or self.places[name].is_idle)
            for name in savepoint.awaited
        )

    def is_reached(self, savepoint: Savepoint) -> bool:
        if savepoint.drain:
            return self.number is not None and not self.active()
        if self.awaits(savepoint):
            return False
        return not any(
            self.lacks(name, end) and (name, end) not in savepoint.kept
            for name, end in savepoint.targets.items()
        )
