"""The rules of the core, one by one."""

import pytest

from sluicegate.coordinator.core.decisions import completions_digest
from sluicegate.coordinator.core.effects import Effect
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutDecided, Parent, Position
from tests.core.scene import Scene


def opened(*regions: str) -> Scene:
    scene = Scene(regions or ("r1",))
    for region in scene.regions:
        answer = scene.open(region)
        assert answer is not None
        assert answer.accepted, answer.reason
    return scene


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


class TestLineages:
    def test_a_plain_restart_keeps_its_lineage(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.settle()
        answer = scene.open()
        assert answer is not None
        assert answer.accepted
        assert answer.committed == Position(lineage="q.0", checkpoint=0)

    def test_a_rewind_makes_what_is_beyond_void(self) -> None:
        scene = opened("r1", "r2")
        first, other = scene.batch(0), scene.batch(0, "r2")
        scene.settle()
        scene.batch(1)
        parent = Parent(region="r1", lineage="q.0", checkpoint=0)
        answer = scene.open("r1", "q.1", (parent,))
        assert answer is not None
        assert answer.accepted
        again, second = scene.batch(1, lineage="q.1", predecessor=None), scene.batch(1, "r2")
        scene.batch(2)
        scene.settle()
        assert scene.table == [[first, other], [again, second]]

    def test_a_rewind_behind_the_cut_is_refused_with_the_command(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.batch(1)
        scene.settle()
        answer = scene.open("r1", "q.1", (Parent(region="r1", lineage="q.0", checkpoint=0),))
        assert answer is not None
        assert not answer.accepted
        assert "committed up to 1 of lineage q.0" in answer.reason
        assert "name that as the parent" in answer.reason

    def test_a_deleted_checkpoint_location_is_refused_until_accepted(self) -> None:
        scene = opened()
        first = scene.batch(0)
        scene.settle()
        refused = scene.open("r1", "new.0")
        assert refused is not None
        assert not refused.accepted
        assert "sluicegate accept --stream sim --region r1 --lineage new.0" in refused.reason
        scene.batch(0, lineage="new.0", predecessor=None)
        scene.settle()
        assert scene.table == [[first]]
        scene.command("accept", "r1", "new.0")
        accepted = scene.open("r1", "new.0")
        assert accepted is not None
        assert accepted.accepted
        again = scene.batch(0, lineage="new.0", predecessor=None)
        scene.settle()
        assert scene.table == [[first], [again]]

    def test_a_replaced_lineage_cannot_come_back(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.settle()
        scene.open("r1", "q.1", (Parent(region="r1", lineage="q.0", checkpoint=0),))
        answer = scene.open("r1", "q.0")
        assert answer is not None
        assert not answer.accepted
        assert "replaced by q.1" in answer.reason

    def test_a_child_waits_for_its_parents_named_checkpoint(self) -> None:
        scene = opened()
        late = scene.write(0, hold=True)
        scene.complete(0, late)
        scene.settle()
        scene.open("r1", "q.1", (Parent(region="r1", lineage="q.0", checkpoint=0),))
        child = scene.batch(1, lineage="q.1", predecessor=None)
        scene.settle()
        assert scene.table == []
        scene.arrive()
        scene.settle()
        assert scene.table == [[late, child]]


class TestTables:
    def test_a_job_of_another_table_is_refused_and_may_come_back_with_the_right_one(self) -> None:
        scene = Scene()
        refused = scene.open(table="file:///lake/other")
        assert refused is not None
        assert not refused.accepted
        assert "writes to file:///lake/other" in refused.reason
        assert "memory://" in refused.reason
        assert "option `table`" in refused.reason
        assert scene.machine.stall_reason is None
        accepted = scene.open(table="memory://sim")
        assert accepted is not None
        assert accepted.accepted
        event = scene.batch(0)
        scene.settle()
        assert scene.table == [[event]]

    def test_a_job_of_another_table_is_told_of_nothing_else(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.settle()
        refused = scene.open("r1", "new.0", table="file:///lake/other")
        assert refused is not None
        assert "file:///lake/other" in refused.reason
        assert "accept" not in refused.reason

    def test_a_table_that_is_not_told_is_not_asked_for(self) -> None:
        answer = Scene().open()
        assert answer is not None
        assert answer.accepted


class TestAssignments:
    def test_the_same_number_with_other_regions_is_refused(self) -> None:
        scene = opened("r1", "r2")
        scene.regions = ("r1", "r3")
        answer = scene.open("r3")
        assert answer is not None
        assert "raise the assignment's number" in answer.reason

    def test_an_older_number_is_refused(self) -> None:
        scene = Scene(("r1",))
        scene.open(number=2)
        answer = scene.open(number=1)
        assert answer is not None
        assert "older" in answer.reason

    def test_a_region_that_never_opened_holds_the_cut(self) -> None:
        scene = Scene(("r1", "r2"))
        scene.open("r1")
        scene.batch(0)
        scene.settle()
        assert scene.table == []


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


class TestDecisions:
    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"decision": 3}, "does not follow"),
            ({"cut": {"r1": ("q.0", 9)}}, "not sealed"),
            ({"cut": {"r1": ("q.9", 1)}}, "not sealed"),
            ({"cut": {"r9": ("q.0", 1), "r1": ("q.0", 1)}}, "never opened"),
            ({"cut": {"r1": ("q.0", 0), "r2": ("q.0", 0)}}, "no region moves"),
            ({"cut": {"r1": ("q.0", 1)}}, "leaves out"),
            ({"cut": {"r1": ("q.0", 1), "r2": ("q.0", 0)}}, "not full"),
            ({"final": True}, "final mark"),
            ({"completions": "0" * 64}, "digest"),
        ],
    )
    def test_a_decision_that_the_log_does_not_permit_is_void(
        self, change: dict[str, object], why: str
    ) -> None:
        scene = opened("r1", "r2")
        for number in (0, 1):
            scene.batch(number)
            scene.batch(number, "r2")
            if number == 0:
                scene.settle()
        right = self._decision(scene)
        given = {**right.model_dump(), **change}
        cut = change.get("cut")
        if isinstance(cut, dict):
            given["cut"] = {name: {"lineage": at[0], "checkpoint": at[1]} for name, at in cut.items()}
        scene.node.read(1000)
        reason = self._read(scene, CutDecided.model_validate(given))
        assert reason is not None
        assert why in reason
        assert self._read(scene, right) is None
        scene.settle()
        assert [commit.decision for commit in scene.commits] == [1, 2]

    def test_the_first_valid_decision_of_an_id_wins(self) -> None:
        scene = opened()
        first = scene.batch(0)
        scene.node.read(1000)
        right = self._decision(scene)
        second = scene.batch(1)
        scene.say(EventType.CUT_DECIDED, right)
        scene.say(EventType.CUT_DECIDED, right)
        scene.settle()
        assert scene.table == [[first], [second]]

    @staticmethod
    def _decision(scene: Scene) -> CutDecided:
        scene.node.read(1000)
        book = scene.machine.book
        moves = {name: at for name in scene.regions if (at := book.frontier(name)) is not None}
        content = [(name, *sealed) for name in sorted(moves) for sealed in book.sealed(name)]
        return CutDecided(decision=book.state.decided + 1, cut=moves, completions=completions_digest(content))

    @staticmethod
    def _read(scene: Scene, body: CutDecided) -> str | None:
        scene.say(EventType.CUT_DECIDED, body)
        entry = scene.world.log[-1]
        scene.node.next = entry.offset + 1
        return scene.machine.arrived(entry.offset, entry.time, entry.envelope, entry.body)


