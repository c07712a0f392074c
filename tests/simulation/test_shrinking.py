"""A failing plan becomes a short trace that a person can read, and that replays exactly."""

from dataclasses import replace

import pytest

from sluicegate.simulator import (
    LENGTH,
    Failure,
    Plan,
    Violation,
    attempt,
    draw_plan,
    failure_in_words,
    shrink,
)
from tests.simulation.defects.every import DEFECTS
from tests.simulation.planting import Defect, planted

LOSERS = next(defect for defect in DEFECTS if defect.name == "unnamed parts are committed")


def failing(defect: Defect) -> tuple[int, Plan, Violation]:
    """The first seed that sees the defect."""
    for seed in range(200):
        plan = draw_plan(seed, LENGTH)
        _, violation = attempt(plan)
        if violation is not None and violation.invariant == defect.breaks:
            return seed, plan, violation
    raise AssertionError(f"{defect.name}: not seen")


@pytest.fixture(scope="module")
def shrunk() -> tuple[int, Failure]:
    with planted(LOSERS):
        seed, plan, violation = failing(LOSERS)
        return seed, shrink(plan, violation)


def test_what_is_left_breaks_the_same_invariant_again(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    with planted(LOSERS):
        stories: list[list[str]] = [[], []]
        broken = [attempt(failure.plan, story)[1] for story in stories]
    assert [str(each) for each in broken] == [str(failure.violation)] * 2
    assert stories[0] == stories[1] == list(failure.story)


def test_what_is_left_is_short(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    assert failure.violation.invariant == "I2"
    assert len(failure.plan.steps) <= 40
    assert len(failure.story) <= 80


def test_no_step_of_it_can_be_left_out(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    steps = failure.plan.steps
    with planted(LOSERS):
        for place in range(len(steps)):
            less = replace(failure.plan, steps=(*steps[:place], *steps[place + 1 :]))
            _, broken = attempt(less)
            assert broken is None or broken.invariant != "I2", f"step {place} is not needed"


def test_it_is_told_in_plain_words(shrunk: tuple[int, Failure]) -> None:
    seed, failure = shrunk
    said = "\n".join(failure_in_words(seed, LENGTH, failure))
    assert f"sluicegate simulate --seed {seed} --seeds 1 --steps {LENGTH}" in said
    assert "offset 0: " in said
    assert " completes checkpoint " in said
    assert " does Publish of decision " in said


def test_without_the_defect_nothing_breaks(shrunk: tuple[int, Failure]) -> None:
    _, failure = shrunk
    assert attempt(failure.plan)[1] is None
