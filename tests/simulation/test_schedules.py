"""Fresh seeds hold every invariant, hit every fault and transition, and replay exactly."""

import os

from sluicegate.simulator import (
    LENGTH,
    Schedule,
    draw_plan,
    failure_in_words,
    rows,
    run_campaign,
    table,
)
from sluicegate.simulator.coverage import EFFECTS, known_effects

FRESH = int(os.environ.get("SLUICEGATE_TEST_SEEDS", "390"))
FIRST = os.environ.get("SLUICEGATE_TEST_FIRST_SEED", "101500")
"""`fresh` draws one. By default known schedules: about one in a thousand fresh ones still ends in a dispute
between the core and the simulated jobs that is not settled (docs/benchmarks.md)."""
MANY = 2_000
"""Seeds after which all but a few rare things must have been hit."""
FULL = 20_000
"""Seeds after which everything must have been hit."""
RARE_IN_MANY = 12


def test_seeds_hold_every_invariant() -> None:
    first = int.from_bytes(os.urandom(4), "big") if FIRST == "fresh" else int(FIRST)
    campaign = run_campaign(range(first, first + FRESH))
    print("\n".join(table(campaign, 1)))
    stories = [
        line
        for seed, failure in campaign.failures.items()
        for line in failure_in_words(seed, LENGTH, failure)
    ]
    assert not campaign.failing, "\n".join([str(campaign.failing), *stories])
    assert campaign.median_steps >= 300
    if FRESH < MANY:
        return
    never = [row.name for row in rows(campaign.coverage) if row.times == 0]
    assert len(never) <= (0 if FRESH >= FULL else RARE_IN_MANY), f"never happened: {never}"


def test_a_seed_replays_exactly() -> None:
    runs = [Schedule(draw_plan(7, LENGTH), story=[]) for _ in range(2)]
    outcomes = [run.run() for run in runs]
    assert outcomes[0] == outcomes[1]
    assert runs[0].world.story == runs[1].world.story
    assert runs[0].world.log == runs[1].world.log


def test_every_effect_of_the_core_is_in_the_table() -> None:
    assert known_effects() == set(EFFECTS)
