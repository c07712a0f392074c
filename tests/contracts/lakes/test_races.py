"""The committer half of every format: processes commit at once, with pauses where commits could be lost."""

from pathlib import Path

import pytest

from tests.contracts.lakes.conftest import ALL_TABLES
from tests.contracts.lakes.harness import EvolvingLake
from tests.lakes.racing import kill_at, race, start

pytestmark = pytest.mark.slow

COMMITS = 30


def decisions(lake: EvolvingLake, user: str) -> list[int]:
    """Return the decisions of a user in the table, oldest first."""
    commits = lake.maintenance().history().commits
    return [each.decision for each in reversed(commits) if each.commit_user == user]


each_table = pytest.mark.parametrize("lake", ALL_TABLES, indirect=True)


@each_table
@pytest.mark.matrix
def test_two_streams_lose_nothing(evolving: EvolvingLake, tmp_path: Path) -> None:
    ours = [evolving.event([number]) for number in range(COMMITS)]
    theirs = [evolving.event([1_000 + number]) for number in range(COMMITS)]
    conflicts = race(start(evolving, "a", ours, tmp_path), start(evolving, "b", theirs, tmp_path))
    assert evolving.ids() == [*range(COMMITS), *range(1_000, 1_000 + COMMITS)]
    assert decisions(evolving, "a") == decisions(evolving, "b") == list(range(1, COMMITS + 1))
    assert conflicts > 0, "the two never met, so nothing was tested"


@pytest.mark.parametrize("racers", [2, pytest.param(3, marks=pytest.mark.matrix)])
@each_table
def test_coordinators_of_one_stream_double_nothing(
    evolving: EvolvingLake, tmp_path: Path, racers: int
) -> None:
    events = [evolving.event([number]) for number in range(COMMITS)]
    race(*[start(evolving, "a", events, tmp_path) for _ in range(racers)])
    assert decisions(evolving, "a") == list(range(1, COMMITS + 1))
    assert evolving.ids() == list(range(COMMITS))
    assert len(evolving.maintenance().history().commits) == COMMITS


@each_table
def test_a_killed_committer_leaves_all_or_nothing(evolving: EvolvingLake, tmp_path: Path) -> None:
    """Killed at arbitrary points three times, the last one finishes the work."""
    events = [evolving.event([number]) for number in range(COMMITS)]
    racers = [start(evolving, "a", events, tmp_path) for _ in range(4)]
    kill_at((3, 13, 23), racers[:3], lambda: len(evolving.maintenance().history().commits))
    race(racers[3])
    assert evolving.ids() == list(range(COMMITS))
    assert decisions(evolving, "a") == list(range(1, COMMITS + 1))
