"""Size limits of one commit: it takes the checkpoints that fit, and the others wait for the next one.

A region whose first checkpoint does not fit is excluded, with a code; nothing is lost. The limits only narrow
the proposals of this coordinator. A decision in the log is executed independent of its size. So two
coordinators with different limits still commit the same content.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import NamedTuple

from sluicegate.coordinator.core.cuts import checkpoints_in
from sluicegate.coordinator.core.log import Log, Sealed
from sluicegate.events.models import Position
from sluicegate.events.problems import Code, Problem


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
