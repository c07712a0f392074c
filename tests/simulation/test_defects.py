"""Every planted defect is seen, as the invariant that it names, by seeds that the clean code passes."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

import pytest

from sluicegate.simulator import LENGTH, attempt, draw_plan
from tests.simulation.defects.every import DEFECTS
from tests.simulation.planting import Defect, planted

SEEN_WITHIN: Final = 2_000
PROCESSES: Final = 2
PIECE: Final = 20
"""How many seeds of clean code a process takes at a time."""


class Hunt(NamedTuple):
    """How a defect was looked for."""

    seed: int | None
    """The first that sees it as what it breaks."""
    said: str
    """What broke then, or what else broke before, by invariant with the first seed."""


Hunts = Mapping[str, Future[Hunt]]


def hunt(place: int) -> Hunt:
    """Try seeds until one sees the defect of this place."""
    defect, also = DEFECTS[place], dict[str, int]()
    with planted(defect):
        for seed in range(SEEN_WITHIN):
            _, broken = attempt(draw_plan(seed, LENGTH, defect.favour))
            if broken is not None and broken.invariant == defect.breaks:
                return Hunt(seed, str(broken)[:200])
            if broken is not None:
                also.setdefault(broken.invariant, seed)
    return Hunt(None, str(also))


def broken_when_clean(favour: tuple[str, ...], seeds: range) -> dict[int, str]:
    """What the clean code breaks, by seed: nothing."""
    found = {seed: attempt(draw_plan(seed, LENGTH, favour))[1] for seed in seeds}
    return {seed: str(broken) for seed, broken in found.items() if broken is not None}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as processes:
        yield processes
        processes.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def hunts(pool: ProcessPoolExecutor) -> Hunts:
    return {defect.name: pool.submit(hunt, place) for place, defect in enumerate(DEFECTS)}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defects_are_seen(defect: Defect, hunts: Hunts) -> None:
    seed, said = hunts[defect.name].result()
    print(f"seed {seed}: {said}")
    assert seed is not None, f"{defect.breaks} not seen within {SEEN_WITHIN} seeds, but {said}"


def test_the_clean_code_passes_the_same_seeds(pool: ProcessPoolExecutor, hunts: Hunts) -> None:
    most: dict[tuple[str, ...], int] = {}
    for defect in DEFECTS:
        seed = hunts[defect.name].result().seed
        if seed is not None:
            most[defect.favour] = max(most.get(defect.favour, 0), seed + 1)
    pieces = [
        pool.submit(broken_when_clean, favour, range(first, min(first + PIECE, end)))
        for favour, end in most.items()
        for first in range(0, end, PIECE)
    ]
    assert [found for piece in pieces if (found := piece.result())] == []


def test_there_are_enough_of_them() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 85
