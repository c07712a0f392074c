"""Processes commit at once, also beside the library, with pauses where commits could be lost."""

import subprocess
import sys
from functools import partial
from operator import le
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

from sluicegate.events.models import FilesWritten
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.delta_objects import DELTA, delta_of
from tests.integration.waiting import BACKSTOP, wait_until

COMMITS = 30
PAUSE = "0.006"
"""Seconds of the longest pause between the question and the commit, and before the commit is put."""

Racer = subprocess.Popen[str]


def start(lake: DeltaLake, user: str, events: list[FilesWritten], folder: Path) -> Racer:
    """Start a process that is about to commit these events."""
    prepared = folder / f"{user}-{len(list(folder.iterdir()))}.jsonl"
    prepared.write_text("\n".join(event.model_dump_json() for event in events))
    command = [sys.executable, str(Path(__file__).with_name("racer.py")), lake.location, user]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, str(prepared), PAUSE], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def go(*racers: Racer) -> None:
    """Wait until all are ready, then let them loose together."""
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n", racer.communicate()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()


def finish(*racers: Racer) -> int:
    """The conflicts that the racers met."""
    conflicts = 0
    for racer in racers:
        out, err = racer.communicate(timeout=BACKSTOP)
        assert racer.returncode == 0, err
        conflicts += int(out)
    return conflicts


def decisions(lake: DeltaLake, user: str) -> list[object]:
    """The decisions of a user in the log, in order."""
    found = [lake.actions(version, "txn") for version in lake.versions()]
    return [txn["version"] for txns in found for txn in txns if txn["appId"] == user]


@pytest.fixture(params=DELTA)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaLake:
    return delta_of(request.param, request, tmp_path)


def compact(lake: DeltaLake) -> int:
    """Compact by the library, again if it was overtaken too often; return the versions that it made."""
    while True:
        try:
            made: int = lake.table.optimize.compact()["numFilesAdded"]
        except CommitFailedError:
            continue
        return made


def test_two_streams_and_the_library_lose_nothing(lake: DeltaLake, tmp_path: Path) -> None:
    ours = [lake.event([number]) for number in range(COMMITS)]
    theirs = [lake.event([1_000 + number]) for number in range(COMMITS)]
    racers = (start(lake, "a", ours, tmp_path), start(lake, "b", theirs, tmp_path))
    go(*racers)
    compacted = 0
    for number in range(10):
        lake.foreign([2_000 + number])
        compacted += compact(lake)
    conflicts = finish(*racers)
    assert lake.ids() == [*range(COMMITS), *range(1_000, 1_000 + COMMITS), *range(2_000, 2_010)]
    assert lake.versions() == list(range(2 * COMMITS + 11 + compacted))
    assert decisions(lake, "a") == decisions(lake, "b") == list(range(1, COMMITS + 1))
    assert compacted > 0
    assert conflicts > 0, "they never met, so nothing was tested"


@pytest.mark.parametrize("racers", [2, 3])
def test_coordinators_of_one_stream_double_nothing(lake: DeltaLake, tmp_path: Path, racers: int) -> None:
    events = [lake.event([number]) for number in range(COMMITS)]
    started = [start(lake, "a", events, tmp_path) for _ in range(racers)]
    go(*started)
    finish(*started)
    assert lake.versions() == list(range(COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
    assert decisions(lake, "a") == list(range(1, COMMITS + 1))


def newest(lake: DeltaLake) -> int:
    return lake.versions()[-1]


def test_a_killed_committer_leaves_all_or_nothing(lake: DeltaLake, tmp_path: Path) -> None:
    """Killed at arbitrary points three times, the last one finishes the work."""
    events = [lake.event([number]) for number in range(COMMITS)]
    racers = [start(lake, "a", events, tmp_path) for _ in range(4)]
    for kill_at, racer in zip((3, 13, 23), racers[:3], strict=True):
        go(racer)
        wait_until(partial(newest, lake), partial(le, kill_at), by=racer)
        racer.kill()
        racer.communicate()
    go(racers[3])
    finish(racers[3])
    assert lake.ids() == list(range(COMMITS))
    assert lake.versions() == list(range(COMMITS + 1))
