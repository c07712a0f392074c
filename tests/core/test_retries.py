"""What fails and is tried again is known with its reason, and counts as a stall when it lasts."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendDecision,
    Failed,
    FetchEnd,
    Publish,
    ReleaseOffsets,
    WriteView,
)
from sluicegate.coordinator.core.retries import Retries
from sluicegate.events.models import StreamStalled
from sluicegate.lakes.port import Conflict, LakeUnavailable, NotPublished, OutcomeUnknown, Publication
from tests.core.scene import SETTINGS, Scene
from tests.core.test_outcomes import Fault

PATIENT = replace(SETTINGS, stall_after=1_000)
PUBLISH = Publish(1, "d", None, None, (), ())


def full() -> Publication | None:
    return OutcomeUnknown("OSError: No space left on device")


def stalls(scene: Scene) -> list[str]:
    told = {due.id: due.body for due in scene.world.commits if isinstance(due.body, StreamStalled)}
    return [body.reason for body in told.values()]


def failing(point: str, outcome: Callable[[], Publication | None]) -> tuple[Scene, Fault, str]:
    """A stream whose table fails at a point, for half a second, once it has something to commit."""
    fault = Fault(point, outcome, 0)  # type: ignore[arg-type]
    scene = Scene(faults=fault, settings=PATIENT)
    scene.open()
    event = scene.batch(0)
    fault.left = -1
    scene.settle(50)
    return scene, fault, event


def away() -> Publication | None:
    raise LakeUnavailable("cannot list snapshot")


@pytest.mark.parametrize(
    ("point", "outcome", "kind", "reason"),
    [
        ("publish.before", full, "publish", "No space left on device"),
        ("publish.before", lambda: Conflict("it was compacted"), "publish", "it was compacted"),
        ("publish.before", lambda: NotPublished("disk full"), "publish", "disk full"),
        ("publish.before", away, "publish", "cannot list snapshot"),
        ("ask", away, "ask", "cannot list snapshot"),
        ("check", away, "check", "cannot list snapshot"),
    ],
)
def test_a_faulty_table_is_known_stalls_and_recovers(
    point: str, outcome: Callable[[], Publication | None], kind: str, reason: str
) -> None:
    scene, fault, event = failing(point, outcome)
    machine = scene.machine
    assert [each.effect for each in machine.retries] == [kind]
    assert reason in machine.retries[0].reason
    assert machine.retries[0].failures > 2
    assert machine.stall_reason is None
    view = scene.world.view
    assert view is not None
    assert [(each.effect, reason in each.reason) for each in view.retries] == [(kind, True)]

    scene.settle(80)
    assert reason in (machine.stall_reason or "")
    assert [reason in each for each in stalls(scene)] == [True], "told once, however long it lasts"
    tried = machine.retries[0].failures
    scene.settle(80)
    assert machine.retries[0].failures > tried, "a stall does not end the retries"
    assert machine.record().stalled == machine.stall_reason

    fault.left = 0
    scene.settle()
    assert (machine.stall_reason, machine.retries) == (None, ())
    assert scene.table == [[event]]
    assert len(stalls(scene)) == 1
    record, view = machine.record(), scene.world.view
    assert (record.stalled, record.retries) == (None, [])
    assert view is not None
    assert (view.stalled, view.retries) == (None, [])


def test_a_table_that_cannot_be_inspected_at_the_start_stalls_too() -> None:
    fault = Fault("inspect", away, -1)
    scene = Scene(faults=fault, settings=PATIENT)
    scene.settle(150)
    assert "the table cannot be inspected" in (scene.machine.stall_reason or "")
    assert len(stalls(scene)) == 1
    fault.left = 0
    assert (answer := scene.open()) is not None
    assert answer.accepted
    assert scene.machine.stall_reason is None


def test_an_append_that_failed_and_is_not_wanted_any_more_is_forgotten() -> None:
    scene = Scene(settings=PATIENT)
    scene.open()
    scene.batch(0)
    scene.node.read(10_000)
    machine, now = scene.machine, scene.world.now
    failed = False
    for _ in range(400):
        now += 10
        for effect in machine.poll(now):
            if isinstance(effect, AppendDecision):
                failed = True
                machine.finished(effect, Failed("NotLeaderForPartition"))
                # Another coordinator pauses the stream before it is tried again.
                scene.command("pause")
                entry = scene.world.log[-1]
                machine.arrived(len(scene.world.log) - 1, entry.time, entry.envelope, entry.body)
            else:
                machine.finished(effect, scene.node.perform(effect))
        if failed and not machine.retries:
            break
    assert failed
    assert machine.retries == ()


def test_the_view_and_the_offsets_hold_nothing_up() -> None:
    retries = Retries(1_000)
    record = Scene().machine.record()
    for now in range(0, 60_000, 500):
        retries.failed(WriteView(record), now, "Redis is away")
        retries.failed(ReleaseOffsets(), now, "a rebalance")
    assert retries.stall is None
    assert [(each.effect, each.failures) for each in retries.open] == [("view", 120), ("offsets", 120)]


def test_offsets_that_were_not_released_are_tried_again_and_hold_up_nothing() -> None:
    scene = Scene(settings=replace(PATIENT, longest_pause=100))
    scene.open()
    scene.batch(0)
    scene.node.read(10_000)
    machine, tried = scene.machine, list[int]()
    for _ in range(100):
        scene.world.now += 10
        for effect in machine.poll(scene.world.now):
            if isinstance(effect, ReleaseOffsets) and len(tried) < 3:
                tried.append(scene.world.now)
                machine.finished(effect, Failed("a rebalance"))
                assert [each.effect for each in machine.retries] == ["offsets"]
            else:
                machine.finished(effect, scene.node.perform(effect))
        scene.node.read(10_000)
    assert len(tried) == 3
    assert min(after - before for before, after in pairwise(tried)) >= 100
    assert machine.retries == ()
    assert scene.table


def test_a_stall_keeps_its_words_and_a_process_that_stood_still_is_no_stall() -> None:
    retries = Retries(1_000)
    retries.failed(FetchEnd(), 0, "first")
    assert retries.stall is None
    retries.failed(FetchEnd(), 1_000, "second")
    said = retries.stall
    assert said is not None
    assert "second" in said
    retries.failed(FetchEnd(), 2_000, "third")
    assert retries.stall == said
    assert retries.open[0].reason == "third"
    retries.succeeded(FetchEnd())
    assert (retries.stall, retries.open) == (None, ())


def test_a_record_does_not_show_for_long_what_is_over() -> None:
    """A record that was written while a notification failed is followed by one that says no more of it."""
    scene = Scene(settings=replace(PATIENT, stall_after=10**9))
    scene.open()
    scene.batch(0)
    scene.node.read(10_000)
    machine, failures, shown = scene.machine, 0, False
    for _ in range(200):
        scene.world.now += 10
        for effect in machine.poll(scene.world.now):
            if isinstance(effect, Announce) and failures < 5:
                failures += 1
                machine.finished(effect, Failed("no leader"))
                if failures == 4:
                    scene.command("pause")
            else:
                machine.finished(effect, scene.node.perform(effect))
        shown = shown or '"effect":"announce"' in (scene.world.record or "")
        scene.node.read(10_000)
    assert shown
    assert '"retries":[]' in (scene.world.record or "")


def test_the_view_is_told_with_doubling_distance_and_at_the_end() -> None:
    retries = Retries(10**9)
    told = []
    for number in range(1, 20):
        retries.failed(PUBLISH, number, "full")
        if retries.take_change():
            told.append(number)
    assert told == [2, 4, 8, 16]
    retries.succeeded(PUBLISH)
    assert retries.take_change()
    retries.failed(PUBLISH, 30, "a conflict")
    retries.succeeded(PUBLISH)
    assert not retries.take_change(), "a single conflict is not shown"
