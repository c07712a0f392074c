"""A sample of the campaign of `python -m bench.fuzz`."""

import pytest

from tests.integration.conftest import Place
from tests.security.fuzzing import attack, confuse_machine, read_hostile


@pytest.mark.parametrize("seed", range(4))
def test_damaged_messages_are_read_or_refused(seed: int) -> None:
    found = read_hostile(seed, 500)
    assert found["no event"] > 50
    assert found["no body"] > 50
    assert found["event"] > 50


@pytest.mark.parametrize("seed", range(12))
def test_hostile_events_commit_nothing_wrong(seed: int) -> None:
    assert confuse_machine(seed)["honest"] > 5


@pytest.mark.kafka
async def test_a_flood_of_hostile_messages_leaves_the_neighbour_alone(place: Place) -> None:
    assert (await attack(place, seed=1, rounds=3, flood=150))["rows"] > 3
