"""What a stream without work sees of its table and of its files, and how it shows that a cause is gone."""

from dataclasses import replace

from sluicegate.coordinator.core.effects import CheckFiles, Effect, FilesChecked, Result
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.models import StreamStalled
from sluicegate.lakes.port import CommitRequest
from sluicegate.simulator.node import Fate
from tests.core.scene import PARTIAL, Scene, opened

USER = "sluicegate-sim"
LONG = 300_000
"""Milliseconds after which the table has been looked at again."""


def committed() -> Scene:
    """A scene with two commits, and nothing more to do."""
    scene = opened()
    for number in range(2):
        scene.batch(number)
        scene.settle()
    return scene


def pass_time(scene: Scene) -> None:
    scene.world.now += LONG
    scene.settle()


def recorded(scene: Scene) -> str | None:
    """The stall that the newest state record shows."""
    return StateRecord.model_validate_json(scene.world.record or "").stalled


def test_an_idle_stream_notices_that_its_table_was_replaced() -> None:
    scene = committed()
    kept = scene.world.table.snapshots
    scene.world.table.replace()
    pass_time(scene)
    assert "the table was replaced" in (scene.machine.stall_reason or "")
    assert "the table was replaced" in (recorded(scene) or "")
    scene.world.table._generation -= 1
    scene.world.table.restore(kept)
    pass_time(scene)
    assert scene.machine.stall_reason is None


def test_an_idle_stream_notices_that_its_table_was_rolled_back() -> None:
    scene = committed()
    newest = scene.world.table.snapshots[1:]
    scene.world.table.rollback(1)
    pass_time(scene)
    assert "rolled back" in (scene.machine.stall_reason or "")
    assert "sluicegate replay --stream sim --commit-missing" in (recorded(scene) or "")
    scene.world.table.restore(newest)
    pass_time(scene)
    assert scene.machine.stall_reason is None
    assert recorded(scene) is None, "who asks for the state sees that it goes on"


def test_an_idle_stream_notices_that_its_table_is_ahead_of_the_log() -> None:
    scene = committed()
    table = scene.world.table
    head = table.head
    assert head is not None
    table.commit(USER, CommitRequest(3, "made elsewhere", head.ref, None, ()))
    pass_time(scene)
    assert "the table has decision 3 of this stream" in (scene.machine.stall_reason or "")
    table.rollback(2)
    pass_time(scene)
    assert scene.machine.stall_reason is None
    event = scene.batch(2)
    scene.settle()
    assert scene.table[-1] == [event]


def test_files_that_are_back_are_seen_though_no_cut_is_possible() -> None:
    """The other region has gone on alone, and has nothing new: there is no cut to check the files for."""
    scene = opened("r1", "r2", settings=replace(PARTIAL, alignment_timeout=1_000, stall_pause=500))
    lost, check = scene.batch(0), scene.node.perform
    second = scene.batch(0, "r2")
    missing = True

    def perform(effect: Effect, fate: Fate | None = None) -> Result:
        if isinstance(effect, CheckFiles) and missing and "r1" in [part.region for part in effect.parts]:
            return FilesChecked({"r1": "region r1: the file f is not there"})
        return check(effect, fate)

    scene.node.perform = perform  # type: ignore[method-assign]
    scene.settle(200)
    assert scene.table == [[second]]
    assert "the file f is not there" in (scene.machine.stall_reason or "")
    missing = False
    scene.settle()
    assert scene.machine.stall_reason is None
    scene.world.now += 60_000
    scene.settle()
    assert scene.table == [[second], [lost]]


def test_a_stall_that_is_over_is_told_again_when_it_comes_back() -> None:
    scene = committed()
    newest = scene.world.table.snapshots[1:]
    for _ in range(2):
        scene.world.table.rollback(1)
        pass_time(scene)
        scene.world.table.restore(newest)
        pass_time(scene)
    told = [due.body for due in scene.world.commits if isinstance(due.body, StreamStalled)]
    assert ["rolled back" in each.reason for each in told] == [True, True]


def test_a_paused_stream_is_not_stalled_and_shows_what_is() -> None:
    scene = committed()
    scene.command("pause")
    scene.settle()
    assert (scene.machine.stall_reason, recorded(scene)) == (None, None)
    assert "sluicegate resume --stream sim" in (scene.machine.paused or "")
    scene.world.table.replace()
    pass_time(scene)
    assert "the table was replaced" in (scene.machine.stall_reason or "")
    scene.command("resume")
    scene.settle()
    assert scene.machine.paused is None
