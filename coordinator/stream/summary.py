"""Summaries of commits: counts, times and partitions, for people and listeners.

No commit is decided from them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import structlog

from sluicegate.coordinator.core.effects import Append
from sluicegate.coordinator.core.log import Log, Sealed
from sluicegate.coordinator.core.state import Decision
from sluicegate.events.codec import read_files
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CommitSummary, CutCommitted, CutDecided, FilesOfSize, FilesWritten
from sluicegate.events.problems import Problem
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent
from sluicegate.lakes.port import Checked

# Counts of a commit, for logs, metrics and its summary.

Event = FilesWritten | Checked
"""The files of an event, before or after the check of a committer."""
NAMED: Final = 256
"""Bytes of memory that one entry of sizes takes, about. The text of a partition is in memory once for all."""
LONGEST: Final = 64 << 10
"""Characters of all partitions that an outcome names. A message of Kafka has a limit."""
MOST_SIZES: Final = 4_000
"""Number of entries of sizes that an outcome has, about 50 characters each."""
_LARGEST: Final = 1 << 62

Sizes = Mapping[tuple[str, int], tuple[int, int]]
"""Number and bytes of files, by partition and by the power of two that is the next above their sizes.

A partition is a JSON text that is the same for the same values.
"""


def sizes_of(event: FilesWritten) -> Sizes:
    """Return the partitions that get files, and the sizes of these."""
    names: dict[tuple[tuple[str, str | None], ...], str] = {}
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for file in event.files:
        values = tuple(sorted(file.partition.items()))
        if (name := names.get(values)) is None:
            name = names[values] = sys.intern(json.dumps(file.partition, sort_keys=True))
        key = name, min(1 << file.size.bit_length(), _LARGEST)
        count, size = found.get(key, (0, 0))
        found[key] = count + 1, size + file.size
    return found


def add_sizes(total: dict[tuple[str, int], tuple[int, int]], more: Sizes) -> None:
    """Add sizes to a total."""
    for key, (count, size) in more.items():
        before = total.get(key, (0, 0))
        total[key] = before[0] + count, before[1] + size


class Touched(NamedTuple):
    """The partitions of a commit as its summary has them."""

    partitions: int
    values: tuple[dict[str, str | None], ...] | None
    """In a fixed order; None if there are too many for one message."""
    sizes: tuple[tuple[FilesOfSize, ...], ...] | None
    """In the same order; None if there are too many for one message."""


def touched(sizes: Sizes) -> Touched:
    """Return the partitions of a commit as its summary has them."""
    parts: dict[str, list[FilesOfSize]] = {}
    for (name, below), (count, size) in sorted(sizes.items()):
        parts.setdefault(name, []).append(FilesOfSize(below=below, files=count, bytes=min(size, _LARGEST)))
    if sum(map(len, parts)) > LONGEST:
        return Touched(len(parts), None, None)
    known = tuple(map(tuple, parts.values())) if len(sizes) <= MOST_SIZES else None
    return Touched(len(parts), tuple(json.loads(name) for name in parts), known)


@dataclass
class Tally:
    """The rows, bytes and partitions of the files that a decision commits."""

    decision: int
    events: int = 0
    rows: int = 0
    size: int = 0
    sizes: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, event: Event, sizes: Sizes) -> None:
        """Count the files of an event."""
        self.events += 1
        add_sizes(self.sizes, sizes)
        if isinstance(event, Checked):
            self.rows += event.rows
            self.size += event.size
        else:
            self.rows += sum(each.rows for each in event.files)
            self.size += sum(each.size for each in event.files)


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
        made, body = log.state.unresolved, effect.body
        visible = self._visible.get(made.id) if made is not None else None
        if not isinstance(body, CutCommitted) or made is None or made.id != body.decision or visible is None:
            return effect
        included = list(chain.from_iterable(log.taken_checkpoints.values()))
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
    most, before = log.state.policy.max_consecutive_fallbacks, made.before.regions
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
        if event.envelope.table:
            # The partitions are those of the anchor.
            continue
        files = read_files(event.envelope, event.body)
        if isinstance(files, Problem):
            return None
        add_sizes(found, sizes_of(files))
    return found
