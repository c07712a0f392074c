"""Randomized pauses between attempts.

Clients that failed at the same time must not retry at the same time.
"""

from random import SystemRandom
from typing import Final

_SPREAD: Final = 0.25
_random: Final = SystemRandom()


def spread(seconds: float) -> float:
    """Return a pause that is up to a quarter longer or shorter."""
    return seconds * _random.uniform(1 - _SPREAD, 1 + _SPREAD)
