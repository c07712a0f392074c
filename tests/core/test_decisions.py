"""Which decisions hold, and when one is made."""

import pytest

from sluicegate.coordinator.core.decisions import completions_digest
from sluicegate.coordinator.core.effects import AppendDecision, CheckFiles, Effect, Failed
from sluicegate.coordinator.core.observer import Observer
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutDecided
from sluicegate.simulator.node import Node
from tests.core.scene import PARTIAL, Scene, opened


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


class TestReconsidering:
    def test_a_better_cut_is_checked_as_soon_as_it_takes_the_place_of_another(self) -> None:
        scene = opened("r1", "r2", settings=PARTIAL)
        node, first = scene.node, [scene.batch(0, "r1"), scene.batch(0, "r2")]
        scene.settle()
        early = scene.batch(1, "r1")
        for _ in range(scene.machine.settings.alignment_timeout // 100 + 10):
            scene.world.now += 100
            node.read(1000)
            node.poll()
            if _checked(node):
                break
            node.run_one(crash=False)
        assert _checked(node) == ["r1"]
        late = scene.batch(1, "r2")
        node.read(1000)
        while node.in_flight:
            node.run_one(crash=False)
        node.poll()
        assert _checked(node) == ["r2"]
        scene.settle()
        assert scene.table == [first, [early, late]]


class TestObserver:
    def test_a_failed_append_takes_nothing_back_from_the_decision_that_was_read_meanwhile(self) -> None:
        scene = opened()
        scene.batch(0)
        observer, node = Observer(scene.machine), scene.node
        node.read(1000)
        for _ in range(100):
            scene.world.now += 10
            node.poll()
            ours = [effect for effect in node.in_flight if isinstance(effect, AppendDecision)]
            if ours:
                break
            node.run_one(crash=False)
        observer.handed(ours[0])
        scene.say(EventType.CUT_DECIDED, ours[0].body)
        node.read(1000)
        assert [change.after for change in observer.look() if change.kind == "decision"] == ["decided"]
        scene.machine.finished(ours[0], Failed("it timed out, and nothing was written"))
        failed = observer.finished(ours[0], Failed("it timed out, and nothing was written"))
        assert [change for change in failed if change.kind == "decision"] == []


def _checked(node: Node) -> list[str]:
    """The regions whose files are about to be checked."""
    effects = [effect for effect in node.in_flight if isinstance(effect, CheckFiles)]
    return [part.region for effect in effects for part in effect.parts]
