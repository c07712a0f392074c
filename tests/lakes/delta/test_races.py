"""Processes commit at once, also beside the library, with pauses where commits could be lost."""

from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.delta_objects import DELTA, delta_of
from tests.lakes.racing import finish, go, start

COMMITS = 30


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


@pytest.mark.slow
def test_two_streams_and_the_library_lose_nothing(lake: DeltaLake, tmp_path: Path) -> None:
    ours = [lake.event([number]) for number in range(COMMITS)]
    theirs = [lake.event([1_000 + number]) for number in range(COMMITS)]
    racers = (start(lake, "a", ours, tmp_path), start(lake, "b", theirs, tmp_path))
    go(*racers)
    compacted = 0
    for number in range(10):
        lake.foreign([2_000 + number])
        compacted += compact(lake)
    conflicts = sum(map(int, finish(*racers)))
    assert lake.ids() == [*range(COMMITS), *range(1_000, 1_000 + COMMITS), *range(2_000, 2_010)]
    assert lake.versions() == list(range(2 * COMMITS + 11 + compacted))
    assert decisions(lake, "a") == decisions(lake, "b") == list(range(1, COMMITS + 1))
    assert compacted > 0
    assert conflicts > 0, "they never met, so nothing was tested"
