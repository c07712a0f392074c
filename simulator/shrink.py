"""Makes a failing plan short: what can be left out, so that the same invariant still breaks, is left out."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sluicegate.simulator.plan import Plan, Setting, Step
from sluicegate.simulator.schedule import Schedule
from sluicegate.simulator.violation import Violation

PATIENCE = 1_500
"""How many plans are tried at most."""


class Failure(NamedTuple):
    """A plan that breaks an invariant, and what happened, in plain words."""

    plan: Plan
    violation: Violation
    story: tuple[str, ...]


class Shrinker:
    """Tries smaller plans as long as the same invariant breaks."""

    def __init__(self, failing: Plan, invariant: str, patience: int = PATIENCE) -> None:
        self.best = failing
        self._invariant = invariant
        self._left = patience

    def run(self) -> Plan:
        """Shrink until nothing more can be left out, or patience ends."""
        self._cut_off()
        before = None
        while before != self.best and self._left > 0:
            before = self.best
            self._leave_out()
            self._simplify_setting()
            self._simplify_steps()
        return self.best

    def _holds(self, plan: Plan) -> bool:
        """Whether a plan still breaks the invariant; it is the best then."""
        if self._left <= 0:
            return False
        self._left -= 1
        schedule, broken = attempt(plan)
        if broken is None or broken.invariant != self._invariant:
            return False
        # Steps after the one that fails do not matter.
        self.best = replace(plan, steps=plan.steps[: schedule.taken])
        return True

    def _cut_off(self) -> None:
        self._holds(self.best)

    def _leave_out(self) -> None:
        """Delta debugging over the steps: ever smaller pieces are left out."""
        size = max(1, len(self.best.steps) // 2)
        while size >= 1:
            at = 0
            while at < len(self.best.steps):
                steps = self.best.steps
                if not self._holds(replace(self.best, steps=steps[:at] + steps[at + size :])):
                    at += size
            size //= 2

    def _simplify_setting(self) -> None:
        for simpler in _simpler_settings(self.best.setting):
            self._holds(replace(self.best, setting=simpler))

    def _simplify_steps(self) -> None:
        for place in range(len(self.best.steps)):
            if place >= len(self.best.steps):
                return
            step, steps = self.best.steps[place], self.best.steps
            if step.after > 1:
                calm: Step = step._replace(after=1)
                self._holds(replace(self.best, steps=(*steps[:place], calm, *steps[place + 1 :])))


def _simpler_settings(setting: Setting) -> Iterator[Setting]:
    changes: list[Callable[[Setting], Setting]] = [
        lambda old: replace(old, coordinators=1),
        lambda old: replace(old, coordinators=max(1, old.coordinators - 1)),
        lambda old: replace(old, regions=1),
        lambda old: replace(old, regions=max(1, old.regions - 1)),
        lambda old: replace(old, items=2),
        lambda old: replace(old, items=max(1, old.items // 2)),
        lambda old: replace(old, sink="independent"),
        lambda old: replace(old, partial=False),
        lambda old: replace(old, unbounded=False),
        lambda old: replace(old, owned=True),
        lambda old: replace(old, memory=1_000),
    ]
    for change in changes:
        changed = change(setting)
        if changed != setting:
            yield changed


def attempt(plan: Plan, story: list[str] | None = None) -> tuple[Schedule, Violation | None]:
    """Run a plan; whatever the product or the simulator raises counts as a violation."""
    schedule = Schedule(plan, story=story)
    try:
        schedule.run()
    except Violation as broken:
        return schedule, broken
    except Exception as error:
        return schedule, Violation("crash", repr(error))
    return schedule, None


def shrink(plan: Plan, violation: Violation, patience: int = PATIENCE) -> Failure:
    """The shortest plan that was found to break the same invariant, with its story."""
    best = Shrinker(plan, violation.invariant, patience).run()
    story: list[str] = []
    _, broken = attempt(best, story)
    return Failure(best, broken or violation, tuple(story))
