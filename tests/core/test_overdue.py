"""Completed checkpoints that lack something: when that is a stall, and how little is remembered for it."""

from dataclasses import replace

from sluicegate.coordinator.core.overdue import _MOST
from sluicegate.events.envelope import EventType
from tests.core.scene import SETTINGS, Scene, opened

AFTER = 2_000
PATIENT = replace(SETTINGS, overdue_after=AFTER)


def stalls(scene: Scene) -> list[str]:
    """The stalls that were told."""
    return [str(due.body) for due in scene.world.commits if due.type is EventType.STREAM_STALLED]


def misplace(scene: Scene) -> str:
    """Let checkpoint 1 name an event that was sent for checkpoint 0, which is committed."""
    scene.batch(0)
    scene.settle()
    event = scene.write(0)
    scene.complete(1, event)
    return event


def test_a_gap_that_is_filled_in_time_is_no_stall() -> None:
    scene = opened(settings=PATIENT)
    scene.batch(1)
    scene.settle(AFTER // 10 - 20)
    scene.batch(0)
    scene.settle(AFTER // 10 * 2)
    assert stalls(scene) == []
    assert scene.machine.stall_reason is None
    assert len(scene.table) == 1


def test_a_gap_that_is_filled_behind_what_was_read_is_no_stall() -> None:
    """The log is read to an end fetched after the gap was overdue, before that is told."""
    scene = opened(settings=PATIENT)
    scene.batch(1)
    scene.settle(AFTER // 10 - 20)
    scene.batch(0)
    for _ in range(AFTER // 10):
        # It is late, and reads nothing.
        scene.world.now += 10
        scene.node.poll()
        while scene.node.run_one(crash=False) is not None:
            pass
    assert stalls(scene) == []
    scene.settle()
    assert stalls(scene) == []


def test_a_gap_that_stays_is_a_stall_until_it_is_filled() -> None:
    scene = opened(settings=PATIENT)
    scene.batch(1)
    scene.settle(AFTER // 10 + 60)
    assert len(stalls(scene)) == 1
    assert "follows 0, which was never completed" in (scene.machine.stall_reason or "")
    scene.batch(0)
    scene.settle()
    assert scene.machine.stall_reason is None


def test_a_successor_knows_where_the_event_lies() -> None:
    scene = opened(settings=PATIENT)
    event = misplace(scene)
    scene.settle(AFTER // 10 + 60)
    reason = scene.machine.stall_reason
    assert f"names event {event}, which its writer sent for checkpoint 0 of lineage q.0" in (reason or "")
    scene.restart()
    scene.settle(AFTER // 10 + 60)
    assert scene.machine.stall_reason == reason


def test_an_event_from_before_the_opening() -> None:
    scene = opened(settings=PATIENT)
    event = scene.write(0, lineage="q.1")
    scene.open(lineage="q.1")
    scene.complete(0, event, lineage="q.1")
    scene.settle(AFTER // 10 + 60)
    assert f"names event {event}, which its writer sent before that lineage was opened" in (
        scene.machine.stall_reason or ""
    )


def test_an_upload_that_is_late_is_no_stall() -> None:
    scene = opened(settings=PATIENT)
    event = scene.write(0, hold=True)
    scene.complete(0, event)
    scene.settle(AFTER // 10 * 3)
    assert stalls(scene) == []
    scene.arrive()
    scene.settle()
    assert scene.table == [[event]]


def test_what_is_remembered_is_bounded() -> None:
    scene = opened(settings=PATIENT)
    for _ in range(_MOST + 200):
        scene.write(0, lineage="elsewhere")
    scene.settle()
    assert len(scene.machine._overdue._unused) == _MOST
