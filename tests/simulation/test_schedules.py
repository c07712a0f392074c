"""Schedules hold every invariant, hit almost every fault and transition, and replay exactly."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from sluicegate.coordinator import core
from tests import simulator
from tests.simulator.campaign import Campaign, format_failure, run_campaign, table
from tests.simulator.coverage import rows
from tests.simulator.plan import LENGTH, draw_plan
from tests.simulator.schedule import Schedule, attempt
from tests.simulator.shrink import shrink

pytestmark = [pytest.mark.slow, pytest.mark.seam]
SEEDS: Final = 75
"""Fresh ones for every state of the code, and the same for the same, so that a failure comes again."""
PIECE: Final = 25
PROCESSES: Final = 2
NEVER: Final = 0.15
"""Share of the rows of the table that so few seeds may miss; most rows are hit in each ten seeds."""


def fresh_seed() -> int:
    """Return a seed that changes with the code of the core and of the simulator."""
    digest = hashlib.sha256()
    for package in (core, simulator):
        for source in sorted(Path(package.__file__ or "").parent.glob("*.py")):
            digest.update(source.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


def run_piece(seeds: range) -> Campaign:
    """Run schedules without shrinking, which takes longer than all of them."""
    return run_campaign(seeds, shrunk=0)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.matrix) for part in (1, 2))])
def test_seeds_hold_every_invariant(part: int) -> None:
    first = fresh_seed() + part * SEEDS
    print(f"again: make simulate SEED={first} SEEDS={SEEDS}")
    pieces = [range(at, min(at + PIECE, first + SEEDS)) for at in range(first, first + SEEDS, PIECE)]
    campaign = Campaign()
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for piece in pool.map(run_piece, pieces):
            campaign.add(piece)
    print("\n".join(table(campaign, 1)))
    assert not campaign.failing, "\n".join([str(campaign.failing), *story(min(campaign.failing))])
    assert campaign.median_steps >= LENGTH
    hits = list(rows(campaign.coverage))
    never = [row.name for row in hits if row.times == 0]
    assert len(never) <= NEVER * len(hits), f"never happened: {never}"


def story(seed: int) -> Iterator[str]:
    """Yield the shrunk story of a failing seed."""
    plan = draw_plan(seed)
    _, violation = attempt(plan)
    if violation is not None:
        yield from format_failure(seed, LENGTH, shrink(plan, violation, attempt))


def test_a_seed_replays_exactly() -> None:
    runs = [Schedule(draw_plan(7), story=[]) for _ in range(2)]
    outcomes = [run.run() for run in runs]
    assert outcomes[0] == outcomes[1]
    assert runs[0].world.story == runs[1].world.story
    assert runs[0].world.log == runs[1].world.log
