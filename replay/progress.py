"""Progress of a long reading, with an estimate of the remaining time."""

import time
from collections.abc import Callable
from typing import Final

from sluicegate.coordinator.telemetry.wording import duration

INTERVAL: Final = 5.0
"""Seconds between two progress lines."""


class Progress:
    """Prints the progress through a range at most every `interval` seconds."""

    def __init__(
        self, say: Callable[[str], None], what: str, start: int, end: int, interval: float = INTERVAL
    ) -> None:
        self._say = say
        self._what = what
        self._start, self._end = start, end
        self._interval = interval
        self._begun = self._said = time.monotonic()

    def at(self, position: int) -> None:
        """Note that every offset before `position` is read."""
        now = time.monotonic()
        done, whole = position - self._start, self._end - self._start
        if now - self._said < self._interval or done <= 0 or position >= self._end:
            return
        self._said = now
        left = (now - self._begun) * (whole - done) / done
        self._say(f"{self._what}: {done:,} of {whole:,} ({done / whole:.0%}), about {duration(left)} to go")
