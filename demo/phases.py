"""Phase of the coordinator at the moment of a kill, read from the end of its log."""

import json
from collections import Counter
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

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
