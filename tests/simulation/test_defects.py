"""Every planted defect is seen, as the invariant that it names, by seeds that the clean code passes."""

import os
from functools import cache

import pytest

from sluicegate.simulator import LENGTH, Plan, attempt, draw_plan
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import Defect, planted

SEEN_WITHIN = 2_000
CHOSEN = DEFECTS if os.environ.get("SLUICEGATE_TEST_DEFECTS") == "all" else DEFECTS[:40]
"""Each takes some seconds."""


@cache
def clean(plan: Plan) -> str | None:
    """What the clean code says to a plan, once for all defects."""
    _, broken = attempt(plan)
    return str(broken) if broken is not None else None


@pytest.mark.parametrize("defect", CHOSEN, ids=lambda defect: defect.name)
def test_planted_defects_are_seen(defect: Defect) -> None:
    also: dict[str, int] = {}
    for seed in range(SEEN_WITHIN):
        plan = draw_plan(seed, LENGTH, defect.favour)
        with planted(defect):
            _, broken = attempt(plan)
        assert clean(plan) is None
        if broken is not None and broken.invariant == defect.breaks:
            print(f"{defect.name}: seed {seed}: {broken}"[:200])
            return
        if broken is not None:
            also.setdefault(broken.invariant, seed)
    raise AssertionError(f"{defect.name}: {defect.breaks} not seen within {SEEN_WITHIN} seeds, but {also}")


def test_there_are_enough_of_them() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 30
