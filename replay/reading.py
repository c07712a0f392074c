"""One pass over a log: its decisions in order, each once no later record can change it."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from aiokafka import ConsumerRecord

from sluicegate.coordinator.telemetry.wording import duration
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.fold import LogFold, LoggedDecision, Start, Step
from sluicegate.replay.window import Window

Sink = Callable[[LoggedDecision], Awaitable[None]]
Print = Callable[[str], None]

INTERVAL: Final = 5.0
"""Seconds between two progress lines."""


class Log(Protocol):
    """The partition of one stream."""

    partition: int

    async def end(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        ...

    def read(self, start: int, end: int) -> AsyncGenerator[Sequence[ConsumerRecord], None]:
        """Yield the records from `start` to before `end`, once, in order. Raises KafkaError, TimeoutError."""
        ...

    async def bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        """Read the `files.written` at these offsets. Raises BodyUnavailable, KafkaError, TimeoutError."""
        ...


class Progress:
    """Prints the progress through a range at most every `interval` seconds."""

    def __init__(self, show: Print, what: str, start: int, end: int, interval: float = INTERVAL) -> None:
        self._show = show
        self._what = what
        self._start, self._end = start, end
        self._interval = interval
        self._begun = self._shown = time.monotonic()

    def at(self, position: int) -> None:
        """Note that every offset before `position` is read."""
        now = time.monotonic()
        done, whole = position - self._start, self._end - self._start
        if now - self._shown < self._interval or done <= 0 or position >= self._end:
            return
        self._shown = now
        left = (now - self._begun) * (whole - done) / done
        self._show(f"{self._what}: {done:,} of {whole:,} ({done / whole:.0%}), about {duration(left)} left")


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


async def read_decisions(
    log: Log,
    stream: str,
    start: Start,
    end: int,
    window: Window,
    sink: Sink,
    show: Print,
    watch: Callable[[Step], None] = lambda step: None,
) -> Reading:
    """Read the log once to `end`, and pass the decisions in the window to the sink.

    Raises ReplayRefused, KafkaError, TimeoutError.
    """
    fold = LogFold(stream, log.partition, start)
    done = Reading(fold, end)
    progress = Progress(show, "reading the log", start.begin, end)
    is_after = False

    async def hand_out(logged: LoggedDecision | None) -> None:
        nonlocal is_after
        place = window.place(logged) if logged is not None else "before"
        is_after = is_after or place == "after"
        if place == "in" and logged is not None:
            done.first = logged.decision.id if done.first is None else done.first
            done.last = logged.decision.id
            done.decisions += 1
            await sink(logged)

    async with aclosing(log.read(start.begin, end)) as batches:
        async for batch in batches:
            for record in batch:
                step = fold.read(record.offset, record.timestamp, record.headers, record.value)
                if step is not None:
                    watch(step)
                    await hand_out(step.settled)
            progress.at(batch[-1].offset + 1)
            # No later decision can be in the window.
            if is_after:
                break
    if not is_after:
        await hand_out(fold.finish())
    if (mark := window.unmet()) is not None:
        raise ReplayRefused(
            f"no decision of the log includes checkpoint {mark.checkpoint} of region {mark.region}"
            + (f", incarnation {mark.incarnation}" if mark.incarnation else "")
            + ". It may not be decided yet, or was discarded. List every decision with the option --all"
        )
    return done
