"""What each answer and outcome of the table means, and the order of everything that follows a commit."""

from collections.abc import Callable

from sluicegate.coordinator.core.effects import Announce, Ask, Publish, WriteRecord
from sluicegate.coordinator.core.machine import PROBE
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, OpeningAnswered, RegionOpened, StreamCommand
from sluicegate.lakes.memory import FaultPoint
from sluicegate.lakes.port import (
    CommitRequest,
    Conflict,
    LakeUnavailable,
    OutcomeUnknown,
    Publication,
    Refused,
)
from tests.core.scene import Scene


class Fault:
    """Fails a number of times at one point."""

    def __init__(self, point: FaultPoint, outcome: Callable[[], Publication | None], times: int = 1) -> None:
        self._point, self._outcome, self.left = point, outcome, times

    def __call__(self, point: FaultPoint) -> Publication | None:
        if point != self._point or self.left == 0:
            return None
        self.left -= 1
        return self._outcome()


def away() -> Publication | None:
    raise LakeUnavailable("the storage does not answer")


def committed_once(fault: Fault) -> Scene:
    scene = Scene(faults=fault)
    scene.open()
    event = scene.batch(0)
    scene.settle()
    assert fault.left == 0, "the fault never happened"
    assert scene.table == [[event]]
    assert [commit.decision for commit in scene.commits] == [1]
    return scene


def names(scene: Scene) -> list[str]:
    return [type(effect).__name__ for effect in scene.done]


def test_the_order_of_a_commit() -> None:
    scene = Scene()
    scene.open()
    scene.done.clear()
    scene.batch(0)
    scene.settle()
    order = [name for name in names(scene) if name != "FetchEnd"]
    assert order[:6] == [
        "CheckFiles",
        "AppendDecision",
        "Ask",
        "Publish",
        "WriteRecord",
        "Announce",
    ] or order[:7] == [
        "CheckFiles",
        "AppendDecision",
        "Ask",
        "Publish",
        "WriteRecord",
        "WriteView",
        "Announce",
    ]
    assert set(order[6:]) >= {"ReleaseOffsets"}


def test_a_conflict_is_asked_about_and_published_again() -> None:
    scene = committed_once(Fault("publish.before", Conflict, 3))
    asked = [effect for effect in scene.done if isinstance(effect, Ask) and effect.digest != PROBE]
    assert len(asked) == names(scene).count("Publish") == 4


def test_an_unknown_outcome_that_was_visible_is_found() -> None:
    scene = committed_once(Fault("publish.after", lambda: OutcomeUnknown("timed out")))
    assert names(scene).count("Publish") == 1


def test_an_unknown_outcome_that_was_not_visible_is_published_again() -> None:
    scene = committed_once(Fault("publish.before", lambda: OutcomeUnknown("timed out")))
    assert names(scene).count("Publish") == 2


def test_a_table_that_is_away_is_tried_again() -> None:
    points: tuple[FaultPoint, ...] = ("inspect", "ask", "check")
    for point in points:
        committed_once(Fault(point, away, 3))


def test_a_refusal_stalls_with_its_reason_until_the_cause_is_gone() -> None:
    fault = Fault("publish.before", lambda: Refused("the table is read-only"), times=-1)
    scene = Scene(faults=fault)
    scene.open()
    event = scene.batch(0)
    scene.settle(20)
    assert scene.table == []
    assert "the table is read-only" in (scene.machine.stall_reason or "")
    fault.left = 0
    scene.settle()
    assert scene.table == [[event]]
    assert scene.machine.stall_reason is None


def test_a_foreign_commit_between_asking_and_publishing_is_a_conflict() -> None:
    scene = Scene()

    def foreign() -> Publication | None:
        scene.world.table.foreign_commit()
        return None

    scene.faults = Fault("publish.before", foreign)
    scene.restart()
    scene.open()
    event = scene.batch(0)
    scene.settle()
    assert scene.table == [[], [event]]


def test_our_id_with_another_content_in_the_table_stalls() -> None:
    scene = Scene()
    scene.open()
    table = scene.world.table
    table.commit("sluicegate-sim", CommitRequest(1, "another digest", None, None, ()))
    scene.batch(0)
    scene.settle()
    assert len(scene.table) == 1
    assert "other content" in (scene.machine.stall_reason or "")


def test_a_table_that_is_ahead_of_the_log_is_refused() -> None:
    scene = Scene()
    scene.world.table.commit("sluicegate-sim", CommitRequest(1, "digest", None, None, ()))
    answer = scene.open()
    assert answer is not None
    assert not answer.accepted
    assert "the log ends at decision 0" in answer.reason


def test_a_replaced_table_stalls() -> None:
    scene = Scene()
    scene.open()
    scene.batch(0)
    scene.settle()
    scene.world.table.replace()
    scene.batch(1)
    scene.settle()
    assert scene.table == []
    assert "replaced" in (scene.machine.stall_reason or "")


def test_a_rolled_back_table_stalls() -> None:
    scene = Scene()
    scene.open()
    scene.batch(0)
    scene.settle()
    scene.batch(1)
    scene.settle()
    scene.world.table.rollback(1)
    scene.batch(2)
    scene.settle()
    assert len(scene.table) == 1
    assert "rolled back" in (scene.machine.stall_reason or "")


def test_an_unfit_table_refuses_openings_by_name() -> None:
    scene = Scene()
    scene.world.table.refusal = "it has a primary key"
    answer = scene.open()
    assert answer is not None
    assert answer.reason == "it has a primary key"
    scene.world.table.refusal = None
    again = scene.open()
    assert again is not None
    assert again.accepted


