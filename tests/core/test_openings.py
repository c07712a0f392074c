"""Which openings are accepted: lineages, tables and assignments."""

import pytest

from sluicegate.coordinator.core import descent
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.gauges import waited_for
from sluicegate.coordinator.core.state import LineageState
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, Parent, Position, RegionOpened
from tests.core.scene import Scene, opened


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
        assert "committed up to checkpoint 1 of lineage q.0" in answer.reason
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
        scene.command("accept", "r1", "new.0", Position(lineage="q.0", checkpoint=0))
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


class TestHistory:
    def test_a_long_history_of_merges_costs_no_more_than_a_short_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[descent.Place] = []
        known = descent.lived

        def lived(book: Book, place: descent.Place) -> LineageState:
            looked.append(place)
            return known(book, place)

        monkeypatch.setattr(descent, "lived", lived)
        scene, costs = opened("a0", "b0"), list[int]()
        for number in range(1, 16):
            scene.batch(0, f"a{number - 1}")
            scene.batch(0, f"b{number - 1}")
            scene.settle()
            parents = tuple(
                Parent(region=f"{side}{number - 1}", lineage="q.0", checkpoint=0) for side in "ab"
            )
            scene.regions = (f"a{number}", f"b{number}")
            looked.clear()
            for region in scene.regions:
                answer = scene.open(region, "q.0", parents, number)
                assert answer is not None
                assert answer.accepted
            costs.append(len(looked))
        assert costs[-1] < 10 * costs[4]


def test_the_refusal_of_a_region_that_nobody_knows_ends_with_its_removal() -> None:
    scene = opened()
    scene.say(EventType.REGION_OPENED, _opening("r1"), "r9", "q.0")
    scene.settle()
    assert "r9" in scene.machine.record().refused
    scene.command("remove", "r9")
    scene.settle()
    assert scene.machine.record().refused == {}
    assert list(scene.machine.book.state.regions) == ["r1"]


def _opening(*regions: str) -> RegionOpened:
    return RegionOpened(assignment=Assignment(number=0, regions=regions))


def test_what_the_next_assignment_waits_for_is_named() -> None:
    scene = Scene(("r1",))
    assert scene.open("r1")
    assert waited_for(scene.machine.book) == []
    scene.regions = ("r1", "r2")
    assert scene.open("r1", number=1)
    assert waited_for(scene.machine.book) == ["region r2 of assignment 1 has never been opened"]
