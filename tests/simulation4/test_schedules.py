"""Fresh schedules of the core of version 4 hold every invariant, and replay exactly."""

import hashlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from sluicegate.coordinator import core4
from sluicegate.simulator import v4
from sluicegate.simulator.v4.schedule import Schedule, draw_plan
from sluicegate.simulator.violation import Violation

SEEDS: Final = 400
"""Fresh ones for every state of the code, and the same for the same code."""
PIECE: Final = 25
PROCESSES: Final = 2


def fresh_seed() -> int:
    """Return a seed that changes with the code of the core and of the simulator."""
    digest = hashlib.sha256()
    for package in (core4, v4):
        for source in sorted(Path(package.__file__ or "").parent.glob("*.py")):
            digest.update(source.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


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
    first = fresh_seed()
    pieces = [range(at, min(at + PIECE, first + SEEDS)) for at in range(first, first + SEEDS, PIECE)]
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        broken = [found for found in pool.map(failing, pieces) if found]
    assert not broken


def test_a_seed_replays_exactly() -> None:
    runs = [Schedule(draw_plan(7), story=[]) for _ in range(2)]
    outcomes = [run.run() for run in runs]
    assert outcomes[0] == outcomes[1]
    assert runs[0].world.story == runs[1].world.story
    assert runs[0].world.log == runs[1].world.log
