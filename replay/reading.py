"""One pass over a log: its decisions in order, each once no later record can change it."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from aiokafka import ConsumerRecord

from sluicegate.replay.decisions import LoggedDecision, Step
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.fold import LogFold
from sluicegate.replay.log import Log, Print, Progress
from sluicegate.replay.start import Start
from sluicegate.replay.unverified import Unverified
from sluicegate.replay.unverified_advice import way_out
from sluicegate.replay.window import Window

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
    log: Log,
    stream: str,
    start: Start,
    end: int,
    window: Window,
    sink: Sink,
    show: Print,
    watch: Callable[[Step], None] = lambda step: None,
    *,
    accounted: bool = False,
) -> Reading:
    """Read the log once to `end`, and pass the decisions in the window to the sink.

    `accounted`: with their accounts, for a table. Raises ReplayRefused, KafkaError, TimeoutError.
    """
    fold = LogFold(stream, log.partition, start, log.decode, lambda decision: accounted)
    done = Reading(fold, end)
    progress = Progress(show, "reading the log", start.begin, end)
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
                progress.at(offset + 1)
            progress.at(batch[-1].offset + 1)
            # No later decision can be in the window.
            if is_after:
                break
    if not is_after and (last := fold.finish()) is not None:
        await hand_out(last)
    _require_met(window)
    return done


async def require_verified(log: Log, stream: str, start: Start, forged: Collection[str]) -> None:
    """Refuse a log with unverified or unsigned records after its start.

    Raises ReplayRefused, KafkaError, TimeoutError.
    """
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
