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
from sluicegate.events.models import (
    CommitSummary,
    CutCommitted,
    CutDecided,
    FilesOfSize,
    FilesWritten,
    TableSummary,
)
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
    """The partitions of one table in a commit as its summary has them."""

    partitions: int
    values: tuple[dict[str, str | None], ...] | None
    """In a fixed order; None if there are too many for one message."""
    sizes: tuple[tuple[FilesOfSize, ...], ...] | None
    """In the same order; None if there are too many for one message."""


def touched(tables: Mapping[str, Sizes]) -> dict[str, Touched]:
    """Return the partitions of a commit, by table, as its summary has them. They share the room of it."""
    names = {table: {name for name, _ in sizes} for table, sizes in tables.items()}
    named = sum(len(name) for each in names.values() for name in each) <= LONGEST
    sized = sum(map(len, tables.values())) <= MOST_SIZES
    return {table: _touched(sizes, named=named, sized=sized) for table, sizes in tables.items()}


def _touched(sizes: Sizes, *, named: bool, sized: bool) -> Touched:
    parts: dict[str, list[FilesOfSize]] = {}
    for (name, below), (count, size) in sorted(sizes.items()):
        parts.setdefault(name, []).append(FilesOfSize(below=below, files=count, bytes=min(size, _LARGEST)))
    if not named:
        return Touched(len(parts), None, None)
    known = tuple(map(tuple, parts.values())) if sized else None
    return Touched(len(parts), tuple(json.loads(name) for name in parts), known)


@dataclass
class Counts:
    """Counts of one table in a decision."""

    rows: int = 0
    size: int = 0
    sizes: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


@dataclass
class Tally:
    """The files that a decision commits."""

    decision: int
    events: int = 0
    tables: dict[str, Counts] = field(default_factory=dict)
    """By name; the empty one is the stream's own table."""

    def add(self, event: Event, sizes: Sizes, table: str) -> None:
        """Count the files of an event. `sizes`: of the partitions that get them."""
        self.events += 1
        counts = self.tables.setdefault(table, Counts())
        add_sizes(counts.sizes, sizes)
        if isinstance(event, Checked):
            counts.rows += event.rows
            counts.size += event.size
        else:
            counts.rows += sum(each.rows for each in event.files)
            counts.size += sum(each.size for each in event.files)

    @property
    def rows(self) -> int:
        """Return the rows in all tables."""
        return sum(each.rows for each in self.tables.values())

    @property
    def size(self) -> int:
        """Return the bytes in all tables."""
        return sum(each.size for each in self.tables.values())


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

        A commit of a former owner is in the table without its counts here, so its events are read again.
        Until the outcome is in the log, nothing deletes them. Raises KafkaError or
        TimeoutError.
        """
        made, body = log.state.unresolved, effect.body
        visible = self._visible.get(made.id) if made is not None else None
        if not isinstance(body, CutCommitted) or made is None or made.id != body.decision or visible is None:
            return effect
        included = list(chain.from_iterable(log.taken_checkpoints.values()))
        tally = self._tally if self._tally is not None and self._tally.decision == made.id else None
        content = _content(tally or await _counted(made, read), included)
        known = {name: log.state.registered(name, each) or each for name, each in made.tables.items()}
        summary = CommitSummary(
            table=self._table,
            **content(""),
            tables={
                name: TableSummary(table=each.terms.location, **content(name)) for name, each in known.items()
            },
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


def _content(tally: Tally | None, included: list[Sealed]) -> Callable[[str], dict[str, Any]]:
    """Return a function that gives what a decision adds to a table, by its name.

    Without a tally, the counts are those that the events state, as far as their checkpoints are known.
    """
    if tally is None:
        events = [part for each in included for part in each.checkpoint.named]

        def stated(name: str) -> dict[str, Any]:
            own = [part for part in events if part.table == name]
            counts = {"files": sum(each.files for each in own), "rows": sum(each.rows for each in own)}
            return {key: _countable(each) if included else None for key, each in counts.items()}

        return stated
    parts = touched({name: each.sizes for name, each in tally.tables.items()})

    def counted(name: str) -> dict[str, Any]:
        own, part = tally.tables.get(name, Counts()), parts.get(name, Touched(0, (), ()))
        return {
            "files": sum(count for count, _ in own.sizes.values()),
            "rows": _countable(own.rows),
            "bytes": _countable(own.size),
            "partitions": part.partitions,
            "touched": part.values,
            "sizes": part.sizes,
        }

    return counted


def _countable(number: int) -> int | None:
    """Return a sum of what events state; None if it is larger than an outcome may have."""
    return number if number < 2**63 else None


async def _counted(made: Decision, read: Read) -> Tally | None:
    """Return the tally of a decision whose events are read again; None if one cannot be read any more."""
    tally, left = Tally(made.id), sorted(made.parts)
    try:
        while left:
            events = await read(left[:AT_ONCE])
            if not await asyncio.to_thread(_count, tally, list(events.values())):
                return None
            left = [offset for offset in left if offset not in events]
    except BodyUnavailable as error:
        _log.warning("contents of a commit unknown", cause=error.cause.code)
        return None
    return tally


def _count(tally: Tally, events: Iterable[WrittenEvent]) -> bool:
    """Count the files of events; False if one cannot be read."""
    for event in events:
        files = read_files(event.envelope, event.body)
        if isinstance(files, Problem):
            return False
        tally.add(files, sizes_of(files), event.envelope.table)
    return True
