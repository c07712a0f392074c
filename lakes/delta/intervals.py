"""Intervals in properties of Delta tables, such as `interval 1 week`."""

import re
from collections.abc import Mapping
from typing import Final

_UNITS: Final[Mapping[str, float]] = {
    "nanosecond": 1e-9,
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 604_800.0,
}
_PART: Final = re.compile(r"([+-]?[0-9]{1,12})\s+([a-z]+?)s?(?:\s+|$)")


def interval_seconds(text: str) -> float:
    """Return the seconds of an interval; 0 for a text that is none, since it protects nothing."""
    rest = text.strip().lower().removeprefix("interval").strip()
    seconds = 0.0
    while rest:
        found = _PART.match(rest)
        if found is None or found[2] not in _UNITS:
            return 0.0
        seconds += int(found[1]) * _UNITS[found[2]]
        rest = rest[found.end() :]
    return seconds
