"""Append times of the records that were read, by offset, in little memory."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

STEP: Final = 1_000
"""Milliseconds between two times that are kept, as long as they are few."""
MOST: Final = 4_096
"""Times that are kept; of more, every other one goes."""


class Record(Protocol):
    """A record of Kafka."""

    offset: int
    timestamp: int


class AppendTimes:
    """The append time of each offset from the first needed one on, never later than the true one."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._step = STEP
        self._end = 0

    def saw(self, records: Sequence[Record]) -> None:
        """Note the next records of the partition, in their order."""
        if not records:
            return
        for record in records if self._is_news(records[-1]) else ():
            if self._is_news(record):
                self._offsets.append(record.offset)
                self._times.append(record.timestamp)
        self._end = records[-1].offset + 1
        if len(self._offsets) > MOST:
            del self._offsets[1::2], self._times[1::2]
            self._step *= 2

    def _is_news(self, record: Record) -> bool:
        return not self._times or record.timestamp >= self._times[-1] + self._step

    def at(self, offset: int) -> int | None:
        """Return the append time of the first record at or after an offset, in milliseconds.

        None if no such record was read yet.
        """
        if offset >= self._end or not self._times:
            return None
        return self._times[max(0, bisect_right(self._offsets, offset) - 1)]

    def forget_before(self, offset: int) -> None:
        """Forget the offsets before this one."""
        kept = max(0, bisect_right(self._offsets, offset) - 1)
        del self._offsets[:kept], self._times[:kept]
        if self._offsets and offset >= self._end:
            # Nothing is needed: the next record is noted with its own time.
            self._offsets, self._times, self._step = [], [], STEP
