"""Formats of times in messages for people."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(millis: int | None) -> str | None:
    """Format milliseconds since the Unix epoch as an ISO date, with milliseconds if they are not 0.

    The result is None for None and for dates out of range.
    """
    if millis is None:
        return None
    try:
        digits = "milliseconds" if millis % 1000 else "seconds"
        return (_EPOCH + timedelta(milliseconds=millis)).isoformat(timespec=digits).replace("+00:00", "Z")
    except OverflowError:
        return None


def duration(seconds: float) -> str:
    """Format a duration for people: `12 s`, `4 min`, `2.5 h`, `3 days`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 172_800:
        return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
    return f"{round(seconds / 86_400)} days"
