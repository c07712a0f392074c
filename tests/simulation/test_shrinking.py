"""A failing plan becomes a short story that a person can read, and that replays exactly."""

import re
from dataclasses import replace

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.hunting import SEEDS, SEEN_WITHIN
from tests.simulation.seams import planted
from tests.simulator.campaign import format_failure
from tests.simulator.plan import LENGTH, Plan, draw_plan
from tests.simulator.schedule import attempt
from tests.simulator.shrink import Failure, shrink
from tests.simulator.violation import Violation

pytestmark = [pytest.mark.slow, pytest.mark.matrix]
DEFECT = next(each for each in DEFECTS if each.name == "two attempts of one writer count")


def failing() -> tuple[int, Plan, Violation]:
    """Return a seed that sees the defect."""
    for seed in (SEEDS[DEFECT.name], *range(SEEN_WITHIN)):
        plan = draw_plan(seed, favour=DEFECT.favour)
        _, violation = attempt(plan)
        if violation is not None and violation.invariant in DEFECT.invariants:
            return seed, plan, violation
    raise AssertionError(f"{DEFECT.name}: not seen")


@pytest.fixture(scope="module")
def shrunk() -> tuple[int, Failure]:
    with planted(DEFECT):
        seed, plan, violation = failing()
        return seed, shrink(plan, violation, attempt)


def test_the_shrunk_plan_breaks_the_same_invariant(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    with planted(DEFECT):
        stories: list[list[str]] = [[], []]
        broken = [attempt(failure.plan, story)[1] for story in stories]
    assert [str(each) for each in broken] == [str(failure.violation)] * 2
    assert stories[0] == stories[1] == list(failure.story)


def test_the_shrunk_plan_is_short(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    assert failure.violation.invariant in DEFECT.invariants
    assert len(failure.plan.steps) <= 40
    assert len(failure.story) <= 120


def test_every_step_of_it_is_needed(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    steps = failure.plan.steps
    with planted(DEFECT):
        for place in range(len(steps)):
            less = replace(failure.plan, steps=(*steps[:place], *steps[place + 1 :]))
            _, broken = attempt(less)
            same = broken is not None and broken.invariant == failure.violation.invariant
            assert not same, f"step {place} is not needed"


def test_its_story_is_readable(shrunk: tuple[int, Failure]) -> None:
    seed, failure = shrunk
    text = "\n".join(format_failure(seed, LENGTH, failure))
    assert f"make simulate SEED={seed} SEEDS=1 STEPS={LENGTH}" in text
    assert re.search(r"n\d+ does InspectTable", text)
    assert "offset 0: " in text
    assert "checkpoint.completed" in text
    assert "both attempts" in text


def test_without_the_defect_nothing_breaks(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    assert attempt(failure.plan)[1] is None
