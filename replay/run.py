"""One pass over a log: decisions in order, each once no later record can change it."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from aiokafka import ConsumerRecord

from sluicegate.replay.base import Base
from sluicegate.replay.course import Course, LogStartsLate, Settled, Taken
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog
from sluicegate.replay.marks import Window
from sluicegate.replay.progress import Progress

Sink = Callable[[Settled], Awaitable[None]]
Watch = Callable[[ConsumerRecord, Taken], None]
Say = Callable[[str], None]


@dataclass
class Pass:
    """Result of a pass over a log."""

    course: Course
    base: Base
    end: int
    """End offset of the pass."""
    first: int | None = None
    """The first and the last decision in the window."""
    last: int | None = None
    decisions: int = 0


async def run_over(
    log: StreamLog,
    stream: str,
    choices: list[Base],
    end: int,
    window: Window,
    sink: Sink,
    *,
    say: Say,
    watch: Watch | None = None,
) -> Pass:
    """Read the log once to `end`, from the best possible base; pass decisions in the window to the sink.

    Raises ReplayRefused, KafkaError, TimeoutError.
    """
    for number, base in enumerate(choices):
        try:
            course = Course(stream, base.record, base.begin)
            return await _run(log, course, base, end, window, sink, say, watch)
        except LogStartsLate as error:
            # It is raised before the first decision, so the sink has received nothing.
            if number == len(choices) - 1:
                raise ReplayRefused(str(error)) from error
    raise ReplayRefused("there is nothing to read from")


async def _run(
    log: StreamLog,
    course: Course,
    base: Base,
    end: int,
    window: Window,
    sink: Sink,
    say: Say,
    watch: Watch | None,
) -> Pass:
    done = Pass(course, base, end)
    progress = Progress(say, "reading the log", base.begin, end)
    beyond = False

    async def hand_out(settled: tuple[Settled, ...]) -> None:
        nonlocal beyond
        for each in settled:
            place = window.place(each)
            beyond = beyond or place == "after"
            if place == "in":
                done.first = each.decision.id if done.first is None else done.first
                done.last = each.decision.id
                done.decisions += 1
                await sink(each)

    await hand_out(course.start())
    async with aclosing(log.read(base.begin, end, progress)) as batches:
        async for batch in batches:
            for record in batch:
                taken = course.take(record.offset, record.timestamp, record.headers, record.value)
                if taken is not None and watch is not None:
                    watch(record, taken)
                if taken is not None and taken.settled:
                    await hand_out(taken.settled)
            # No later decision can be in the window.
            if beyond:
                break
    if not beyond:
        await hand_out(course.finish())
    if (mark := window.unmet()) is not None:
        raise ReplayRefused(
            f"no decision of the log includes checkpoint {mark.checkpoint} of region {mark.region}"
            + (f", lineage {mark.lineage}" if mark.lineage else "")
        )
    return done
