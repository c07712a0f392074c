"""Processes commit at once, with pauses where commits would be lost or doubled."""

from pathlib import Path

import pytest

from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import iceberg_of
from tests.lakes.iceberg.reading import entries
from tests.lakes.racing import kill_at, race, start

COMMITS = 25


def decisions(lake: IcebergLake) -> list[int]:
    return [int(each["summary"]["sluicegate.decision"]) for each in lake.fields()["snapshots"]]


ON_S3 = pytest.param("iceberg-on-s3", marks=pytest.mark.s3)


@pytest.fixture(params=["iceberg", "iceberg-postgres", "iceberg-rest-v3", ON_S3])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    return iceberg_of(request.param, request, tmp_path)


@pytest.mark.slow
def test_two_streams_on_one_table_lose_nothing(lake: IcebergLake, tmp_path: Path) -> None:
    ours = [lake.event([number]) for number in range(COMMITS)]
    theirs = [lake.event([1_000 + number]) for number in range(COMMITS)]
    racers = (start(lake, "a", ours, tmp_path), start(lake, "b", theirs, tmp_path))
    conflicts = race(*racers)
    assert lake.ids() == [*range(COMMITS), *range(1_000, 1_000 + COMMITS)]
    assert conflicts > 0, "the two never met, so nothing was tested"


@pytest.mark.slow
@pytest.mark.seam
@pytest.mark.parametrize("racers", [2, 3])
def test_coordinators_of_one_stream_double_nothing(lake: IcebergLake, tmp_path: Path, racers: int) -> None:
    events = [lake.event([number]) for number in range(COMMITS)]
    started = [start(lake, "a", events, tmp_path) for _ in range(racers)]
    race(*started)
    assert decisions(lake) == list(range(1, COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
    assert len(entries(lake)) == COMMITS


def committed(lake: IcebergLake) -> int:
    return len(lake.metadata.snapshots)


@pytest.mark.slow
def test_a_killed_committer_leaves_all_or_nothing(lake: IcebergLake, tmp_path: Path) -> None:
    """Killed at arbitrary points three times, the last one finishes the work."""
    events = [lake.event([number]) for number in range(COMMITS)]
    racers = [start(lake, "a", events, tmp_path) for _ in range(4)]
    kill_at((3, 11, 19), racers[:3], lambda: committed(lake))
    race(racers[3])
    assert decisions(lake) == list(range(1, COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
