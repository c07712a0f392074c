"""What idle, closed and slow regions do to the cut."""

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutDecided, StreamStalled
from tests.core.scene import opened


class TestRegions:
    def test_an_idle_region_does_not_hold_back(self) -> None:
        scene = opened("r1", "r2")
        first = scene.batch(0)
        scene.settle()
        assert scene.table == []
        scene.idle("r2")
        scene.settle()
        assert scene.table == [[first]]
        scene.write(0, "r2")
        scene.batch(1)
        scene.settle()
        assert len(scene.table) == 1, "r2 has begun to write: it is not idle any more"

    def test_a_closed_region_leaves_once_its_final_checkpoint_is_in_the_cut(self) -> None:
        scene = opened("r1", "r2")
        scene.batch(0)
        scene.batch(0, "r2")
        scene.batch(1, "r2")
        scene.close(1, "r2")
        scene.settle()
        third = scene.batch(1)
        scene.settle()
        assert scene.table[-1] == [third]
        decided = [entry.body for entry in scene.world.log if isinstance(entry.body, CutDecided)]
        assert [body.final for body in decided] == [True, False]

    def test_a_region_that_closes_without_a_checkpoint_leaves_at_once(self) -> None:
        scene = opened("r1", "r2")
        scene.close(None, "r2")
        first = scene.batch(0)
        scene.settle()
        assert scene.table == [[first]]

    def test_a_closing_that_a_restart_overtook_does_not_end_the_region(self) -> None:
        scene = opened("r1", "r2")
        scene.batch(0)
        scene.batch(0, "r2")
        scene.open("r2")
        scene.close(0, "r2")
        scene.settle()
        scene.batch(1, "r2")
        second = scene.batch(1)
        third = scene.batch(2)
        scene.settle()
        assert {second, third} < set(scene.table[-1])
        scene.batch(3)
        scene.settle()
        assert len(scene.table) == 2, "r2 goes on, so the cut waits for it"

    def test_the_watermark_is_the_minimum_of_the_active_regions_and_never_falls(self) -> None:
        scene = opened("r1", "r2")
        scene.batch(0, watermark=500)
        scene.batch(0, "r2", watermark=300)
        scene.settle()
        scene.idle("r2")
        scene.batch(1, watermark=700)
        scene.settle()
        scene.batch(1, "r2", watermark=400)
        scene.batch(2, watermark=800)
        scene.settle()
        assert [commit.watermark for commit in scene.commits] == [300, 700, 700]

    def test_a_stall_by_way_of_the_log_holds_until_it_is_resumed(self) -> None:
        scene = opened()
        scene.say(EventType.STREAM_STALLED, StreamStalled(reason="events stand elsewhere"))
        first = scene.batch(0)
        scene.settle()
        assert scene.table == []
        assert scene.machine.stall_reason == "events stand elsewhere"
        scene.restart()
        scene.settle()
        assert scene.table == []
        scene.command("resume")
        scene.settle()
        assert scene.table == [[first]]
