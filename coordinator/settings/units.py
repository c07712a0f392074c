"""Durations and sizes as people write them in settings."""

import math
import re
from typing import Annotated, Final

from pydantic import BeforeValidator

_SECONDS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    **dict.fromkeys(("day", "days"), 86400.0),
}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_seconds(value: object) -> float:
    """Parse a duration: a number of seconds, or text such as `500ms`, `30s`, `15m`, `2h`, `7d`.

    Raises ValueError for other text, and for values that are not above 0.
    """
    problem = "must be a duration above 0, such as 2.5 (seconds), 500ms, 30s, 15m, 2h or 7d"
    seconds = _quantity(value, _SECONDS, "s", problem)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(problem)
    return seconds


def parse_seconds_or_zero(value: object) -> float:
    """Parse a duration as `parse_seconds` does, or 0. Raises ValueError."""
    if value in (0, "0", "0s", "0ms"):
        return 0.0
    return parse_seconds(value)


def parse_bytes(value: object) -> int:
    """Parse a size: a whole number of bytes, or text such as `64KiB`, `256MiB`, `2GiB`. Raises ValueError."""
    problem = "must be a size above 0, such as 1048576 (bytes), 64KiB, 256MiB or 2GiB"
    size = _quantity(value, _BYTES, "B", problem)
    if not (math.isfinite(size) and size >= 1 and size == int(size)):
        raise ValueError(problem)
    return int(size)


def _quantity(value: object, units: dict[str, float] | dict[str, int], unit: str, problem: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(match[2] or unit) if match else None
    if match is None or factor is None:
        raise ValueError(problem)
    return float(match[1]) * factor


def words_of_bytes(size: int) -> str:
    """Format a size in the largest fitting unit, rounded: `12 MiB`."""
    unit, factor = next(
        ((unit, factor) for unit, factor in reversed(_BYTES.items()) if size >= factor), ("B", 1)
    )
    return f"{round(size / factor, 1):g} {unit}"


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
"""A duration in seconds, above 0."""

SecondsOrZero = Annotated[float, BeforeValidator(parse_seconds_or_zero)]
"""A duration in seconds, or 0."""

Bytes = Annotated[int, BeforeValidator(parse_bytes)]
"""A size in bytes, above 0."""
