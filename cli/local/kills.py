"""The coordinator of the demo, and its kills in the middle of its work.

A kill is aimed at a step of the coordinator, by the debug lines of its log. The phase in which it was hit is
read from the last lines afterwards, so each kill is counted where it happened, not where it was aimed.
"""

import json
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.cli.local.errors import DemoError, RunFailed
from sluicegate.cli.local.process import ChildProcess

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
REGISTRATION_STEPS: Final = ("Append stream.policy", "WriteRecord", "Announce", "WriteView", "ReleaseOffsets")
"""Steps before the first commit: regions register."""
STARTING: Final = "starting"
READING: Final = "reading"
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
_POLL_START: Final = 0.01
_POLL: Final = 0.0015
_STOP_SECONDS: Final = 20.0
_TAIL_LINES: Final = 15


class Coordinator:
    """Coordinator process that can be killed and started again; each life has its own log."""

    def __init__(self, settings: Path, logs: Path) -> None:
        self.settings = settings
        self._logs = logs
        self._process: ChildProcess | None = None
        self._lock = threading.Lock()
        self._lives = 0

    @property
    def log_file(self) -> Path:
        """Log file of the current life."""
        return self._logs / f"coordinator-{self._lives}.log"

    def start(self) -> None:
        """Start a new life."""
        with self._lock:
            self._start()

    def kill(self) -> None:
        """End this life with SIGKILL, and start the next. Raises RunFailed if there is none."""
        with self._lock:
            self._check()
            if self._process is None:
                raise RunFailed("the coordinator cannot be killed: it has been stopped")
            self._process.kill()
            self._start()

    def check(self) -> None:
        """Raise RunFailed if the coordinator has ended by itself."""
        with self._lock:
            self._check()

    def stop(self) -> None:
        """Stop the coordinator and wait until it has ended; may be repeated."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.end(_STOP_SECONDS)

    def _start(self) -> None:
        self._lives += 1
        # Run the package's command with this interpreter: the command itself may not be on PATH.
        program = [sys.executable, "-c", "from sluicegate.cli.main import main; main()"]
        command = [*program, "run", "--config", str(self.settings)]
        self._process = ChildProcess(command, log_file=self.log_file, cwd=self._logs)

    def _check(self) -> None:
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            tail = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
            raise RunFailed(
                f"the coordinator ended by itself with status {status}; from {self.log_file}:\n"
                + "\n".join(tail)
            )


class Step(NamedTuple):
    """Start or end of a step of the coordinator."""

    effect: str
    started: bool


class Trace:
    """Reader of the log of one life of the coordinator."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._read = 0
        self._running: list[str] = []
        self._finished: str | None = None

    def advance(self) -> list[Step]:
        """Read the log lines since the last call; an incomplete line is left for the next call."""
        try:
            with self._log_file.open("rb") as log:
                log.seek(self._read)
                lines = log.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(lines[0] + lines[1])
        steps = [step for line in lines[0].split(b"\n") if (step := parse(line)) is not None]
        for effect, started in steps:
            if started:
                self._running.append(effect)
            else:
                self._finished = effect
                if effect in self._running:
                    self._running.remove(effect)
        return steps

    @property
    def phase(self) -> str:
        """The running step, or the pair of steps around the present moment, as of the last `advance`."""
        if self._running:
            return self._running[-1]
        if self._finished in COMMIT_STEPS[:-1]:
            following = COMMIT_STEPS[COMMIT_STEPS.index(self._finished) + 1]
            return f"between {self._finished} and {following}"
        return STARTING if self._finished is None else READING


def parse(line: bytes) -> Step | None:
    """Parse one line of the log; None if it is not about a step."""
    if b'"effect"' not in line:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("event") != "effect":
        return None
    effect, state = found.get("effect"), found.get("state")
    if not isinstance(effect, str) or state not in ("started", "finished"):
        return None
    return Step(effect, state == "started")


class Plan(NamedTuple):
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
        step = self._random.choices(fresh, [1 if step in START_STEPS else 4 for step in fresh])[0]
        if not early and step in COMMIT_STEPS[1:] and self._random.random() < _ONE_BEFORE:
            step = COMMIT_STEPS[COMMIT_STEPS.index(step) - 1]
        turn = 1 if early or step in START_STEPS else self._random.randint(1, self._turns)
        # Some steps take 1 ms, others 20 ms. About half of the kills have no delay, to hit the short ones.
        return Plan(step, max(0.0, self._random.uniform(-_LONGEST_DELAY, _LONGEST_DELAY)), turn)

    def _is_early(self) -> bool:
        return not self._committing() and self.killed < EARLY_KILLS

    def _strike(self) -> None:
        plan, trace = self.plan(), Trace(self._coordinator.log_file)
        self._await(plan, trace)
        if self._over.wait(plan.delay):
            return
        self._coordinator.kill()
        # Read the last lines of the killed life, to find the interrupted step.
        trace.advance()
        self.phases[trace.phase] += 1
        self.ready_since = None
        self._note(f"killed the coordinator ({self.killed} of {self._kills}): {trace.phase}")

    def _await(self, plan: Plan, trace: Trace) -> None:
        """Wait for the moment. The wait is limited, because a step may not occur without more work.

        The limit counts from the end of the start, and for a later kill from the first commit.
        """
        deadline, turns, early = math.inf, 0, self._is_early()
        while time.monotonic() < deadline and not self._over.wait(_POLL if self.ready_since else _POLL_START):
            steps = trace.advance()
            turns += steps.count(Step(plan.step or "", started=True))
            if turns >= plan.turn:
                return
            if self.ready_since is None and Step("FetchEnd", started=False) in steps:
                self.ready_since = time.monotonic()
                deadline = self.ready_since + _LIFE_SECONDS if early else math.inf
            if self.ready_since is not None and self._committing():
                if plan.step is None:
                    return
                deadline = min(deadline, time.monotonic() + _HUNT_SECONDS)
            self._coordinator.check()
