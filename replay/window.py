"""Marks in a stream's log, and the window of decisions between two marks."""

import re
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from sluicegate.replay.decisions import LoggedDecision

_CHECKPOINT: Final = re.compile(r"([^/]+)(?:/([^/]+))?/(\d+)")
FORMS: Final = "earliest, latest, offset:N, time:T, checkpoint:REGION/N or checkpoint:REGION/INCARNATION/N"


class Mark(NamedTuple):
    """A place in a log; fields that do not apply are None."""

    text: str
    offset: int | None = None
    time: int | None = None
    """Append time in milliseconds since the Unix epoch."""
    region: str | None = None
    incarnation: str | None = None
    """None: any incarnation of the region."""
    checkpoint: int = -1

    @property
    def anywhere(self) -> bool:
        """True for the very start or end of the log."""
        return self.offset is None and self.time is None and self.region is None


def parse_mark(text: str) -> Mark:
    """Parse a mark as a user types it. Raises ValueError."""
    kind, _, rest = text.partition(":")
    if text in ("earliest", "latest"):
        return Mark(text)
    if kind == "offset" and rest.isdigit():
        return Mark(text, offset=int(rest))
    if kind == "time":
        return Mark(text, time=_millis(rest))
    found = _CHECKPOINT.fullmatch(rest) if kind == "checkpoint" else None
    if found is None:
        raise ValueError(f"{text!r} is no place in a log; use {FORMS}")
    return Mark(text, region=found[1], incarnation=found[2], checkpoint=int(found[3]))


def _millis(text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; use milliseconds since 1970, or a form such as 2026-11-21T16:00:00Z"
        ) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


class Window:
    """Decisions between two marks, both included. Decisions must be placed in the log's order."""

    def __init__(self, start: Mark, stop: Mark) -> None:
        self._start, self._stop = start, stop
        self._begun = start.anywhere
        self._over = False

    @property
    def open_end(self) -> bool:
        """True if the window reaches to the end of the log."""
        return self._stop.anywhere

    @property
    def from_start(self) -> bool:
        """True if the window begins at the start of the log."""
        return self._start.anywhere

    def place(self, logged: LoggedDecision) -> Literal["before", "in", "after"]:
        """Place the next decision before, in or after the window."""
        if self._over or _passed(self._stop, logged):
            self._over = True
            return "after"
        if not self._begun and not _reached(self._start, logged):
            return "before"
        self._begun = True
        # Several decisions can share a time, but only one that is not reverted includes a checkpoint.
        if self._stop.region is not None and not logged.reverted and _reached(self._stop, logged):
            self._over = True
        return "in"

    def unmet(self) -> Mark | None:
        """Return a checkpoint mark that no decision has included; None if there is none."""
        if not self._begun and self._start.region is not None:
            return self._start
        return self._stop if self._stop.region is not None and not self._over else None


def _reached(mark: Mark, logged: LoggedDecision) -> bool:
    """True if a decision is at the mark or after it."""
    if mark.offset is not None:
        return logged.decision.offset >= mark.offset
    if mark.time is not None:
        return logged.time >= mark.time
    return mark.region is not None and logged.includes(mark.region, mark.incarnation, mark.checkpoint)


def _passed(mark: Mark, logged: LoggedDecision) -> bool:
    """True if a decision is after the end mark."""
    if mark.offset is not None:
        return logged.decision.offset > mark.offset
    return mark.time is not None and logged.time > mark.time
