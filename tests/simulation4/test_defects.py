"""Every planted defect of the core of version 4 is seen by the simulator, as an invariant that it names."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

import pytest

from sluicegate.simulator.v4.schedule import Schedule, draw_plan
from sluicegate.simulator.violation import Violation
from tests.simulation4.defects import DEFECTS, SEAMS, Defect, planted

SEEN_WITHIN: Final = 400
PROCESSES: Final = 2


class Hunt(NamedTuple):
    """The result of looking for one defect."""

    seed: int | None
    text: str


def hunt(place: int) -> Hunt:
    """Try seeds until one sees the defect of this place."""
    defect, also = DEFECTS[place], dict[str, int]()
    with planted(defect):
        for seed in range(SEEN_WITHIN):
            try:
                Schedule(draw_plan(seed, favour=defect.favour)).run()
            except Violation as broken:
                if broken.invariant in defect.invariants:
                    return Hunt(seed, str(broken)[:200])
                also.setdefault(broken.invariant, seed)
            except (IndexError, KeyError) as crash:
                if "crash" in defect.invariants:
                    return Hunt(seed, repr(crash))
                also.setdefault("crash", seed)
    return Hunt(None, str(also))


@pytest.fixture(scope="module")
def hunts() -> Iterator[Mapping[str, "Future[Hunt]"]]:
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        yield {defect.name: pool.submit(hunt, place) for place, defect in enumerate(DEFECTS)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defects_are_seen(defect: Defect, hunts: Mapping[str, "Future[Hunt]"]) -> None:
    seed, text = hunts[defect.name].result()
    assert seed is not None, f"{defect.invariants} not seen within {SEEN_WITHIN} seeds, but {text}"


@pytest.mark.parametrize("seam", SEAMS)
def test_every_seam_is_there(seam: str) -> None:
    owner, attribute = SEAMS[seam]
    assert hasattr(owner, attribute), f"{seam}: {attribute} was renamed"


def test_names_are_distinct() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 50
    assert {defect.seam for defect in DEFECTS} <= SEAMS.keys()
