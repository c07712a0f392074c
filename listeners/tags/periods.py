"""Periods by the calendar: those that a watermark has passed, and the names of their tags."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal, NamedTuple

from sluicegate.listeners.intervals import DAY, HOUR, MONTH, Interval, bounds
from sluicegate.listeners.mark_done.formats import LETTERS, field_of, literal

Every = Literal["hourly", "daily", "monthly"]
LENGTHS: Final[dict[Every, Interval]] = {"hourly": HOUR, "daily": DAY, "monthly": MONTH}
FORMATS: Final[dict[Every, str]] = {"hourly": "yyyy-MM-dd-HH", "daily": "yyyy-MM-dd", "monthly": "yyyy-MM"}
_NEEDED: Final[dict[Every, tuple[str, ...]]] = {
    "hourly": ("year", "month", "day", "hour"),
    "daily": ("year", "month", "day"),
    "monthly": ("year", "month"),
}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,229}", re.ASCII)
_MOST_GAPS: Final = 1_000
"""Periods that are looked at for one commit. Earlier ones get no tag of their own."""


class Passed(NamedTuple):
    """A period that has ended."""

    label: datetime
    """Its start, as the clock of the zone shows it."""
    end: int
    """Milliseconds since the Unix epoch."""


def passed(time: int, every: Every, zone: tzinfo, after: int | None) -> Iterator[Passed]:
    """Yield the periods that ended before a time, and after the end `after`, the newest first.

    The time is in milliseconds since the Unix epoch. An hour that the clock shows twice is one period, and
    one that it skips is none. Nothing is yielded for a time outside of the years 1 to 9999.
    """
    try:
        wall = datetime.fromtimestamp(time / 1000, UTC).astimezone(zone).replace(tzinfo=None)
        label = _floor(wall, every)
        for _ in range(_MOST_GAPS):
            begin, end = bounds(label, LENGTHS[every], zone)
            if after is not None and end <= after:
                return
            if begin < end < time:
                yield Passed(label, end)
            label = _before(label, every)
    except (ValueError, OverflowError, OSError):
        return


def _floor(wall: datetime, every: Every) -> datetime:
    hour = wall.replace(minute=0, second=0, microsecond=0)
    if every == "hourly":
        return hour
    return hour.replace(hour=0) if every == "daily" else hour.replace(hour=0, day=1)


def _before(label: datetime, every: Every) -> datetime:
    if every == "hourly":
        return label - timedelta(hours=1)
    return _floor(label - timedelta(days=1), every)


def name_of(pattern: str, label: datetime) -> str:
    """Return the name of a period's tag. Raises ValueError for letters without a meaning."""
    found: list[str] = []
    for part in LETTERS.finditer(pattern):
        letters: str | None = part["letters"]
        if letters is None:
            found.append(literal(part))
        else:
            value: int = getattr(label, field_of(letters, pattern)[0])
            found.append(f"{value:0{len(letters)}d}")
    return "".join(found)


def check_pattern(pattern: str, every: Every) -> None:
    """Check that periods have names of their own. Raises ValueError with the way out."""
    fields = {field_of(part["letters"], pattern)[0] for part in LETTERS.finditer(pattern) if part["letters"]}
    missing = [name for name in _NEEDED[every] if name not in fields]
    if missing:
        raise ValueError(
            f"the name {pattern!r} lacks the {missing[0]}, so tags of several periods would have one name. "
            f"Use the letters of {FORMATS[every]}"
        )
    check_name(name_of(pattern, datetime(2013, 1, 31, 23)))


def check_name(name: str) -> None:
    """Check that every format can have a tag of this name. Raises ValueError with the way out."""
    if not _NAME.fullmatch(name) or name.isdigit():
        raise ValueError(
            f"{name!r} is no name of a tag. Use letters of ASCII, digits, spaces and ._- only, begin with a "
            "letter, a digit or _, and do not use digits alone: readers would take them for a snapshot"
        )
