"""Phase of the coordinator at the moment of a kill, read from the end of its log."""

import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from sluicegate.cli.local.errors import DemoError
from sluicegate.cli.local.services import Coordinator

COMMIT_STEPS: Final = (
    "CheckFiles",
    "Append cut.decided",
    "Ask",
    "Publish",
    "Append cut.committed",
    "WriteRecord",
    "Announce",
    "WriteView",
    "ReleaseOffsets",
)
"""The steps of a commit, in their order."""

START_STEPS: Final = ("InspectTable", "FetchEnd")
"""Steps of every start, in their order."""

STARTING: Final = "starting"
READING: Final = "reading"


class Step(NamedTuple):
    """Start or end of a step of the coordinator."""

    effect: str
    started: bool


class Trace:
    """Reader of the log of one life of the coordinator."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._log: BinaryIO | None = None
        self._rest = b""
        self._open: Counter[str] = Counter()
        self._latest: list[str] = []
        self._finished: str | None = None
        self._begun = False

    def advance(self) -> list[Step]:
        """Read the log lines since the last call; an incomplete line is kept for the next call."""
        if self._log is None:
            if not self._log_file.exists():
                return []
            self._log = self._log_file.open("rb")
        *lines, self._rest = (self._rest + self._log.read()).split(b"\n")
        steps = [step for line in lines if (step := parse(line)) is not None]
        for step in steps:
            self._note(step)
        return steps

    def close(self) -> None:
        """Close the log; the steps read so far stay."""
        if self._log is not None:
            self._log.close()

    @property
    def phase(self) -> str:
        """The running step, or the pair of steps around the present moment, as of the last `advance`."""
        running = [effect for effect in self._latest if self._open[effect] > 0]
        if running:
            return running[-1]
        if not self._begun:
            return STARTING
        if self._finished in COMMIT_STEPS[:-1]:
            following = COMMIT_STEPS[COMMIT_STEPS.index(self._finished) + 1]
            return f"between {self._finished} and {following}"
        return READING

    def _note(self, step: Step) -> None:
        self._begun = True
        if step.started:
            self._open[step.effect] += 1
            if step.effect in self._latest:
                self._latest.remove(step.effect)
            self._latest.append(step.effect)
        else:
            self._open[step.effect] -= 1
            self._finished = step.effect


def parse(line: bytes) -> Step | None:
    """Parse one line of the log; None if it is not about a step."""
    if b'"effect"' not in line:
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("event") != "effect":
        return None
    effect, state = said.get("effect"), said.get("state")
    if not isinstance(effect, str) or state not in ("started", "finished"):
        return None
    return Step(effect, state == "started")


# Kills the coordinator repeatedly, in the middle of its work.

REGISTRATION_STEPS: Final = ("Append stream.policy", "WriteRecord", "Announce", "WriteView", "ReleaseOffsets")
"""Steps before the first commit: regions register."""

EARLY_KILLS: Final = 2
"""Maximum number of kills before the first commit; later kills wait for it."""

_AT_ANY_TIME: Final = 0.2
"""Probability of a kill at any time instead of in a chosen step, until one was killed between commits."""
_ONE_BEFORE: Final = 0.5
"""Probability of taking the step before the chosen one as the signal: log lines may come late."""
_LONGEST_WAIT: Final = 1.5
_LONGEST_DELAY: Final = 0.008
_LIFE_SECONDS: Final = 60.0
"""Maximum seconds of waiting for the chosen step after a start, before there are commits."""
_HUNT_SECONDS: Final = 10.0
"""Maximum seconds of waiting for the chosen step, once there are commits."""
_START_ENDED: Final = Step("FetchEnd", started=False)
_POLL_START: Final = 0.01
_POLL: Final = 0.0015


@dataclass(frozen=True, slots=True)
class Plan:
    """Moment of a kill: `delay` seconds after a step has begun for the `turn`-th time in this life.

    Without a step: `delay` seconds after the start has finished.
    """

    step: str | None
    delay: float
    turn: int = 1


class Killer(threading.Thread):
    """Kills the coordinator `kills` times, in as many different steps as possible.

    `committing` returns True once a commit exists. A life may last for `turns` commits.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        kills: int,
        seed: int | None,
        turns: int,
        committing: Callable[[], bool],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self.phases: Counter[str] = Counter()
        """Number of kills in each phase."""
        self.ready_since: float | None = None
        """Time of the monotonic clock when this life became ready; None while it starts."""
        self._coordinator = coordinator
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311
        self._turns = max(1, turns)
        self._committing = committing
        self._note = note
        self._over = threading.Event()
        self._error: DemoError | None = None

    @property
    def killed(self) -> int:
        """Number of kills so far."""
        return self.phases.total()

    def run(self) -> None:
        """Kill the coordinator `kills` times."""
        try:
            while self.killed < self._kills and not self._over.is_set():
                self._strike()
        except DemoError as error:
            self._error = error

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop killing, and wait for the thread."""
        self._over.set()
        if self.is_alive():
            self.join()

    def plan(self) -> Plan:
        """Choose the next moment; steps without a kill so far are preferred."""
        early = self._is_early()
        if not early and READING not in self.phases and self._random.random() < _AT_ANY_TIME:
            return Plan(None, self._random.uniform(0, _LONGEST_WAIT))
        steps = [*START_STEPS, *(REGISTRATION_STEPS if early else COMMIT_STEPS)]
        fresh = [step for step in steps if step not in self.phases] or steps
        # The start is the longest part of every life, but the steps of a commit are the interesting ones.
        weights = [1 if step in START_STEPS else 4 for step in fresh]
        step = self._random.choices(fresh, weights)[0]
        if not early and step in COMMIT_STEPS[1:] and self._random.random() < _ONE_BEFORE:
            step = COMMIT_STEPS[COMMIT_STEPS.index(step) - 1]
        turn = 1 if early or step in START_STEPS else self._random.randint(1, self._turns)
        # Some steps take 1 ms, others 20 ms. About half of the kills have no delay, to hit the short ones.
        delay = max(0.0, self._random.uniform(-_LONGEST_DELAY, _LONGEST_DELAY))
        return Plan(step, delay, turn)

    def _is_early(self) -> bool:
        return not self._committing() and self.killed < EARLY_KILLS

    def _strike(self) -> None:
        plan = self.plan()
        trace = Trace(self._coordinator.log_file)
        try:
            self._await(plan, trace)
            self._over.wait(plan.delay)
            if self._over.is_set():
                return
            self._coordinator.kill()
            # Read the last lines of the killed life, to find the interrupted step.
            trace.advance()
        finally:
            trace.close()
        self.phases[trace.phase] += 1
        self.ready_since = None
        self._note(f"killed the coordinator ({self.killed} of {self._kills}): {trace.phase}")

    def _await(self, plan: Plan, trace: Trace) -> None:
        """Wait for the moment. The wait is limited, because a step may not occur without more work.

        The limit counts from the end of the start, and for a later kill from the first commit.
        """
        deadline = math.inf
        early = self._is_early()
        turns = 0
        while time.monotonic() < deadline and not self._over.wait(_POLL if self.ready_since else _POLL_START):
            steps = trace.advance()
            turns += sum(step.started and step.effect == plan.step for step in steps)
            if turns >= plan.turn:
                return
            if self.ready_since is None and _START_ENDED in steps:
                self.ready_since = time.monotonic()
                deadline = self.ready_since + _LIFE_SECONDS if early else math.inf
            if self.ready_since is not None and self._committing():
                if plan.step is None:
                    return
                deadline = min(deadline, time.monotonic() + _HUNT_SECONDS)
            self._coordinator.check()
