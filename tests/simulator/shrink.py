"""Shrinking: a failing plan without every step and setting that the failure does not need."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from tests.simulator.plan import Plan
from tests.simulator.setting import simpler
from tests.simulator.violation import Violation

PATIENCE: Final = 1_500
"""Number of plans that are tried at most."""


class Run(Protocol):
    """A plan that has run."""

    steps: int


Attempt = Callable[[Plan, list[str] | None], tuple[Run, Violation | None]]
"""Runs a plan, with a list for its story, and returns the invariant that it breaks."""


class Failure(NamedTuple):
    """A plan that breaks an invariant, and its story in plain words."""

    plan: Plan
    violation: Violation
    story: tuple[str, ...]


class Shrinker:
    """Tries smaller plans while the same invariant breaks."""

    def __init__(self, failing: Plan, invariant: str, attempt: Attempt, patience: int = PATIENCE) -> None:
        self.best = failing
        self._attempt = attempt
        self._invariant = invariant
        self._left = patience

    def run(self) -> Plan:
        """Shrink until nothing more can be left out, or until patience ends."""
        self._cut_off()
        before = None
        while before != self.best and self._left > 0:
            before = self.best
            self._leave_out()
            self._simplify_setting()
            self._simplify_steps()
        return self.best

    def _holds(self, plan: Plan) -> bool:
        """Return whether a plan still breaks the invariant; it is the best then."""
        if self._left <= 0:
            return False
        self._left -= 1
        run, broken = self._attempt(plan, None)
        if broken is None or broken.invariant != self._invariant:
            return False
        # Steps after the one that fails do not matter.
        self.best = replace(plan, steps=plan.steps[: run.steps])
        return True

    def _cut_off(self) -> None:
        self._holds(self.best)

    def _leave_out(self) -> None:
        """Leave out ever smaller pieces of the steps (delta debugging)."""
        size = max(1, len(self.best.steps) // 2)
        while size >= 1:
            at = 0
            while at < len(self.best.steps):
                steps = self.best.steps
                if not self._holds(replace(self.best, steps=steps[:at] + steps[at + size :])):
                    at += size
            size //= 2

    def _simplify_setting(self) -> None:
        for changed in simpler(self.best.setting):
            self._holds(replace(self.best, setting=changed))

    def _simplify_steps(self) -> None:
        for place in range(len(self.best.steps)):
            if place >= len(self.best.steps):
                return
            steps = self.best.steps
            if steps[place].after > 1:
                calm = replace(steps[place], after=1)
                self._holds(replace(self.best, steps=(*steps[:place], calm, *steps[place + 1 :])))


def shrink(plan: Plan, violation: Violation, attempt: Attempt) -> Failure:
    """Return the shortest plan that was found to break the same invariant, with its story."""
    best = Shrinker(plan, violation.invariant, attempt).run()
    story: list[str] = []
    _, broken = attempt(best, story)
    return Failure(best, broken or violation, tuple(story))
