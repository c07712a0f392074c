"""A broker's clock that jumps, falls back or is wrong for ever makes no cut partial, and starts no loop."""

from dataclasses import replace

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutAbandoned, CutDecided, LineageCarried
from tests.core.scene import PARTIAL, Scene, opened

HOUR = 3_600_000
FAR = 80 * 365 * 24 * HOUR
TIMEOUT = 1_000
PATIENT = replace(PARTIAL, alignment_timeout=TIMEOUT)


def fallbacks(scene: Scene) -> list[bool]:
    """Whether each commit left somebody behind."""
    return [bool(commit.fallbacks) for commit in scene.commits]


def records(scene: Scene, kind: type) -> int:
    return sum(isinstance(entry.body, kind) for entry in scene.world.log)


def glitch(scene: Scene, ahead: int) -> None:
    """Let one record have an append time that is wrong by so much."""
    scene.world.skew = ahead
    scene.idle("r1", idle=False)
    scene.world.skew = 0
    scene.settle(1)


def rounds(scene: Scene, first: int, count: int) -> None:
    """Let r1 complete its checkpoints, and r2 each a little later than r1."""
    for checkpoint in range(first, first + count):
        scene.batch(checkpoint, "r1")
        scene.settle(TIMEOUT // 20)
        scene.batch(checkpoint, "r2")
        scene.settle(20)


@pytest.mark.parametrize("ahead", [HOUR, FAR, -HOUR])
def test_one_wrong_append_time_makes_no_commit_partial(ahead: int) -> None:
    scene = opened("r1", "r2", settings=PATIENT)
    glitch(scene, ahead)
    rounds(scene, 0, 12)
    assert fallbacks(scene) == [False] * 12


@pytest.mark.parametrize("ahead", [HOUR, FAR, -HOUR])
def test_a_clock_that_is_wrong_for_ever_makes_no_commit_partial(ahead: int) -> None:
    scene = opened("r1", "r2", settings=PATIENT)
    rounds(scene, 0, 2)
    scene.world.skew = ahead
    rounds(scene, 2, 3)
    assert fallbacks(scene) == [False] * 5


def test_two_brokers_with_different_clocks_make_no_commit_partial() -> None:
    scene = opened("r1", "r2", settings=PATIENT)
    for checkpoint in range(8):
        scene.world.skew = HOUR if checkpoint % 2 else 0
        scene.batch(checkpoint, "r1")
        scene.settle(TIMEOUT // 20)
        scene.world.skew = -HOUR
        scene.batch(checkpoint, "r2")
        scene.settle(20)
    assert fallbacks(scene) == [False] * 8


@pytest.mark.parametrize("ahead", [HOUR, FAR, -HOUR])
def test_the_timer_is_of_one_length_whatever_the_broker_says(ahead: int) -> None:
    scene = opened("r1", "r2", settings=PATIENT)
    glitch(scene, ahead)
    scene.batch(0, "r1")
    scene.world.skew = -ahead
    scene.idle("r1", idle=False)
    scene.settle(TIMEOUT // 10 - 5)
    assert fallbacks(scene) == []
    scene.settle(25)
    assert fallbacks(scene) == [True]


@pytest.mark.parametrize("ahead", [HOUR, FAR])
def test_forced_cuts_are_given_up_once_in_a_timeout(ahead: int) -> None:
    """Found: with one append time far ahead, 83 records a second."""
    policy = PATIENT.policy.model_copy(update={"max_consecutive_fallbacks": 1})
    scene = opened("r1", "r2", settings=replace(PATIENT, policy=policy))
    glitch(scene, ahead)
    scene.batch(0, "r1")
    scene.settle(TIMEOUT // 10 + 10)
    assert fallbacks(scene) == [True]
    scene.batch(1, "r1")
    scene.settle(TIMEOUT // 10 * 4)
    assert records(scene, CutAbandoned) + records(scene, CutDecided) - 1 <= 4
    assert fallbacks(scene)[:2] == [True, True]


def test_one_append_time_far_ahead_has_nothing_carried_over_and_over() -> None:
    scene = opened("r1", "r2", settings=replace(PATIENT, carry_after=20_000))
    event = scene.write(0, hold=True)
    scene.complete(0, event)
    scene.world.skew = FAR
    scene.say(EventType.REGION_HEARTBEAT, scene.world.log[-1].body, "r9", "x")
    scene.world.skew = 0
    scene.settle(300)
    assert records(scene, LineageCarried) <= 4


@pytest.mark.parametrize("ahead", [0, HOUR, FAR, -HOUR])
def test_the_timer_outlives_its_coordinator(ahead: int) -> None:
    """A former wrong append time does not lengthen the wait of the next one."""
    scene = opened("r1", "r2", settings=PATIENT)
    glitch(scene, ahead)
    scene.batch(0, "r1")
    scene.settle(TIMEOUT // 20)
    scene.world.now += TIMEOUT
    scene.idle("r1", idle=False)
    scene.restart()
    scene.settle(20)
    assert fallbacks(scene) == [True]


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_after_a_restart_the_wait_is_at_most_one_timeout_longer(ahead: int) -> None:
    """What was sealed while the clock was wrong counts as new, or as old: never as of the future."""
    scene = opened("r1", "r2", settings=PATIENT)
    scene.world.skew = ahead
    scene.batch(0, "r1")
    scene.world.skew = 0
    scene.restart()
    scene.settle(TIMEOUT // 10 + 10)
    assert fallbacks(scene) == [True]
