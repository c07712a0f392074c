"""When pending events are carried: looked at now and then, and only as old as the log's retention allows."""

from typing import Final

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.carrying import next_carry
from sluicegate.coordinator.core.effects import Carry

_LOOKS: Final = 20
"""So often in the time that events may be pending."""


class Aging:
    """Whether something has been pending for so long that the log might lose it."""

    def __init__(self, book: Book, most: int | None) -> None:
        """`most` in milliseconds; None if the log keeps everything."""
        self.due = False
        self._book = book
        self._most = most
        self._look_at = 0
        self._again = False
        self._carried: set[tuple[str, str]] = set()
        """Lineages carried since the last regular look: a clock that jumps has none carried endlessly."""

    def look(self, now: int, time: int | None, upto: int) -> bool:
        """Look, if it is time; `time` is the log's own, and everything up to the offset `upto` was read.

        Return whether it was looked, and nothing is old.
        """
        if self._most is None or self.due or (now < self._look_at and not self._again):
            return False
        if now >= self._look_at:
            self._look_at = now + max(1, self._most // _LOOKS)
            self._carried.clear()
        self._again = False
        self.due = self._oldest(time, upto) is not None
        return not self.due

    def look_again(self) -> None:
        """Look at the next poll: something could not be carried."""
        self._again = True

    def carried(self, region: str, lineage: str) -> None:
        """Take note of a lineage that was carried; there may be others."""
        self._carried.add((region, lineage))
        self._again = True

    def take(self, time: int | None, upto: int) -> Carry | None:
        """What is to be carried now."""
        self.due = False
        return self._oldest(time, upto)

    def _oldest(self, time: int | None, upto: int) -> Carry | None:
        if self._most is None or time is None:
            return None
        return next_carry(self._book, time - self._most, upto, self._carried)
