"""Files of one stream's events, from the arrival of an event until the table has its files.

The limits of size: a commit takes the checkpoints that fit, and the others wait for the next one. A region
whose first checkpoint does not fit is excluded, with a code; nothing is lost. The limits only narrow the
proposals of this coordinator. A decision in the log is executed independent of its size. So two coordinators
with different limits still commit the same content.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Final, NamedTuple

from sluicegate.coordinator.core.cuts import checkpoints_in
from sluicegate.coordinator.core.effects import CheckFiles, FilesChecked, Publish, Result
from sluicegate.coordinator.core.log import Log, Sealed
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.account import account_of
from sluicegate.coordinator.stream.links import Links, LogPartition
from sluicegate.coordinator.stream.prechecks import EarlyChecks, Known, Terms
from sluicegate.coordinator.stream.table import StreamTable, Supply
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Position, StreamPolicy
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import Bodies, WrittenEvent

FETCHED_AT_ONCE: Final = 16 << 20
"""Bytes of bodies that are fetched into memory for one step of a check or a commit."""


class Limits(NamedTuple):
    """Limits of one commit."""

    files: int
    """Files of one checkpoint."""
    size: int
    """Bytes of all events."""


class Fit(NamedTuple):
    """The part of a cut that is within the limits."""

    upto: dict[str, Position]
    """By region, how far it can move now; only those that cannot move all the way."""
    problems: dict[str, Problem]
    """By region, the reason for which it cannot move at all."""


def fit(limits: Limits, log: Log, moves: Mapping[str, Position], size_of: Callable[[int], int]) -> Fit:
    """Return the part of the moves that is within the limits; `size_of` returns the bytes of an event."""
    wanted, problems = checkpoints_in(log, moves), dict[str, Problem]()
    taken = {name: _within(each, limits.files) for name, each in wanted.items()}
    for name, checkpoints in wanted.items():
        if checkpoints and not taken[name]:
            problems[name] = _too_many_files(name, checkpoints[0], limits.files)
    sizes = {name: [_size(each, size_of) for each in checkpoints] for name, checkpoints in taken.items()}
    for name, each in sizes.items():
        if each and each[0] > limits.size:
            problems[name] = _too_many_bytes(name, each[0], limits.size)
            each.clear()
    total = sum(map(sum, sizes.values()))
    # Each region moves, if possible: a cut may have to be full. The largest waits with most checkpoints.
    for name in sorted(sizes, key=lambda each: -sum(sizes[each])):
        while total > limits.size and len(sizes[name]) > 1:
            total -= sizes[name].pop()
    # Excluding few large regions leaves the most regions in the commit.
    for name in sorted(sizes, key=lambda each: -sum(sizes[each])):
        if total > limits.size and (number := sum(sizes[name])):
            total -= number
            problems[name] = _too_many_bytes(name, number, limits.size)
    upto = {
        name: checkpoints[len(sizes[name]) - 1].position
        for name, checkpoints in wanted.items()
        if name not in problems and len(sizes[name]) < len(checkpoints)
    }
    return Fit(upto, problems)


def narrowed(
    log: Log, parts: Mapping[str, tuple[int, ...]], fitting: Fit
) -> tuple[dict[str, tuple[int, ...]], frozenset[int]]:
    """Return the events to check that fit, by region, and the others."""
    kept = dict(parts)
    for name, checkpoints in checkpoints_in(log, fitting.upto).items():
        taken = {part.offset for each in checkpoints for part in each.checkpoint.named}
        kept[name] = tuple(each for each in parts.get(name, ()) if each in taken)
    kept = {name: each for name, each in kept.items() if each and name not in fitting.problems}
    everything = {offset for each in parts.values() for offset in each}
    return kept, frozenset(everything.difference(*kept.values()))


def _within(checkpoints: list[Sealed], limit: int) -> list[Sealed]:
    """Return the checkpoints before the first one with too many files."""
    return list(takewhile(lambda each: _files(each) <= limit, checkpoints))


def _too_many_files(region: str, found: Sealed, limit: int) -> Problem:
    number = found.position.checkpoint
    return Problem(
        code=Code.TOO_MANY_FILES, region=region, checkpoint=number, number=_files(found), other=limit
    )


def _too_many_bytes(region: str, number: int, limit: int) -> Problem:
    return Problem(code=Code.TOO_MANY_BYTES, region=region, number=number, other=limit)


def _files(found: Sealed) -> int:
    return sum(part.files for part in found.checkpoint.named)


def _size(found: Sealed, size_of: Callable[[int], int]) -> int:
    return sum(size_of(part.offset) for part in found.checkpoint.named)


class StreamFiles:
    """The events of one stream that have files, and its table."""

    def __init__(self, settings: StreamSettings, links: Links, partition: LogPartition) -> None:
        self.table = StreamTable(settings, links.threads, links.settings.stall_after)
        self._bodies = Bodies(links.budget)
        self._early = EarlyChecks(self.table, self._bodies, links.budget)
        self._limits = Limits(settings.max_files_per_checkpoint, settings.max_pending_bytes)
        self._links = links
        self._partition = partition

    def arrived(self, offset: int, envelope: Envelope, body: bytes) -> None:
        """Keep the body of an event, and let its files be checked before the decision."""
        self._bodies.keep(offset, envelope, body)
        self._early.arrived(offset)

    def start_checks(self, policy: StreamPolicy) -> asyncio.Task[None] | None:
        """Begin to check the events that wait; None if that is under way, or if there are none."""
        return self._early.start(
            Terms(policy.allowed_locations, policy.file_names == "checked", policy.tables)
        )

    async def check(self, effect: CheckFiles, log: Log) -> Result:
        """Find what could not be committed: what is over the limits first, and the files of the others."""
        fitting = fit(self._limits, log, effect.moves, self._bodies.size)
        parts, left = narrowed(log, effect.parts, fitting)
        offsets = [offset for each in parts.values() for offset in each]
        self._early.leave(offsets)
        with closing(self._supply(offsets)) as bodies:
            known = Known(self._early.passed, self._early.room)
            checked = await self.table.check(replace(effect, parts=parts), bodies, known)
        self._early.keep(self.table.take_passed())
        if isinstance(checked, FilesChecked):
            return FilesChecked({**checked.problems, **fitting.problems}, fitting.upto, left)
        return checked

    async def publish(self, effect: Publish, log: Log) -> Result:
        """Publish a commit with its account."""
        account = account_of(log.stream, log.state, effect.digest)
        with closing(self._supply(effect.offsets)) as bodies:
            return await self.table.publish(effect, bodies, self._early.passed, account)

    def drop(self, offsets: Sequence[int]) -> None:
        """Forget events that are committed, or that no cut will include."""
        self._bodies.drop(offsets)
        self._early.forget(offsets)

    def drop_before(self, first: int) -> None:
        """Forget the events before an offset."""
        self.drop([offset for offset in self._bodies.offsets() if offset < first])

    async def read_bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        """Return the events at the first of these offsets, from memory or fetched again.

        At least one event is returned. Raises BodyUnavailable, KafkaError, TimeoutError.
        """
        if held := self._bodies.first_of(offsets):
            return held
        dropped = list(takewhile(lambda offset: self._bodies.get(offset) is None, offsets))
        fetched = await self._links.fetcher.fetch(self._partition.number, dropped, FETCHED_AT_ONCE)
        self._links.metrics.bodies_refetched.add(len(fetched))
        return fetched

    def stop_checks(self) -> None:
        """Check nothing more before a decision."""
        self._early.stop()

    def drop_all(self) -> None:
        """Release the memory of all bodies."""
        self._bodies.drop_all()

    def _supply(self, offsets: Sequence[int]) -> Supply[WrittenEvent]:
        return Supply(offsets, self._bodies.first_of(sorted(offsets)), self.read_bodies)
