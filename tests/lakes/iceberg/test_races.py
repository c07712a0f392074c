"""Processes commit at once, with a pause where commits would be lost or doubled."""

import subprocess
import sys
from functools import partial
from operator import le
from pathlib import Path

import pytest

from sluicegate.events.models import FilesWritten
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import RestLake, iceberg_of
from tests.integration.waiting import BACKSTOP, wait_until
from tests.lakes.iceberg.reading import entries

COMMITS = 25
PAUSE = "0.01"

Racer = subprocess.Popen[str]


def start(lake: IcebergLake, user: str, events: list[FilesWritten], folder: Path) -> Racer:
    """Start a process that is about to commit these events."""
    prepared = folder / f"{user}-{len(list(folder.iterdir()))}.jsonl"
    prepared.write_text("\n".join(event.model_dump_json() for event in events))
    kind = "rest" if isinstance(lake, RestLake) else "sql"
    program = str(Path(__file__).with_name("racer.py"))
    command = [sys.executable, program, kind, lake.uri, *lake.table_name.namespace, user]
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


def decisions(lake: IcebergLake) -> list[int]:
    return [int(each["summary"]["sluicegate.decision"]) for each in lake.fields()["snapshots"]]


ON_S3 = pytest.param("iceberg-on-s3", marks=pytest.mark.s3)


@pytest.fixture(params=["iceberg", "iceberg-postgres", "iceberg-rest-v3", ON_S3])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    return iceberg_of(request.param, request, tmp_path)


def test_two_streams_on_one_table_lose_nothing(lake: IcebergLake, tmp_path: Path) -> None:
    ours = [lake.event([number]) for number in range(COMMITS)]
    theirs = [lake.event([1_000 + number]) for number in range(COMMITS)]
    racers = (start(lake, "a", ours, tmp_path), start(lake, "b", theirs, tmp_path))
    go(*racers)
    conflicts = finish(*racers)
    assert lake.ids() == [*range(COMMITS), *range(1_000, 1_000 + COMMITS)]
    assert conflicts > 0, "the two never met, so nothing was tested"


@pytest.mark.parametrize("racers", [2, 3])
def test_coordinators_of_one_stream_double_nothing(lake: IcebergLake, tmp_path: Path, racers: int) -> None:
    events = [lake.event([number]) for number in range(COMMITS)]
    started = [start(lake, "a", events, tmp_path) for _ in range(racers)]
    go(*started)
    finish(*started)
    assert decisions(lake) == list(range(1, COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
    assert len(entries(lake)) == COMMITS


def committed(lake: IcebergLake) -> int:
    return len(lake.metadata.snapshots)


def test_a_killed_committer_leaves_all_or_nothing(lake: IcebergLake, tmp_path: Path) -> None:
    """Killed at arbitrary points three times, the last one finishes the work."""
    events = [lake.event([number]) for number in range(COMMITS)]
    racers = [start(lake, "a", events, tmp_path) for _ in range(4)]
    for kill_at, racer in zip((3, 11, 19), racers[:3], strict=True):
        go(racer)
        wait_until(partial(committed, lake), partial(le, kill_at), by=racer)
        racer.kill()
        racer.communicate()
    go(racers[3])
    finish(racers[3])
    assert decisions(lake) == list(range(1, COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
