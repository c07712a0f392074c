"""What is known of when a region's job was last heard of."""

from sluicegate.events.envelope import EventType
from sluicegate.events.models import Parent, RegionHeartbeat, StreamCommand
from tests.core.scene import Scene, opened


def last(scene: Scene) -> int:
    """The append time of the last event of region r1."""
    return max(entry.time for entry in scene.world.log if entry.envelope.region == "r1")


def test_every_event_of_its_own_counts_and_a_restart_remembers_it() -> None:
    scene = opened()
    assert scene.machine.heard == {"r1": last(scene)}
    for step in range(3):
        scene.world.now += 1_000
        scene.batch(step)
        scene.settle()
        assert scene.machine.heard == scene.machine.record().heard == {"r1": last(scene)}
    scene.world.now += 1_000
    scene.idle("r1")
    scene.settle()
    assert scene.machine.heard == {"r1": last(scene)}
    scene.restart()
    scene.settle()
    assert scene.machine.heard == {"r1": last(scene)}


def test_what_another_lineage_sends_is_no_sign_of_the_regions_job() -> None:
    scene = opened()
    scene.batch(0)
    scene.settle()
    scene.open("r1", "q.1", (Parent(region="r1", lineage="q.0", checkpoint=0),))
    known = scene.machine.heard["r1"]
    scene.world.now += 1_000
    scene.idle("r1")
    scene.idle("never opened")
    scene.settle()
    assert scene.machine.heard["r1"] == known
    assert scene.machine.record().heard == {"r1": known}


def test_the_last_heartbeat_of_a_query_ends_what_is_expected_of_it() -> None:
    scene = opened()
    for idle, interval, known in (
        (False, 5_000, {"r1": 5_000}),
        (True, 1_000, {"r1": 1_000}),
        (True, None, {}),
    ):
        scene.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=idle, interval=interval), "r1", "q.0")
        scene.settle()
        assert scene.machine.record().heartbeats == known


def test_a_refusal_is_shown_until_the_regions_own_query_goes_on_or_an_operator_accepts() -> None:
    scene = opened()
    for number in range(2):
        scene.batch(number)
        scene.settle()
        assert scene.machine.record().refused == {}
        scene.open("r1", "stray.0")
        assert list(scene.machine.record().refused) == ["r1"]
    accepted = StreamCommand(command="accept", region="r1", lineage="stray.0")
    scene.say(EventType.STREAM_COMMAND, accepted)
    scene.settle()
    assert scene.machine.record().refused == {}
