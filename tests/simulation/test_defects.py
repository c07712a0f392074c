"""Defects planted at the seams of the core are seen as the invariants that they break."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.hunting import SEEDS, SEEN_WITHIN, hunt
from tests.simulation.seams import SEAMS, Defect, planted
from tests.simulation.test_replicas import IN_RECOVERIES

PROCESSES: Final = 2
pytestmark = [pytest.mark.slow, pytest.mark.seam]


@pytest.fixture(scope="module")
def hunts() -> Iterator[Mapping[str, Future[int | None]]]:
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        yield {defect.name: pool.submit(hunt, DEFECTS.index(defect)) for defect in DEFECTS}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_seen(defect: Defect, hunts: Mapping[str, Future[int | None]]) -> None:
    seed = hunts[defect.name].result()
    assert seed is not None, f"no violation of {defect.invariants} within {SEEN_WITHIN} seeds"


def test_every_known_seed_is_of_a_defect() -> None:
    assert {defect.name for defect in DEFECTS} == SEEDS.keys()


@pytest.mark.parametrize("seam", SEAMS)
def test_every_seam_is_there(seam: str) -> None:
    owner, attribute = SEAMS[seam]
    assert hasattr(owner, attribute), f"{seam}: {attribute} was renamed"


def test_every_defect_can_be_planted_and_taken_back() -> None:
    for defect in DEFECTS:
        owner, attribute = SEAMS[defect.seam]
        before = vars(owner)[attribute]
        with planted(defect):
            assert vars(owner)[attribute] is not before
        assert vars(owner)[attribute] is before


def test_names_are_distinct() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 90
    assert {defect.seam for defect in (*DEFECTS, *IN_RECOVERIES)} <= SEAMS.keys()


def test_every_seam_has_a_defect() -> None:
    assert SEAMS.keys() - {defect.seam for defect in (*DEFECTS, *IN_RECOVERIES)} == set()
