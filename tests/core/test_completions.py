"""Which completion counts, and when what it names is sealed."""

from sluicegate.events.models import Parent
from tests.core.scene import opened


class TestFirstCompletionWins:
    def test_a_replay_with_other_files_changes_nothing(self) -> None:
        scene = opened()
        first = scene.write(0)
        second = scene.write(0)
        scene.complete(0, first)
        scene.complete(0, second)
        scene.settle()
        assert scene.table == [[first]]
        assert scene.machine.stall_reason is None

    def test_a_replay_after_the_commit_changes_nothing(self) -> None:
        scene = opened()
        first = scene.batch(0)
        scene.settle()
        scene.batch(0)
        scene.settle()
        assert scene.table == [[first]]

    def test_another_source_range_at_the_ref_stalls_the_region(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.settle()
        scene.batch(0, digest="other")
        scene.batch(1)
        scene.settle()
        assert len(scene.table) == 1
        assert "another source range" in (scene.machine.stall_reason or "")
        assert "rewind" in (scene.machine.stall_reason or "")

    def test_another_source_range_of_a_pending_checkpoint_stalls_the_region(self) -> None:
        scene = opened("r1", "r2")
        scene.batch(0)
        scene.batch(0, digest="other")
        scene.batch(0, "r2")
        scene.settle()
        assert scene.table == []
        assert "another source range" in (scene.machine.stall_reason or "")

    def test_below_the_ref_it_changes_nothing(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.batch(1)
        scene.settle()
        scene.batch(0, digest="other")
        third = scene.batch(2)
        scene.settle()
        assert scene.machine.stall_reason is None
        assert scene.table[-1] == [third]

    def test_what_a_completion_does_not_name_is_a_losers(self) -> None:
        scene = opened()
        scene.write(0)
        winner = scene.write(0)
        scene.complete(0, winner)
        scene.write(0)
        scene.settle()
        assert scene.table == [[winner]]


class TestContiguity:
    def test_uploads_may_follow_the_completion(self) -> None:
        scene = opened()
        late = scene.write(0, hold=True)
        scene.complete(0, late)
        second = scene.batch(1)
        scene.settle()
        assert scene.table == []
        scene.arrive()
        scene.settle()
        assert scene.table == [[late, second]]

    def test_lost_files_stall_the_region_until_a_rewind(self) -> None:
        scene = opened()
        first = scene.batch(0)
        scene.settle()
        scene.complete(1, scene.write(1, hold=True))
        scene.lost(1)
        scene.batch(2)
        scene.settle()
        assert "lost" in (scene.machine.stall_reason or "")
        parent = Parent(region="r1", lineage="q.0", checkpoint=0)
        answer = scene.open("r1", "q.1", (parent,))
        assert answer is not None
        assert answer.accepted
        again = scene.batch(1, lineage="q.1", predecessor=None)
        scene.settle()
        assert scene.table == [[first], [again]]
        assert scene.machine.stall_reason is None

    def test_a_predecessor_that_can_never_be_stalls_the_region(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.batch(1)
        scene.settle()
        scene.batch(2, predecessor=0)
        scene.settle()
        assert "predecessor 0" in (scene.machine.stall_reason or "")


class TestIdentity:
    def test_duplicate_events_count_once(self) -> None:
        scene = opened()
        event = scene.write(0)
        scene.world.append(*scene.world.log[-1][2:])
        scene.complete(0, event, event)
        scene.world.append(*scene.world.log[-1][2:])
        scene.settle()
        assert scene.table == [[event]]
        assert scene.world.table.rows == 1
