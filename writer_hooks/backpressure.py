"""Limits on what a region has completed and the coordinator has not committed yet.

Nothing is lost beyond a limit. But each uncommitted checkpoint keeps the log, and readers of the table wait
for it. A limit makes that visible, or stops the source until commits follow.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.option_values import seconds

Reaction = Literal["warn", "wait", "fail"]

PATIENCE: Final = 5.0
"""Seconds for a coordinator to answer a writer that is over a limit. Without an answer it asks again."""
FIRST_QUESTION: Final = 5.0
QUESTIONS: Final = 30.0

_CHECKPOINTS: Final = "max.uncommitted.checkpoints"
_AGE: Final = "max.uncommitted.age"
_REACTION: Final = "backpressure"
NAMES: Final = (_CHECKPOINTS, _AGE, _REACTION)
"""Options of a limit."""


@dataclass(slots=True)
class Repetition:
    """Times of something that is done again, at intervals that double up to a limit."""

    at: float
    """Seconds at which it is due."""
    pause: float
    longest: float = math.inf

    def is_due(self, now: float) -> bool:
        """Return True if it is due, which begins the next interval."""
        if now < self.at:
            return False
        self.at, self.pause = now + self.pause, min(2 * self.pause, self.longest)
        return True


def questions(reaction: Reaction, now: float) -> Repetition:
    """Return the times at which a writer over a limit asks the coordinator for its committed position.

    Commits arrive by notification, so a short wait asks nothing, and a warning needs no certainty.
    """
    first = {"warn": math.inf, "wait": FIRST_QUESTION, "fail": 0.0}[reaction]
    return Repetition(now + first, FIRST_QUESTION, QUESTIONS)


@dataclass(frozen=True, slots=True)
class Backpressure:
    """Limits of a region; without one, it never waits for commits."""

    max_checkpoints: int | None = None
    """The most completed checkpoints that are not committed."""
    max_age: float | None = None
    """Seconds that the oldest of them may wait."""
    reaction: Reaction = "wait"
    """Beyond a limit: only warn, wait before the next checkpoint, or fail."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "Backpressure":
        """Read the options, whose names are in lower case. Raises BadOption."""
        count = options.get(_CHECKPOINTS)
        reaction = options.get(_REACTION, "wait").strip().lower()
        if count is not None and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise BadOption(f"the option {_CHECKPOINTS} must be a whole number from 1: {count!r}")
        age = seconds(options, _AGE, math.inf)
        if _REACTION in options and count is None and _AGE not in options:
            raise BadOption(f"the option {_REACTION} needs a limit: set {_CHECKPOINTS} or {_AGE} too")
        for known in get_args(Reaction):
            if reaction == known:
                return cls(int(count) if count is not None else None, None if age == math.inf else age, known)
        raise BadOption(f"the option {_REACTION} must be {', '.join(get_args(Reaction))}: {reaction!r}")

    @property
    def is_limited(self) -> bool:
        """True if there is a limit."""
        return self.max_checkpoints is not None or self.max_age is not None

    def excess(self, completed: Mapping[int, float], now: float) -> str | None:
        """Return the limit that is exceeded, as a text; None if there is none.

        `completed`: by number, the times at which the uncommitted checkpoints were completed, in seconds by
        the clock of `now`.
        """
        if self.max_checkpoints is not None and len(completed) >= self.max_checkpoints:
            return (
                f"{len(completed)} completed checkpoints are not committed, and "
                f"max.uncommitted.checkpoints is {self.max_checkpoints}"
            )
        age = now - min(completed.values(), default=now)
        if self.max_age is not None and age > self.max_age:
            return (
                f"checkpoint {min(completed)} is not committed after {age:.0f} s, and max.uncommitted.age is "
                f"{self.max_age:g} s"
            )
        return None