def test_a_notification_survives_a_crash_after_the_record() -> None:
    scene = Scene()
    scene.open()
    scene.batch(0)
    while True:
        scene.world.now += 10
        scene.node.read(100)
        scene.node.poll()
        effect = scene.node.run_one(crash=False)
        if type(effect).__name__ == "WriteRecord" and scene.machine.book.state.committed == 1:
            break
    assert scene.commits == []
    scene.restart()
    scene.settle()
    assert [commit.decision for commit in scene.commits] == [1]


def test_wiping_the_record_of_an_uncommitted_stream_loses_nothing() -> None:
    scene = Scene()
    scene.open()
    event = scene.batch(0)
    scene.world.record = None
    scene.restart()
    scene.settle()
    assert scene.table == [[event]]


def test_nothing_behind_an_unreadable_record_is_applied() -> None:
    scene = Scene()
    scene.open()
    first = scene.batch(0)
    scene.settle()
    offset = scene.world.append(*scene.world.log[-1][2:])
    scene.machine.unreadable(offset, "upgrade the coordinator")
    scene.batch(1)
    answer = scene.open()
    assert answer is not None
    assert answer.reason == "upgrade the coordinator"
    assert scene.table == [[first]]
    assert scene.machine.stall_reason == "upgrade the coordinator"
    assert scene.machine.record().applied < offset
    scene.restart()
    scene.settle()
    assert len(scene.table) == 2


def forget_history(scene: Scene) -> None:
    """Other writers go on for so long that none of the stream's snapshots is left."""
    for _ in range(3):
        scene.world.table.foreign_commit()
    scene.world.table.expire(1)


def test_a_stream_without_work_goes_on_when_its_last_snapshot_has_expired_during_a_downtime() -> None:
    scene = committed_once(Fault("ask", away))
    forget_history(scene)
    scene.restart()
    event = scene.batch(1)
    scene.settle()
    assert scene.machine.stall_reason is None
    assert scene.table[-1] == [event]


def test_a_table_that_other_writers_began_is_committed_to_after_a_quiet_time() -> None:
    scene = Scene()
    scene.open()
    scene.settle()
    forget_history(scene)
    scene.world.now += 300_000
    scene.settle()
    event = scene.batch(0)
    scene.settle()
    assert scene.machine.stall_reason is None
    assert scene.table[-1] == [event]


def test_a_quiet_stream_records_the_head_before_the_history_forgets_its_own() -> None:
    scene = committed_once(Fault("ask", away))
    for _ in range(3):
        scene.world.table.foreign_commit()
    scene.world.now += 300_000
    scene.settle()
    recorded = StateRecord.model_validate_json(scene.world.record or "").state.recorded
    head = scene.world.table.head
    assert head is not None
    assert recorded == head.ref


def test_a_rolled_back_table_is_still_noticed_after_a_restart_without_work() -> None:
    scene = committed_once(Fault("ask", away))
    scene.world.table.rollback(0)
    scene.world.table.foreign_commit()
    scene.restart()
    scene.batch(1)
    scene.settle()
    assert "rolled back" in (scene.machine.stall_reason or "")
    assert len(scene.commits) == 1


def test_no_record_hides_an_opening_that_is_not_answered() -> None:
    scene = Scene()
    scene.world.table.refusal = "the table has a primary key"
    scene.settle()
    body = RegionOpened(assignment=Assignment(number=0, regions=scene.regions))
    scene.open("r1", "elsewhere")
    scene.world.now += 3_600_000
    opening = scene.say(EventType.REGION_OPENED, body, "r1", "elsewhere")
    scene.node.read(10)
    scene.node.poll()
    for effect in scene.node.in_flight:
        if isinstance(effect, WriteRecord | Announce):
            scene.machine.finished(effect, scene.node.perform(effect))
    scene.restart()
    scene.settle()
    answers = [due.body for due in scene.world.commits if isinstance(due.body, OpeningAnswered)]
    assert opening in [answer.opening for answer in answers]


def test_a_commit_under_way_does_not_hide_why_the_stream_stalls() -> None:
    scene = Scene()
    scene.open()
    scene.batch(0)
    scene.settle()
    event = scene.batch(1)
    while not any(isinstance(effect, Publish) for effect in scene.node.in_flight):
        scene.world.now += 10
        scene.node.read(10)
        scene.node.poll()
        for effect in [each for each in scene.node.in_flight if not isinstance(each, Publish)]:
            scene.node.in_flight.remove(effect)
            scene.machine.finished(effect, scene.node.perform(effect))
    scene.machine.unreadable(len(scene.world.log), "a newer release is needed")
    scene.settle()
    assert scene.table[-1] == [event]
    assert scene.machine.stall_reason == "a newer release is needed"
    assert [commit.decision for commit in scene.commits] == [1, 2]


def test_a_reader_of_an_older_record_ends_behind_a_void_that_follows_a_commit() -> None:
    fault = Fault("publish.before", lambda: Refused("the table is read-only"), times=0)
    scene = committed_once(fault)
    older = scene.world.record
    scene.batch(1)
    scene.settle()
    fault.left = -1
    scene.batch(2)
    scene.settle()
    fault.left = 0
    void = StreamCommand(command="void", decision=3, region="r1", checkpoint=2)
    scene.say(EventType.STREAM_COMMAND, void)
    scene.settle()
    scene.world.record = older
    scene.restart()
    scene.settle()
    assert [len(files) for files in scene.table] == [1, 1, 0]
    state = scene.machine.book.state
    assert (state.decided, state.committed, state.pending) == (3, 3, [])
