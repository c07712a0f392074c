"""Lengths by the calendar, such as that of a partition, and the instants between which its rows lie."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

_TEXT: Final = re.compile(r"\s*(?P<number>[1-9]\d{0,5})\s*(?P<unit>[A-Za-z]+)\s*", re.ASCII)
_MONTHS: Final = {"month": 1, "months": 1, "year": 12, "years": 12, "y": 12}
_SECONDS: Final = {
    "s": 1, "second": 1, "seconds": 1,
    "min": 60, "minute": 60, "minutes": 60,
    "h": 3_600, "hour": 3_600, "hours": 3_600,
    "d": 86_400, "day": 86_400, "days": 86_400,
    "week": 604_800, "weeks": 604_800,
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)


class Interval(NamedTuple):
    """Length of a partition, as a clock on the wall shows it: a day with a change of the clock is one day."""

    months: int = 0
    seconds: int = 0


YEAR: Final = Interval(months=12)
MONTH: Final = Interval(months=1)
DAY: Final = Interval(seconds=86_400)
HOUR: Final = Interval(seconds=3_600)


def parse_interval(text: str) -> Interval:
    """Read a length such as `1 month`, `1 d` or `15 min`. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    unit = match["unit"] if match else ""
    if match and unit.lower() in _MONTHS and unit != "M":
        return Interval(months=int(match["number"]) * _MONTHS[unit.lower()])
    if match and unit.lower() in _SECONDS:
        return Interval(seconds=int(match["number"]) * _SECONDS[unit.lower()])
    raise ValueError(
        f"{text!r} is no length of time. Write a number and a unit: 15 min, 1 h, 1 d, 1 month, 1 y"
    )


def bounds(start: datetime, interval: Interval, zone: tzinfo) -> tuple[int, int]:
    """Return start and end of a partition in milliseconds since the Unix epoch; its rows are before the end.

    The label of the partition is `start`, as the clock on the wall of `zone` shows it, or of its own zone.
    One that the clock shows twice covers both passes, so the end is that of the second one. Raises ValueError
    if it leaves the calendar of the years 1 to 9999.
    """
    where = start.tzinfo or zone
    wall = start.replace(tzinfo=None)
    try:
        # The last moment with this label: of two passes, the second.
        last = _later(wall, interval) - _TICK
        begin, end = _instant(wall, where, fold=0), _instant(last, where, fold=1) + 1
    except OverflowError:
        raise ValueError(f"a partition from {wall} ends after the year 9999") from None
    return begin, max(begin, end)


def _later(wall: datetime, interval: Interval) -> datetime:
    """Return the wall time after an interval. A day that the month lacks is its last one."""
    months = wall.year * 12 + wall.month - 1 + interval.months
    year, month = divmod(months, 12)
    if year > 9999:
        raise OverflowError
    day = min(wall.day, _days(year, month + 1))
    return wall.replace(year=year, month=month + 1, day=day) + timedelta(seconds=interval.seconds)


def _days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _instant(wall: datetime, zone: tzinfo, fold: int) -> int:
    """Return a wall time in whole milliseconds since the Unix epoch, rounded down."""
    return (wall.replace(tzinfo=zone, fold=fold) - _EPOCH) // timedelta(milliseconds=1)


# Types of settings that listeners share: lengths by the calendar, fixed lengths, and time zones.

_NONE: Final = ("0", "0 s", "0s")


def _length(text: str) -> str:
    parse_interval(text)
    return text


def _duration(text: str) -> str:
    if text.strip() not in _NONE and parse_interval(text).months:
        raise ValueError(f"{text!r} has no fixed length. Write it in days, hours or minutes")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is no time zone of this machine. Write one such as UTC or Europe/Berlin, or install "
            "the package tzdata"
        ) from None
    return name


Length = Annotated[str, AfterValidator(_length)]
"""A length by the calendar, such as `1 month`, `1 d` or `15 min`."""
Duration = Annotated[str, AfterValidator(_duration)]
"""A fixed length, such as `15 min`, `2 h` or `7 d`."""
Zone = Annotated[str, AfterValidator(_zone)]
"""Name of a time zone."""


def milliseconds(text: str) -> int:
    """Return a duration in milliseconds."""
    return 0 if text.strip() in _NONE else parse_interval(text).seconds * 1_000
