"""Watermarks that no driver can mean: they count as none, or are shown.

A time is no reason to refuse a completion, which its driver believes in the log. But the stream's watermark
never falls, so one event time of the year 2099 would end a day before its rows are there, for ever.

The comparison is with the append time of the completion and with the logged policy, as of the decision. Every
reader has both, so all of them agree.
"""

from typing import Final

from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import StreamPolicy
from sluicegate.events.problems import Code, Problem

_FIRST: Final = -62_135_596_800_000
"""The beginning of the year 1, in Unix milliseconds."""
_LAST: Final = 253_402_300_799_999
"""The end of the year 9999."""
_DAY: Final = 86_400_000
_YEAR: Final = 365 * _DAY
_FINER: Final = (("microseconds", 1_000), ("nanoseconds", 1_000_000))


def problem_of(region: str, sealed: Sealed, policy: StreamPolicy | None) -> Problem | None:
    """Return the problem of a completion's watermark: it counts as none, or its unit is doubtful."""
    entry, at = sealed.checkpoint, sealed.position
    mark = entry.body.watermark if entry.body is not None else None
    if mark is None:
        return None
    limit = (policy or StreamPolicy(number=0)).future_limit
    code, unit = Code.WATERMARK_IGNORED, ""
    if _FIRST <= mark <= min(_LAST, entry.completed_at + limit):
        if not _is_seconds(mark, entry.completed_at):
            return None
        code = Code.WATERMARK_IN_SECONDS
    else:
        near = (name for name, factor in _FINER if _is_near(mark // factor, entry.completed_at))
        unit = next(near, "")
    return Problem(
        code=code,
        region=region,
        incarnation=at.incarnation,
        checkpoint=at.checkpoint,
        names=(str(mark), unit) if unit else (str(mark),),
    )


def _is_seconds(mark: int, time: int) -> bool:
    """True if a watermark is of 1970, and right now if it counts seconds. Rows of that day are unlikely."""
    return time > _YEAR and abs(mark * 1_000 - time) <= _DAY


def _is_near(mark: int, time: int) -> bool:
    """True if a watermark is of the years around an append time: only to name a unit."""
    return abs(mark - time) <= 10 * _YEAR
