"""Processes that commit to one table at once, with pauses where commits could be lost or doubled."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import le
from pathlib import Path
from typing import Final, Protocol

from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import VARIABLE
from sluicegate.lakes.port import Adapter
from tests.integration.waiting import BACKSTOP, wait_until

PAUSE_MS: Final = 5
"""Longest pause between the question and the building of a commit; the pause before the deciding step."""

Racer = subprocess.Popen[str]


class Raced(Protocol):
    """A table that other processes can open."""

    @property
    def adapter(self) -> Adapter: ...

    @property
    def location(self) -> str: ...

    @property
    def options(self) -> Mapping[str, str] | None: ...


def spawn(program: Path, lake: Raced, *more: str, environment: Mapping[str, str] | None = None) -> Racer:
    """Start a program that gets the format, the location and the options of a table, and more."""
    assert lake.options is not None, "only this process sees the table"
    command = [sys.executable, str(program), lake.adapter.name, lake.location, json.dumps(dict(lake.options))]
    pipe = subprocess.PIPE
    merged = os.environ | (environment or {})
    return subprocess.Popen([*command, *more], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=merged)


def start(lake: Raced, user: str, events: Sequence[FilesWritten], folder: Path) -> Racer:
    """Start a process that is about to commit these events."""
    prepared = folder / f"{user}-{uuid.uuid4().hex}.jsonl"
    prepared.write_text("\n".join(event.model_dump_json() for event in events))
    slow = {VARIABLE: f"{Failpoint.LAKE_PUT_BEFORE}=delay:{PAUSE_MS}"}
    program = Path(__file__).with_name("racer.py")
    return spawn(program, lake, user, str(prepared), str(PAUSE_MS), environment=slow)


def go(*racers: Racer) -> None:
    """Wait until all are ready, then let them loose together."""
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n", racer.communicate()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()


def finish(*racers: Racer) -> list[str]:
    """Wait for the ends; return what each has printed: the number of its conflicts."""
    printed = []
    for racer in racers:
        out, err = racer.communicate(timeout=BACKSTOP)
        assert racer.returncode == 0, err
        printed.append(out)
    return printed


def race(*racers: Racer) -> int:
    """Let them loose, and wait for the ends; return the number of conflicts."""
    go(*racers)
    return sum(map(int, finish(*racers)))


def kill_at(places: Sequence[int], racers: Sequence[Racer], committed: Callable[[], int]) -> None:
    """Let one racer after the other commit until so many commits are in the table, and kill it then."""
    for place, racer in zip(places, racers, strict=True):
        go(racer)
        wait_until(committed, partial(le, place), by=racer)
        racer.kill()
        racer.communicate()
