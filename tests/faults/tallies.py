"""The judgement of a table's content."""

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
