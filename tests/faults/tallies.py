"""The judgement of a table's content."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


class Inexact(Exception):
    """A table is not what it must be; the text has the tally and where to look."""


@dataclass(frozen=True)
class Tally:
    """What a table holds, against what it should hold."""

    rows: int
    commits: int
    missing: tuple[int, ...]
    doubled: tuple[int, ...]
    foreign: tuple[int, ...]
    """Ids that nobody has written."""
    disorder: str = ""
    """What is wrong with the decisions' ids, if anything."""
    others: int = 0
    """Commits of other users."""

    @property
    def exact(self) -> bool:
        return not (self.missing or self.doubled or self.foreign or self.disorder)


def tally_of(
    ids: Sequence[int], expected: Collection[int], user: str, decisions: Sequence[int], commits: int
) -> Tally:
    """Compare the ids of a table with those that it must have, and its decisions with their order."""
    found, wanted = Counter(ids), set(expected)
    in_order = list(decisions) == sorted(set(decisions))
    return Tally(
        rows=len(ids),
        commits=commits,
        missing=tuple(sorted(wanted - found.keys())),
        doubled=tuple(sorted(each for each, count in found.items() if count > 1)),
        foreign=tuple(sorted(found.keys() - wanted)),
        disorder="" if in_order else f"decisions of {user}: {list(decisions)}",
        others=commits - len(decisions),
    )
