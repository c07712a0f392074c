"""Summaries of commits: counts, times and partitions, for people and listeners.

No commit is decided from them.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import structlog

from sluicegate.coordinator.core.effects import Append
from sluicegate.coordinator.core.log import Log, Sealed
from sluicegate.coordinator.core.state import Decision
from sluicegate.coordinator.stream.tally import Sizes, Tally, add_sizes, sizes_of, touched
from sluicegate.events.codec import read_files
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CommitSummary, CutCommitted, CutDecided
from sluicegate.events.problems import Problem
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent

_log = structlog.get_logger(__name__)

AT_ONCE: Final = 500
"""Number of events that are read at a time."""

Read = Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, WrittenEvent]]]
"""Return the events at the first of these offsets, at least one.

Raises BodyUnavailable, KafkaError or TimeoutError.
"""


class Summaries:
    """Observations of the unresolved decision of one stream, beside the state of the core."""

    def __init__(self, table: str) -> None:
        """`table` is the URI of the stream's table."""
        self._table = table
        self._decided: dict[int, int] = {}
        """Append time of the newest decision, by its id."""
        self._visible: dict[int, int] = {}
        """Time at which the commit of the newest decision was seen, by its id."""
        self._tally: Tally | None = None

    def decided(self, record: LogRecord) -> None:
        """Note the time of a decision."""
        if isinstance(record.body, CutDecided):
            self._decided = {record.body.decision: record.time}

    def seen(self, decision: int, tally: Tally | None) -> None:
        """Note that a commit is visible now; `tally`: of the last publication."""
        self._visible = {decision: time.time_ns() // 1_000_000}
        self._tally = tally

    async def complete(self, effect: Append, log: Log, read: Read) -> Append:
        """Return the event to be appended, with the summary if it is the outcome of the log's decision.

        A commit of a former owner is in the table without its counts here, so its events are read again for
        its partitions. Until the outcome is in the log, nothing deletes them. Raises KafkaError or
        TimeoutError.
        """
        made, body = log.state.pending, effect.body
        visible = self._visible.get(made.id) if made is not None else None
        if not isinstance(body, CutCommitted) or made is None or made.id != body.decision or visible is None:
            return effect
        included = list(chain.from_iterable(log.included.values()))
        tally = self._tally if self._tally is not None and self._tally.decision == made.id else None
        sizes = tally.sizes if tally else await _sizes(made.parts, read)
        parts = touched(sizes) if sizes is not None else None
        summary = CommitSummary(
            table=self._table,
            rows=_countable(tally.rows if tally else _rows(included)),
            bytes=_countable(tally.size if tally else None),
            partitions=parts.partitions if parts is not None else None,
            touched=parts.values if parts is not None else None,
            sizes=parts.sizes if parts is not None else None,
            moved=tuple(sorted(made.moves)),
            forced=is_forced(log, made),
            previous=made.head,
            first_event=min((each.checkpoint.first_time for each in included), default=None),
            sealed=max((each.time for each in included), default=None),
            decided=self._decided.get(made.id),
            visible=visible,
        )
        return Append(effect.type, body.model_copy(update={"summary": summary}))


def is_forced(log: Log, made: Decision) -> bool:
    """True for a full cut that had to be full: a region had fallen back as often as the policy allows."""
    policy, before = log.state.policy, made.before.regions
    most = policy.max_consecutive_fallbacks if policy is not None else 1
    return not made.fallbacks and any(before[name].fallbacks >= most for name in made.moves)


def _countable(number: int | None) -> int | None:
    """Return a sum of what events state; None if it is larger than an outcome may have."""
    return number if number is not None and number < 2**63 else None


def _rows(included: list[Sealed]) -> int | None:
    """Return the rows by the events' own counts; None if the checkpoints are not known any more."""
    return sum(part.rows for each in included for part in each.checkpoint.named) if included else None


async def _sizes(offsets: Sequence[int], read: Read) -> Sizes | None:
    """Return the sizes of the events at these offsets; None if one cannot be read any more."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    left = sorted(offsets)
    try:
        while left:
            events = await read(left[:AT_ONCE])
            sizes = await asyncio.to_thread(_sizes_in, list(events.values()))
            if sizes is None:
                return None
            add_sizes(found, sizes)
            left = [offset for offset in left if offset not in events]
    except BodyUnavailable as error:
        _log.warning("partitions of a commit unknown", cause=error.cause.code)
        return None
    return found


def _sizes_in(events: Iterable[WrittenEvent]) -> Sizes | None:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for event in events:
        files = read_files(event.envelope, event.body)
        if isinstance(files, Problem):
            return None
        add_sizes(found, sizes_of(files))
    return found
