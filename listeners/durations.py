"""Types of settings that listeners share: lengths by the calendar, fixed lengths, and time zones."""

from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from sluicegate.listeners.intervals import parse_interval

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
