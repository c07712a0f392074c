"""Schedules of the core of version 4 hold every invariant, and replay exactly."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from sluicegate.simulator.plan import draw_plan
from sluicegate.simulator.schedule import Schedule
from sluicegate.simulator.violation import Violation

SEEDS: Final = range(1, 151)
"""Known ones, as long as the service does not run on this core."""
PIECE: Final = 25
PROCESSES: Final = 2


def failing(seeds: range) -> dict[int, str]:
    """Return the broken invariants by seed."""
    found: dict[int, str] = {}
    for seed in seeds:
        try:
            Schedule(draw_plan(seed)).run()
        except Violation as broken:
            found[seed] = str(broken)
    return found


def test_seeds_hold_every_invariant() -> None:
    pieces = [SEEDS[at : at + PIECE] for at in range(0, len(SEEDS), PIECE)]
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        broken = [found for found in pool.map(failing, pieces) if found]
    assert not broken


def test_a_seed_replays_exactly() -> None:
    runs = [Schedule(draw_plan(7), story=[]) for _ in range(2)]
    outcomes = [run.run() for run in runs]
    assert outcomes[0] == outcomes[1]
    assert runs[0].world.story == runs[1].world.story
    assert runs[0].world.log == runs[1].world.log
