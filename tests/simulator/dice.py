"""Draws that are the same on every machine and in every release of Python."""

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15


class Dice:
    """A small generator (splitmix64); the whole sequence follows from the seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def draw(self) -> int:
        """Return the next 64 bits."""
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """Return a number from 0 to below the limit."""
        return self.draw() % limit

    def between(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low + self.draw() % (high - low + 1)

    def share(self) -> float:
        """Return a number from 0 to below 1."""
        return (self.draw() >> 11) / (1 << 53)

    def chance(self, odds: float) -> bool:
        """Return True with these odds."""
        return self.share() < odds

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.draw() % len(choices)]
