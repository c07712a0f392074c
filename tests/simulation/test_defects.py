"""Every planted defect is seen, as the invariant that it names, by a seed that the clean code passes."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import pytest

from sluicegate.simulator import LENGTH, attempt, draw_plan
from tests.simulation.defects.every import DEFECTS
from tests.simulation.hunting import SEEDS, SEEN_WITHIN, Hunt, hunt
from tests.simulation.planting import Defect

pytestmark = pytest.mark.slow
PROCESSES: Final = 2
PIECE: Final = 10
"""Number of seeds that a process checks with the clean code at a time."""

Found = Mapping[str, Future[Hunt]]


def broken_when_clean(seeds: list[tuple[int, tuple[str, ...]]]) -> list[str]:
    """Return the violations of the clean code; there must be none."""
    found = (attempt(draw_plan(seed, LENGTH, favour))[1] for seed, favour in seeds)
    return [str(broken) for broken in found if broken is not None]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as processes:
        yield processes
        processes.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def hunts(pool: ProcessPoolExecutor) -> Found:
    return {defect.name: pool.submit(hunt, place) for place, defect in enumerate(DEFECTS)}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defects_are_seen(defect: Defect, hunts: Found) -> None:
    seed, said = hunts[defect.name].result()
    print(f"seed {seed}: {said}")
    assert seed is not None, f"{defect.breaks} not seen within {SEEN_WITHIN} seeds, but {said}"


def test_the_clean_code_passes_the_same_seeds(pool: ProcessPoolExecutor, hunts: Found) -> None:
    seen = [(hunts[defect.name].result().seed, defect.favour) for defect in DEFECTS]
    seeds = [(seed, favour) for seed, favour in seen if seed is not None]
    pieces = [pool.submit(broken_when_clean, seeds[at : at + PIECE]) for at in range(0, len(seeds), PIECE)]
    assert [problem for piece in pieces for problem in piece.result()] == []


def test_there_are_enough_of_them() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 85


def test_every_known_seed_is_of_a_defect() -> None:
    assert {defect.name for defect in DEFECTS} == SEEDS.keys()
