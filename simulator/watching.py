"""Counts the ways from one state to another that coordinators go, and refuses those that are in no table."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

from sluicegate.coordinator.core.effects import Effect, Result
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.observer import Change, Observer
from sluicegate.coordinator.core.transitions import TABLES, Transition, allowed
from sluicegate.simulator.violation import Violation


def name_of(kind: str, transition: Transition) -> str:
    """A transition as one line."""
    sources, targets = ("/".join(states) for states in (transition.sources, transition.targets))
    return f"{kind}: {sources} -> {targets} ({transition.by})"


WAYS: Final = tuple(name_of(kind, each) for kind, table in TABLES.items() for each in table)
"""All transitions of all tables."""


@cache
def _names(kind: str, before: str, after: str) -> tuple[str, ...]:
    return tuple(name_of(kind, each) for each in allowed(kind, before, after))


class Watching:
    """One coordinator under observation."""

    def __init__(self, machine: StreamMachine, coverage: Counter[str]) -> None:
        self._observer = Observer(machine)
        self._coverage = coverage

    def read(self) -> None:
        """It has read a record."""
        self._take(self._observer.look())

    def handed(self, effects: Iterable[Effect]) -> None:
        """It wants these done."""
        for effect in effects:
            self._take(self._observer.handed(effect))

    def finished(self, effect: Effect, result: Result) -> None:
        """It has heard of an outcome."""
        self._take(self._observer.finished(effect, result))

    def _take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            names = _names(change.kind, change.before, change.after)
            if not names:
                what = f"{change.kind} {change.name} goes from {change.before} to {change.after}"
                raise Violation("table", f"{what}, which is no transition")
            self._coverage.update(names)
