"""One pass over a log: its decisions in order, each once no later record can change it.

A window is a part of these decisions, between two marks.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.replay.decisions import (
    UNSIGNED,
    Group,
    LogFold,
    LoggedDecision,
    ReplayRefused,
    Start,
    Step,
    Unverified,
)
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.events.problems import CauseCode

# Marks in a stream's log, and the window of decisions between two marks.

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


# Advice about records that a command refuses, and that may be true all the same.


def since(group: Group) -> str:
    """Return the earliest time for `kafka.signing.since` with which all of these records count unsigned."""
    return iso_time(group.time + 1) or "no such time"


def way_out(groups: Collection[Group]) -> str:
    """Return the advice about unverified records."""
    ways = [_without_signature(each) for each in groups if each.why is CauseCode.UNSIGNED]
    names = list(dict.fromkeys(each.key for each in groups if each.why is not CauseCode.UNSIGNED))
    if names:
        options = " ".join(f"--forged {name}" for name in names)
        ways.append(
            f"Give this command the right file of {', '.join(names)}, in kafka.signing.key_files. If no "
            f"coordinator or command of yours has signed them, they are forged: repeat with {options}"
        )
    return ". ".join(ways)


def _without_signature(group: Group) -> str:
    return (
        "If your coordinators wrote records without a signature, set kafka.signing.since of this command to "
        f"a time after the last of those ({since(group)} is after all that are refused). The others are "
        f"forged: repeat with --forged {UNSIGNED}"
    )


# One pass over a log: its decisions in order, each once no later record can change it.

Sink = Callable[[LoggedDecision], Awaitable[None]]


@dataclass
class Reading:
    """Result of a pass over a log."""

    fold: LogFold
    end: int
    """End offset of the pass."""
    first: int | None = None
    """The first and the last decision in the window."""
    last: int | None = None
    decisions: int = 0

    def count(self, decision: int) -> None:
        """Count a decision in the window."""
        self.first = decision if self.first is None else self.first
        self.last = decision
        self.decisions += 1


async def read_decisions(
    log: StreamLog,
    stream: str,
    start: Start,
    end: int,
    window: Window,
    sink: Sink,
    watch: Callable[[Step], None] = lambda step: None,
    *,
    accounted: bool = False,
) -> Reading:
    """Read the log once to `end`, and pass the decisions in the window to the sink.

    `accounted`: with their accounts, for a table. Raises ReplayRefused, KafkaError, TimeoutError.
    """
    fold = LogFold(stream, log.partition, start, log.decode, lambda decision: accounted)
    done = Reading(fold, end)
    is_after = False

    async def hand_out(logged: LoggedDecision) -> None:
        nonlocal is_after
        place = window.place(logged)
        is_after = is_after or place == "after"
        if place == "in":
            done.count(logged.decision.id)
            await sink(logged)

    async with aclosing(log.read(start.begin, end)) as batches:
        async for batch in batches:
            for offset, logged in _settled(fold, batch, watch):
                await hand_out(logged)
                log.progress.at(offset + 1)
            # No later decision can be in the window.
            if is_after:
                break
    if not is_after and (last := fold.finish()) is not None:
        await hand_out(last)
    _require_met(window)
    return done


async def require_verified(log: StreamLog, stream: str, start: Start, forged: Collection[str]) -> None:
    """Refuse a log with unverified or unsigned records after its start, if signing is required.

    Raises ReplayRefused, KafkaError, TimeoutError.
    """
    if not log.must_verify:
        return
    found = Unverified(stream)
    async with aclosing(log.read(start.begin, await log.end())) as batches:
        async for batch in batches:
            for each in batch:
                if each.offset > start.applied:
                    _, flaw = log.decode(each.offset, each.timestamp, each.headers, each.value)
                    found.note(each.offset, each.timestamp, flaw)
    if groups := found.besides(forged):
        told = "; ".join(map(str, groups))
        raise ReplayRefused(f"the log of stream {stream} cannot be verified: {told}. {way_out(groups)}")


def _settled(
    fold: LogFold, batch: Sequence[ConsumerRecord], watch: Callable[[Step], None]
) -> Iterator[tuple[int, LoggedDecision]]:
    """Fold a batch; yield the decisions that no later record can change, with the offsets that show it."""
    for record in batch:
        step = fold.read(record.offset, record.timestamp, record.headers, record.value)
        if step is not None:
            watch(step)
            if step.settled is not None:
                yield record.offset, step.settled


def _require_met(window: Window) -> None:
    """Refuse a window with a checkpoint that no decision includes. Raises ReplayRefused."""
    if (mark := window.unmet()) is not None:
        raise ReplayRefused(
            f"no decision of the log includes checkpoint {mark.checkpoint} of region {mark.region}"
            + (f", incarnation {mark.incarnation}" if mark.incarnation else "")
            + ". It may not be decided yet, or was discarded. List every decision with the option --all"
        )
