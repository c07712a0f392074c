"""A sample of the campaign of `python -m tools.bench.fuzz`."""

import pytest

from tests.integration.conftest import Place
from tests.security.fuzzing import attack, classify_all, classify_hostile, confuse_machine, read_hostile


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_damaged_messages_are_read_or_refused(seed: int) -> None:
    found = read_hostile(seed, 500)
    assert found["no event"] > 50
    assert found["no body"] > 50
    assert found["event"] > 50
    assert found["no notification"] > 50
    assert found["notification"] > 50


@pytest.mark.parametrize("seed", range(12))
def test_hostile_events_commit_nothing_wrong(seed: int) -> None:
    assert confuse_machine(seed)["honest"] > 5


@pytest.mark.kafka
async def test_a_flood_of_hostile_messages_leaves_the_neighbour_alone(place: Place) -> None:
    assert (await attack(place, seed=1, rounds=3, flood=150))["rows"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_every_hostile_message_has_a_code_or_an_effect(seed: int) -> None:
    found = classify_hostile(seed, 500)
    assert found.total() >= 503
    for wanted in ("letter malformed-body", "letter unknown-stream", "ignored out-of-order", "effect"):
        assert found[wanted] > 0, found


@pytest.mark.kafka
async def test_a_real_coordinator_classifies_every_message_and_sends_each_letter_once(place: Place) -> None:
    found = await classify_all(place, seed=7, count=2_000)
    assert found.total() > 2_000
    assert sum(count for verdict, count in found.items() if verdict.startswith("letter")) > 1_000
    assert sum(count for verdict, count in found.items() if verdict.startswith("ignored")) > 100
