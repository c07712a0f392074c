"""Kills the coordinator in the middle of its work, again and again."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluicegate.demo.errors import DemoError
from sluicegate.demo.feed import Feed
from sluicegate.demo.phases import COMMIT_STEPS, START_STEPS, Trace
from sluicegate.demo.services import Coordinator

_FIRST_STEP_SECONDS: Final = 30.0
_HUNT_SECONDS: Final = 4.0
_AT_ANY_TIME: Final = 0.3
_LONGEST_WAIT: Final = 1.5
_LONGEST_DELAY: Final = 0.004
_POLL: Final = 0.001


@dataclass(frozen=True, slots=True)
class Plan:
    """When to kill: some seconds after a step has begun, or, without one, after the first step of all."""

    step: str | None
    delay: float


class Killer(threading.Thread):
    """Kills the coordinator `kills` times, with new files for the jobs before each kill and after the last.

    The files keep work under way: without them everything could be committed before the last kill.
    """

    def __init__(
        self, coordinator: Coordinator, feed: Feed, kills: int, seed: int | None, note: Callable[[str], None]
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self.phases: Counter[str] = Counter()
        """How often the coordinator was killed in each phase."""
        self._error: DemoError | None = None
        self._coordinator = coordinator
        self._feed = feed
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311
        self._note = note
        self._over = threading.Event()

    @property
    def killed(self) -> int:
        """How often the coordinator was killed until now."""
        return self.phases.total()

    def run(self) -> None:
        """Kill, and let the jobs go on."""
        try:
            for number in range(1, self._kills + 1):
                self._feed.open(number / (self._kills + 1))
                self._strike(self._plan(first=number == 1))
                if self._over.is_set():
                    return
            self._feed.open(1.0)
        except DemoError as error:
            self._error = error

    def check(self) -> None:
        """Raise what made the killer give up."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Kill no more, and wait for the thread."""
        self._over.set()
        if self.is_alive():
            self.join()

    def _plan(self, *, first: bool) -> Plan:
        if self._random.random() < _AT_ANY_TIME:
            return Plan(None, self._random.uniform(0, _LONGEST_WAIT))
        steps = [*COMMIT_STEPS, *START_STEPS]
        if not first:
            steps.remove("AppendPolicy")
        fresh = [step for step in steps if step not in self.phases]
        return Plan(self._random.choice(fresh or steps), self._random.uniform(0, _LONGEST_DELAY))

    def _strike(self, plan: Plan) -> None:
        trace = Trace(self._coordinator.log_file)
        self._await_step(trace, plan.step)
        self._over.wait(plan.delay)
        if self._over.is_set():
            return
        self._coordinator.kill()
        trace.advance()
        self.phases[trace.phase] += 1
        self._note(f"killed the coordinator ({self.killed} of {self._kills}): {trace.phase}")

    def _await_step(self, trace: Trace, wanted: str | None) -> None:
        """Wait for the step to begin; for a while only, as it may not come before other steps are done."""
        deadline = time.monotonic() + _FIRST_STEP_SECONDS
        begun = False
        while time.monotonic() < deadline and not self._over.wait(_POLL):
            steps = trace.advance()
            if any(step.started and wanted in (None, step.effect) for step in steps):
                return
            if steps and not begun:
                begun = True
                deadline = time.monotonic() + _HUNT_SECONDS
            self._coordinator.check()
