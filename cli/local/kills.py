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
STARTING: Final = "starting"
READING: Final = "reading"

_LONGEST_DELAY: Final = 0.008
_HUNT_SECONDS: Final = 10.0
"""Maximum seconds of waiting for the chosen step, which may not occur without more work."""
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


class Killer(threading.Thread):
    """Kills the coordinator `kills` times after the first commit, in as many different steps as possible.

    `committing` returns True once a commit exists.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        kills: int,
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

    def _strike(self) -> None:
        steps = [*START_STEPS, *COMMIT_STEPS]
        step = random.choice([each for each in steps if each not in self.phases] or steps)  # noqa: S311
        trace = Trace(self._coordinator.log_file)
        self._await(step, trace)
        # Some steps take 1 ms, others 20 ms. About half of the kills have no delay, to hit the short ones.
        delay = max(0.0, random.uniform(-_LONGEST_DELAY, _LONGEST_DELAY))  # noqa: S311
        if self._over.wait(delay):
            return
        self._coordinator.kill()
        # Read the last lines of the killed life, to find the interrupted step.
        trace.advance()
        self.phases[trace.phase] += 1
        self.ready_since = None
        self._note(f"killed the coordinator ({self.killed} of {self._kills}): {trace.phase}")

    def _await(self, step: str, trace: Trace) -> None:
        """Wait until the step begins after the first commit, or for _HUNT_SECONDS once it could."""
        deadline = math.inf
        while time.monotonic() < deadline and not self._over.wait(_POLL):
            steps = trace.advance()
            if self.ready_since is None and Step("FetchEnd", started=False) in steps:
                self.ready_since = time.monotonic()
            if self._committing():
                if Step(step, started=True) in steps:
                    return
                if self.ready_since is not None:
                    deadline = min(deadline, time.monotonic() + _HUNT_SECONDS)
            self._coordinator.check()
