"""Conditions: the one answer to the question why a stream, or a region of it, does not progress.

Status, the view and notifications about stalls show this list. Nothing is decided by it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sluicegate.coordinator.core.commands import unreached
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.overdue import Overdue
from sluicegate.coordinator.core.retry import Retries
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.problems import Code, Problem


@dataclass(frozen=True, slots=True)
class Conditions:
    """The parts of one stream's machine that can keep it from progress."""

    log: Log
    retries: Retries
    overdue: Overdue
    excluded: Mapping[str, Problem]
    """Regions whose files the table would not take."""
    refused: Mapping[str, Problem]
    """By region, the refusal of its newest registration."""
    strays: Mapping[str, Problem]
    """Regions that have ended, and of which a query still runs."""

    def stalls(self, stall: Problem | None) -> list[Problem]:
        """Return the problems of the conditions that are stalls, the gravest first."""
        found = [stall] if stall is not None else []
        found += [each.problem for each in self.retries.conditions() if each.kind == "stall"]
        return [*found, *self._of_regions()]

    def all(self, stall: Problem | None, retry_in: int) -> list[Condition]:
        """Return every condition, the gravest first; `stall` is that of the whole stream."""
        found = [Condition(kind="stall", problem=stall, retry_in=retry_in)] if stall is not None else []
        found += self.retries.conditions()
        if self.log.state.paused:
            found.append(Condition(kind="pause", problem=Problem(code=Code.PAUSED)))
        found += [Condition(kind="stall", problem=each) for each in self._of_regions()]
        found += [Condition(kind="refusal", problem=each) for each in self._refusals()]
        found += [Condition(kind="refusal", problem=each) for each in self.strays.values()]
        lagging = tuple(self.log.lagging())
        if lagging and any(self.log.sealed(name) for name in self.log.state.regions):
            problem = Problem(code=Code.WAITS_FOR_REGIONS, names=lagging)
            found.append(Condition(kind="wait", problem=problem))
        return [*found, *self._orders()]

    def _orders(self) -> Iterator[Condition]:
        """Yield what savepoints and drains wait for."""
        for each in self.log.state.savepoints:
            code = Code.DRAIN_WAITS if each.drain else Code.SAVEPOINT_WAITS
            names = (each.name, *unreached(self.log.state, each))
            yield Condition(kind="wait", problem=Problem(code=code, names=names))

    def _of_regions(self) -> Iterator[Problem]:
        for region in self.log.state.regions.values():
            if region.fault is not None:
                yield region.fault
        yield from self.overdue.problems()
        yield from self.excluded.values()

    def _refusals(self) -> Iterable[Problem]:
        """Yield the refusals in regions of the assignment; before the first one, all of them."""
        assignment = self.log.state.assignment
        for name, problem in self.refused.items():
            if assignment is None or name in assignment.regions:
                yield problem
