"""Reset of a region that has ended: its location goes back, and the next assignment begins there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, RegionRegistered, StreamCommand
from sluicegate.failpoints import points
from sluicegate.failpoints.points import InjectedFailure
from sluicegate.writer_hooks import BadCheckpointLocation, RegistrationRefused
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from sluicegate.writer_hooks.spark.location import Location
from tests.hooks.locations import files, finish, plan, position
from tests.hooks.test_reset import Stream, ending_at

NEXT = Assignment(number=1, regions=("EWR",), after=1)


@pytest.fixture
def removed(tmp_path: Path) -> Stream:
    """A region that was removed at batch 2, in whose location its query has completed two more batches."""
    root = tmp_path / "c"
    plan(root, *range(6))
    finish(root, *range(5))
    made = Stream(root)
    made.begin(root, "a")
    made.write(root, 0, 1, 2)
    made.judges.order("s", StreamCommand(command="discard", region="EWR", number=0))
    made.ended = True
    return made


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    points.arm("")


def begin_next(stream: Stream, root: Path) -> None:
    """Register the location with the next assignment, as its driver does, and commit a batch."""
    checkpoint = Checkpoint(str(root))
    marker = checkpoint.ready_marker()
    assert marker is not None
    newest = checkpoint.newest_completed()
    assert newest is None or newest < marker.first, "so the base of the marker is the next one's too"
    body = RegionRegistered(base=marker.base, assignment=NEXT)
    stream.append(EventType.REGION_REGISTERED, "next", body)
    assert stream.judges.live("s", "EWR") == "next"
    checkpoint.write_marker(marker.model_copy(update={"incarnation": "next", "assignment": 1}))
    plan(root, marker.first, query="q7")
    stream.write(root, marker.first)
    assert stream.judges.position("s", "EWR") == position(root, "next", marker.first)


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize(
    "place",
    [
        "",
        "probe after",
        "hook.marker.before=fail@1",
        "hook.marker.after=fail@1",
        "hook.marker.before=fail@2",
        "hook.marker.after=fail@2",
        *(f"move {number}" for number in (0, 2, 4)),
    ],
)
def test_it_goes_back_after_an_end_at_any_step(
    removed: Stream, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, at = files(removed.root), position(removed.root, "a", 2)
    if place.startswith("hook"):
        points.arm(place)
    elif place.startswith("move"):
        left, move = iter(range(int(place.split()[1]))), Location.move

        def failing(location: Location, name: str, target: str) -> None:
            if next(left, None) is None:
                raise InjectedFailure(place)
            move(location, name, target)

        monkeypatch.setattr(Location, "move", failing)
    else:
        removed.ends = ending_at(place)
    if place:
        with pytest.raises(InjectedFailure):
            removed.reset()
    points.arm("")
    monkeypatch.undo()
    removed.ends = lambda _, __: None
    done = removed.reset()
    assert (done.position, done.empty) == (at, False)
    assert removed.judges.live("s", "EWR") is None, "nothing is registered"
    kept = {name for name, text in files(removed.root).items() if before.get(name) == text}
    assert {"offsets/2", "commits/2"} <= kept
    assert not kept & {f"{log}/{batch}" for log in ("offsets", "commits") for batch in (3, 4, 5)}
    aside = {path.name for path in (removed.root / "sluicegate").glob("reset-*/offsets/*")}
    assert aside == {"3", "4", "5"}
    begin_next(removed, removed.root)


def test_an_empty_location_begins_at_the_end(removed: Stream, tmp_path: Path) -> None:
    at = position(removed.root, "a", 2)
    done = removed.reset(tmp_path / "empty")
    assert (done.position, done.empty, done.source_offsets) == (at, True, '{"0": {"logOffset": 2}}')
    begin_next(removed, tmp_path / "empty")


def test_a_reset_that_the_removal_overtook_is_finished(tmp_path: Path) -> None:
    """Its first try has registered an incarnation, which the removal has ended."""
    stream = Stream(tmp_path / "c")
    plan(stream.root, *range(4))
    finish(stream.root, *range(4))
    stream.begin(stream.root, "a")
    stream.write(stream.root, 0, 1, 2)
    stream.ends = ending_at("registration after")
    with pytest.raises(InjectedFailure):
        stream.reset()
    stream.ends = lambda _, __: None
    stream.judges.order("s", StreamCommand(command="discard", region="EWR", number=0))
    stream.ended = True
    assert stream.reset().position == position(stream.root, "a", 2)
    begin_next(stream, stream.root)


def test_a_query_with_state_that_cannot_run_any_more_is_given_an_empty_location(removed: Stream) -> None:
    """Its batch is committed, but Spark has not noted that, and a start would be refused."""
    state = removed.root / "state" / "0" / "1"
    state.mkdir(parents=True)
    (state / "3.delta").write_text("3")
    (removed.root / "commits" / "2").unlink()
    before = files(removed.root)
    with pytest.raises(BadCheckpointLocation, match="batch 2: to continue, reset the region with an empty"):
        removed.reset()
    assert files(removed.root) == before
    assert removed.reset(removed.root.parent / "empty").empty
    begin_next(removed, removed.root.parent / "empty")


def test_a_region_that_came_back_meanwhile_is_left_alone(removed: Stream) -> None:
    """Another driver has begun the next assignment since the command read the log."""
    begin = RegionRegistered(base=removed.judges.position("s", "EWR"), assignment=NEXT)
    removed.append(EventType.REGION_REGISTERED, "next", begin)
    before = files(removed.root)
    with pytest.raises(RegistrationRefused, match=r"assignment-older.*Nothing is changed in the location"):
        removed.reset()
    assert files(removed.root) == before
