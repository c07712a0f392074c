"""`sluicegate region reset` on a real log: the location and the region continue together."""

from pathlib import Path

import pytest

from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.events.envelope import EventType
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from tests.cli.deployment import Deployment
from tests.cli.history import STREAM, History
from tests.hooks.locations import completion, files, finish, plan, position

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """The location of JFK: batches 0 to 3, the last one unfinished."""
    root = tmp_path / "checkpoint"
    plan(root, 0, 1, 2, 3)
    finish(root, 0, 1, 2)
    marker = IncarnationMarker(query="q7", incarnation="jfk", stream=STREAM, region="JFK")
    CheckpointLocation(str(root)).write_marker(marker)
    return root


@pytest.fixture
def history(deployment: Deployment, location: Path) -> History:
    """JFK has committed batch 1, and completed batch 2."""
    history = History(deployment).begin()
    history.register("JFK", "jfk", "EWR", "JFK")
    history.register("EWR", "ewr", "EWR", "JFK")
    complete(history, location, 0, 1)
    history.complete("EWR", 0)
    history.decide()
    history.commit()
    complete(history, location, 2)
    return history


def complete(history: History, root: Path, *batches: int) -> None:
    marker = CheckpointLocation(str(root)).marker()
    assert marker is not None
    for batch in batches:
        body = completion(root, marker, batch)
        history.append(EventType.CHECKPOINT_COMPLETED, body, "JFK", marker.incarnation, batch)


def reset(root: Path, *more: str, region: str = "JFK", silence: str = "10ms") -> tuple[str, ...]:
    place = ("--stream", STREAM, "--region", region, "--checkpoint-location", str(root))
    return ("region", "reset", *place, "--silence", silence, *more)


def test_a_region_continues_at_its_position(history: History, location: Path) -> None:
    result = history.run(*reset(location, "--reason", "a test"))
    assert result.exit_code == 0, result.output
    marker = CheckpointLocation(str(location)).ready_marker()
    assert marker is not None
    held = history.state.regions["JFK"]
    assert held.live_incarnation == marker.incarnation != "jfk"
    assert (marker.base, marker.first) == (position(location, "jfk", 1), 2)
    first, second, last = result.output.splitlines()
    assert first == "region JFK continues after checkpoint 1 of incarnation jfk"
    assert second.startswith("2 later batches are in ")
    assert last == f"its new incarnation is {marker.incarnation}; start the query again"
    plan(location, 2)
    complete(history, location, 2)
    assert [each.position.checkpoint for each in history.replica.log.sealed("JFK")] == [2]


def test_a_query_that_lives_is_not_reset(history: History, location: Path) -> None:
    before = files(location)
    result = history.run(*reset(location, silence="1h"))
    assert result.exit_code == 2
    assert "its query was alive" in result.output
    assert "wait 3600 s, and repeat the command" in result.output
    assert files(location) == before
    assert history.state.regions["JFK"].live_incarnation == "jfk"


@pytest.mark.parametrize("end", [1, 2])
def test_a_removed_region_is_reset_once_its_end_is_its_position(
    history: History, location: Path, end: int
) -> None:
    """Before that, what is still to be committed would be moved away. It ends with the old assignment."""
    remove = ("region", "remove", "--stream", STREAM, "--region", "JFK")
    removed = history.run(*remove)
    assert removed.exit_code == 0, removed.output
    before = files(location)
    early = history.run(*reset(location))
    assert (early.exit_code, files(location)) == (2, before)
    assert "its checkpoints up to 2 are still to be committed. Repeat the command when" in early.output
    assert f"or first discard them: sluicegate {' '.join(remove)} --discard" in early.output
    if end == 2:
        history.read()
        history.complete("EWR", 1)
        history.decide()
        history.commit()
    else:
        assert history.run(*remove, "--discard").exit_code == 0
    result = history.run(*reset(location))
    assert result.exit_code == 0, result.output
    marker = CheckpointLocation(str(location)).ready_marker()
    assert marker is not None
    assert (marker.base, marker.first) == (position(location, "jfk", end), end + 1)
    assert history.state.regions["JFK"].live_incarnation is None
    assert f"sluicegate assignment close --stream {STREAM} --wait" in result.output.splitlines()[-1]
    # A region that an assignment leaves out has its position, and may be reset for the next one.
    assert history.run("assignment", "close", "--stream", STREAM).exit_code == 0
    history.register("EWR", "ewr-1", "EWR", number=1, after=end)
    assert history.state.regions["JFK"].phase is RegionPhase.LEFT
    left = history.run(*reset(location))
    assert left.exit_code == 0, left.output
    again = CheckpointLocation(str(location)).ready_marker()
    assert again is not None
    assert (again.base, again.first, again.assignment) == (marker.base, end + 1, 1)
