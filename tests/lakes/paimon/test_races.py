"""Two processes commit at once, with pauses where commits used to be lost."""

from pathlib import Path

import pytest

from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon import reading
from tests.lakes.racing import kill_at, race, start

COMMITS = 30


@pytest.mark.slow
def test_two_streams_on_one_table_lose_nothing(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    ours = [lake.event([number]) for number in range(COMMITS)]
    theirs = [lake.event([1_000 + number]) for number in range(COMMITS)]
    racers = (start(lake, "a", ours, tmp_path), start(lake, "b", theirs, tmp_path))
    conflicts = race(*racers)
    expected = [*range(COMMITS), *range(1_000, 1_000 + COMMITS)]
    assert lake.ids() == expected
    assert sorted(reading.rows(lake.root, 2 * COMMITS).column("id").to_pylist()) == expected
    assert conflicts > 0, "the two never met, so nothing was tested"


@pytest.mark.slow
@pytest.mark.parametrize("racers", [2, 3])
def test_coordinators_of_one_stream_double_nothing(tmp_path: Path, racers: int) -> None:
    lake = PaimonLake(tmp_path)
    events = [lake.event([number]) for number in range(COMMITS)]
    started = [start(lake, "a", events, tmp_path) for _ in range(racers)]
    race(*started)
    assert lake.snapshot_ids() == list(range(1, COMMITS + 1))
    assert lake.ids() == list(range(COMMITS))
    identifiers = [reading.snapshot(lake.root, number)["commitIdentifier"] for number in lake.snapshot_ids()]
    assert identifiers == list(range(1, COMMITS + 1))


def committed(lake: PaimonLake) -> int:
    return len(lake.snapshot_ids()) if (lake.root / "snapshot").exists() else 0


@pytest.mark.slow
def test_a_killed_committer_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Killed at arbitrary points three times, the last one finishes the work."""
    lake = PaimonLake(tmp_path)
    events = [lake.event([number]) for number in range(COMMITS)]
    racers = [start(lake, "a", events, tmp_path) for _ in range(4)]
    kill_at((3, 13, 23), racers[:3], lambda: committed(lake))
    race(racers[3])
    assert lake.ids() == list(range(COMMITS))
    assert lake.snapshot_ids() == list(range(1, COMMITS + 1))
