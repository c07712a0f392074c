"""Texts of all regions: source offsets, and the state of listeners. Their sum has a limit.

A state record has them all, up to four times while a decision is unresolved, and has to fit into one message.
So no cut may take more of them along than that. The limit counts at the decision, by the log alone, so all
readers agree. A region with too much stays at its position, with a condition, and the others commit.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import RegionState
from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import Position
from sluicegate.events.problems import Code, Problem

MOST: Final = 256 << 10
"""Bytes of JSON of all texts. A topic takes messages of 1 MiB by default."""
_LONGEST: Final = 6
"""Bytes of JSON that one character has at most."""

_Texts = tuple[str | None, Mapping[str, str]]
"""Source offsets and states of listeners, at one position."""


def problem_of(log: Log, moves: Mapping[str, Position]) -> Problem | None:
    """Return the reason if a cut would have too much text; one with less than before never has."""
    texts = _after(log, moves)
    if _fits(texts) or (found := _sum(texts)) <= max(MOST, _sum(_after(log, {}))):
        return None
    largest = max(moves, key=lambda name: _size(texts[name]))
    return Problem(code=Code.TEXTS_TOO_LARGE, region=largest, number=found, other=MOST)


def fitting(log: Log, moves: Mapping[str, Position]) -> dict[str, Position]:
    """Return these moves without those that have too much text, the largest first."""
    return _Sizes(log, moves).kept


def problems(log: Log) -> Iterator[Problem]:
    """Yield the regions of which the newest sealed checkpoint has too much text."""
    moves = {name: sealed[-1].position for name in log.state.regions if (sealed := log.sealed(name))}
    sizes = _Sizes(log, moves)
    for name in moves.keys() - sizes.kept.keys():
        if (found := sizes.total + sizes.growth(name)) > sizes.limit:
            yield Problem(code=Code.TEXTS_TOO_LARGE, region=name, number=found, other=MOST)


class _Sizes:
    """Moves that fit, and bytes of JSON. Each text is measured once: regions are many, and texts are long."""

    def __init__(self, log: Log, moves: Mapping[str, Position]) -> None:
        self.kept = dict(moves)
        texts = _after(log, moves)
        if _fits(texts):
            return
        self._before = {name: _size(each) for name, each in _after(log, {}).items()}
        self._after = {name: _size(each) for name, each in texts.items()}
        self.limit = max(MOST, sum(self._before.values()))
        self.total = sum(self._after.values())
        """Bytes after the moves that are kept."""
        for name in sorted(moves, key=lambda name: -self._after[name]):
            if self.total <= self.limit:
                return
            self.total -= self.growth(name)
            del self.kept[name]

    def growth(self, name: str) -> int:
        """Return the bytes by which the move of a region makes its texts longer."""
        return self._after[name] - self._before[name]


def _after(log: Log, moves: Mapping[str, Position]) -> dict[str, _Texts]:
    """Return the texts of all regions after these moves."""
    return {
        name: _moved(region, log.pending[name].upto(moves[name]))
        if name in moves and name in log.pending
        else (region.source_offsets, region.listeners)
        for name, region in log.state.regions.items()
    }


def _moved(region: RegionState, sealed: Sequence[Sealed]) -> _Texts:
    offsets, listeners = region.source_offsets, region.listeners
    for each in sealed:
        if (body := each.checkpoint.body) is not None:
            offsets = body.source_offsets
            listeners = {**listeners, **body.listeners} if body.listeners else listeners
    return offsets, listeners


def _fits(texts: Mapping[str, _Texts]) -> bool:
    """True if the number of characters alone shows that the texts fit."""
    found = 0
    for offsets, listeners in texts.values():
        found += len(offsets or "") + sum(map(len, chain.from_iterable(listeners.items())))
    return found * _LONGEST <= MOST


def _sum(texts: Mapping[str, _Texts]) -> int:
    return sum(map(_size, texts.values()))


def _size(texts: _Texts) -> int:
    return len(json.dumps(texts, ensure_ascii=False).encode())