class TestTime:
    def test_nothing_is_decided_before_the_end_that_was_seen_has_been_read(self) -> None:
        scene = opened()
        for number in range(5):
            scene.batch(number)
        scene.restart()
        for _ in range(20):
            scene.world.now += 10
            scene.node.read(1)
            scene.node.poll()
            while scene.node.run_one(crash=False) is not None:
                pass
            if scene.machine.position < len(scene.world.log):
                assert scene.table == []
        scene.settle()
        assert len(scene.table) == 1

    def test_after_a_freeze_everything_that_piled_up_is_one_commit(self) -> None:
        scene = opened()
        scene.batch(0)
        scene.settle()
        for number in range(1, 60):
            scene.batch(number)
        scene.world.now += 30_000
        for _ in range(200):
            scene.world.now += 10
            scene.node.poll()
            while scene.node.run_one(crash=False) is not None:
                pass
            scene.node.read(5)
        assert [len(files) for files in scene.table] == [1, 59]


class TestGroupCommit:
    def test_what_is_sealed_during_a_commit_enters_the_next_cut_together(self) -> None:
        scene = opened()
        first = scene.batch(0)
        effects: list[Effect] = []
        while not any(type(effect).__name__ == "Publish" for effect in effects):
            scene.world.now += 10
            scene.node.read(1000)
            scene.node.poll()
            effects = list(scene.node.in_flight)
            if not any(type(effect).__name__ == "Publish" for effect in effects):
                scene.node.run_one(crash=False)
        later = [scene.batch(number) for number in (1, 2, 3)]
        scene.settle()
        assert scene.table == [[first], later]


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
        from sluicegate.events.models import StreamStalled

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
