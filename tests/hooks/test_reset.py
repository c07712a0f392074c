"""Reset of a location: its files, its refusals, and its repetition after an end at any step."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, Body, Planned, Position, RegionRegistered, StreamCommand
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.failpoints import points
from sluicegate.failpoints.points import InjectedFailure
from sluicegate.writer_hooks import BadCheckpointLocation, RegistrationRefused
from sluicegate.writer_hooks.region import KafkaSettings, Region
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.reset import ResetDone, ResetOrder, reset_region
from tests.hooks.locations import FILES, completion, files, finish, plan, position
from tests.hooks.replica import Judges
from tests.integration.waiting import BACKSTOP

MARKER = "sluicegate/incarnation.json"

REGION = Region(
    "s", "EWR", KafkaSettings(bootstrap_servers="nowhere:1"), Assignment(number=0, regions=("EWR",))
)


@dataclass
class Stream:
    """A region with a location; the replica of its log judges, without any Kafka."""

    root: Path
    judges: Judges = field(default_factory=Judges)
    ends: Callable[[RegionRegistered, bool], None] = lambda _, __: None
    """Called before and after each registration: the command may end there."""
    ended: bool = False
    """True once the region has ended, as the command finds in the log."""

    def append(self, kind: EventType, incarnation: str, body: Body, checkpoint: int = -1) -> None:
        event = REGION.event(kind, incarnation, body, checkpoint=checkpoint)
        self.judges.apply(event.envelope, event.body)

    def begin(self, root: Path, incarnation: str, base: Position | None = None, first: int = 0) -> None:
        marker = IncarnationMarker(
            query="q7", incarnation=incarnation, base=base, first=first, stream="s", region="EWR"
        )
        CheckpointLocation(str(root)).write_marker(marker)
        self.restart(root)

    def restart(self, root: Path) -> None:
        """Register the location of a root as its driver does."""
        marker = CheckpointLocation(str(root)).ready_marker()
        assert marker is not None
        planned: tuple[Planned, ...] = CheckpointLocation(str(root)).planned(marker.first)
        body = RegionRegistered(base=marker.base, planned=planned, assignment=REGION.assignment)
        self.append(EventType.REGION_REGISTERED, marker.incarnation, body)
        assert self.judges.live("s", "EWR") == marker.incarnation

    def write(self, root: Path, *batches: int, commit: bool = True) -> None:
        marker = CheckpointLocation(str(root)).marker()
        assert marker is not None
        for batch in batches:
            body = completion(root, marker, batch)
            self.append(EventType.CHECKPOINT_COMPLETED, marker.incarnation, body, batch)
        if commit:
            self.judges.commit("s")

    def ask(self, incarnation: str, body: RegionRegistered) -> RegistrationAnswered:
        self.ends(body, False)
        event = REGION.event(EventType.REGION_REGISTERED, incarnation, body)
        answer = self.judges.apply(event.envelope, event.body)
        assert answer is not None
        self.ends(body, True)
        return answer

    def reset(
        self,
        root: Path | None = None,
        reason: str = "",
        patience: float = BACKSTOP,
        *,
        files_moved: bool = True,
    ) -> ResetDone:
        place = ("s", "EWR", str(root or self.root))
        order = ResetOrder(*place, REGION.assignment, reason, self.ended, files_moved, patience)
        return reset_region(order, self.ask)

    def marker(self) -> IncarnationMarker:
        found = CheckpointLocation(str(self.root)).marker()
        assert found is not None
        return found


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A region that has committed batch 2, and planned batches up to 5."""
    root = tmp_path / "c"
    plan(root, *range(6))
    for batch in range(6):
        (root / "offsets" / f".{batch}.crc").write_text("sum")
    finish(root, *range(5))
    made = Stream(root)
    made.begin(root, "a")
    made.write(root, 0, 1, 2)
    made.write(root, 3, 4, commit=False)
    return made


def check_reset(stream: Stream, before: dict[str, str], *, kept: int = 2) -> None:
    """Check that the location is reset, that nothing of it is lost, and that its query can continue."""
    marker, after = stream.marker(), files(stream.root)
    assert (marker.first, marker.resetting, marker.former) == (kept + 1, False, None)
    assert marker.base == stream.judges.position("s", "EWR")
    assert stream.judges.live("s", "EWR") == marker.incarnation
    assert CheckpointLocation(str(stream.root)).newest_planned() == (kept if kept >= 0 else None)
    aside = {
        name.split("/", 2)[2]: text for name, text in after.items() if name.startswith("sluicegate/reset-")
    }
    for name, content in before.items():
        if name != MARKER:
            assert content in (after.get(name), aside.get(name)), name
    plan(stream.root, kept + 1)
    stream.restart(stream.root)
    stream.write(stream.root, kept + 1)
    assert stream.judges.position("s", "EWR") == position(stream.root, marker.incarnation, kept + 1)


def test_later_batches_are_moved_away_with_their_checksums(stream: Stream) -> None:
    before = files(stream.root)
    done = stream.reset(reason="a test")
    assert (done.moved, done.empty, done.source_offsets) == (3, False, '{"0": {"logOffset": 2}}')
    assert done.position == position(stream.root, "a", 2)
    assert json.loads(Path(done.backup, "reason.json").read_text())["reason"] == "a test"
    names = sorted(path.name for path in (stream.root / "offsets").iterdir())
    assert names == [".0.crc", ".1.crc", ".2.crc", "0", "1", "2"]
    check_reset(stream, before)


def end_at(stream: Stream, place: str, root: Path | None = None) -> None:
    """Run a reset that ends at a step: an answer, a marker, or a file that is moved away."""

    def end(body: RegionRegistered, after: bool) -> None:
        if place == f"{'probe' if body.probe else 'registration'} {'after' if after else 'before'}":
            raise InjectedFailure(place)

    def move(location: Location, name: str, target: str) -> None:
        if next(left, None) is None:
            raise InjectedFailure(place)
        held(location, name, target)

    stream.ends, held = end, Location.move
    left = iter(range(int(place.split()[1]))) if place.startswith("move") else count()
    points.arm(place if place.startswith("hook") else "")
    try:
        with patch.object(Location, "move", move), pytest.raises(InjectedFailure):
            stream.reset(root)
    finally:
        points.arm("")
        stream.ends = lambda _, __: None


@pytest.mark.parametrize(
    "place",
    [
        "probe before",
        "probe after",
        "hook.marker.before=fail@1",
        "hook.marker.after=fail@1",
        "registration before",
        "registration after",
        "hook.marker.before=fail@2",
        "hook.marker.after=fail@2",
        *(f"move {number}" for number in range(8)),
    ],
)
def test_a_reset_that_ends_at_any_step_is_repeated(stream: Stream, place: str) -> None:
    before = files(stream.root)
    end_at(stream, place)
    ended_marked = stream.marker().resetting
    if ended_marked:
        with pytest.raises(BadCheckpointLocation, match=r"is being reset.*region reset"):
            CheckpointLocation(str(stream.root)).ready_marker()
    first = stream.judges.live("s", "EWR")
    stream.reset()
    if ended_marked and first != "a":
        assert stream.judges.live("s", "EWR") == first, "the same incarnation is registered again"
    check_reset(stream, before)


def test_a_decision_between_the_answers_moves_the_target(stream: Stream) -> None:
    """The registration is refused; the location still has the batch, and the reset goes to it."""
    committed = False

    def commits(body: RegionRegistered, after: bool) -> None:
        nonlocal committed
        if not body.probe and not after and not committed:
            committed = True
            stream.judges.commit("s")

    stream.ends = commits
    before = files(stream.root)
    done = stream.reset()
    assert (done.position, done.moved) == (position(stream.root, "a", 4), 1)
    check_reset(stream, before, kept=4)


def test_a_reset_that_stood_still_ends_no_driver_that_was_started_meanwhile(stream: Stream) -> None:
    """The region was reset with another location, and its query runs there."""

    def starts(body: RegionRegistered, after: bool) -> None:
        if body.probe and after:
            other = RegionRegistered(
                base=stream.judges.position("s", "EWR"), replaces="a", assignment=REGION.assignment
            )
            stream.append(EventType.REGION_REGISTERED, "other", other)
            assert stream.judges.live("s", "EWR") == "other"

    stream.ends = starts
    before = files(stream.root)
    with pytest.raises(RegistrationRefused, match="other has registered since the reset began"):
        stream.reset()
    assert stream.judges.live("s", "EWR") == "other"
    assert files(stream.root) == before
    # To do it again is a decision of its own.
    stream.ends = lambda *_: None
    assert stream.reset().position == position(stream.root, "a", 2)


def test_a_committed_batch_that_spark_did_not_note_is_noted(stream: Stream) -> None:
    for batch in (2, 3, 4):
        (stream.root / "commits" / str(batch)).unlink()
    stream.reset()
    assert (stream.root / "commits" / "2").read_text() == 'v1\n{"nextBatchWatermarkMs":2000}'


def test_a_file_that_came_again_does_not_replace_the_one_put_aside(stream: Stream) -> None:
    end_at(stream, "registration after")
    aside = stream.root / f"sluicegate/reset-{stream.marker().incarnation}/offsets"
    aside.mkdir(parents=True)
    (aside / "3").write_text("put aside before")
    done = stream.reset()
    assert Path(done.backup) == aside.parent
    assert (aside / "3").read_text() == "put aside before"
    assert json.loads((aside / "3.later").read_text().splitlines()[2]) == {"logOffset": 3}


def test_an_empty_location_is_refused_for_a_source_of_files(stream: Stream, tmp_path: Path) -> None:
    """Only the lost location has the names of the files that were read: the query would read all again."""
    live, empty = stream.judges.live("s", "EWR"), tmp_path / "empty"
    with pytest.raises(BadCheckpointLocation, match=r"in the table twice.*--files-moved"):
        stream.reset(empty, files_moved=False)
    assert stream.judges.live("s", "EWR") == live
    assert not files(empty)
    # The location of the query has the names.
    assert stream.reset(files_moved=False).moved == 3


@pytest.mark.parametrize("ends", ["", "registration before", "registration after"])
def test_an_empty_location_continues_at_the_position(stream: Stream, tmp_path: Path, ends: str) -> None:
    """The other location is lost, and the operator says that the source begins at the position."""
    empty = tmp_path / "empty"
    if ends:
        end_at(stream, ends, empty)
        if ends == "registration before":
            stream.judges.commit("s")  # the old query's work is committed before the repetition
    done = stream.reset(empty)
    assert done.empty
    assert done.position == stream.judges.position("s", "EWR")
    plan(empty, 0, query="q8")
    marker = CheckpointLocation(str(empty)).ready_marker()
    assert marker is not None
    assert (marker.query, marker.first, marker.base) == (None, 0, done.position)
    stream.restart(empty)
    stream.write(empty, 0)
    assert stream.judges.position("s", "EWR") == position(empty, marker.incarnation, 0)
    # A reset of the same location goes back to its own batch, and one before it to its base.
    plan(empty, 1, query="q8")
    finish(empty, 0)
    assert stream.reset(empty).position == position(empty, marker.incarnation, 0)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["committed", "reverted"])
def test_a_reset_begins_after_the_outcome_of_a_decision(stream: Stream, outcome: str) -> None:
    """A revert would take the position back. Until the outcome, nothing in the location is changed."""
    made, before = stream.judges.decide("s"), files(stream.root)
    with pytest.raises(RegistrationRefused, match=r"base-unresolved\): decision 2 .* Nothing is changed in"):
        stream.reset(patience=0.0)  # time: no wait at all
    assert files(stream.root) == before
    probes = 0

    def end(_: RegionRegistered, answered: bool) -> None:
        nonlocal probes
        probes += answered
        if probes == 3 and answered and outcome == "committed":
            stream.judges.resolve("s", made)
        elif probes == 3 and answered:
            stream.judges.revert("s", "EWR")

    stream.ends = end
    assert stream.reset().position == position(stream.root, "a", 4 if outcome == "committed" else 2)


@pytest.mark.slow
def test_a_reset_whose_region_was_discarded_since_is_refused(stream: Stream) -> None:
    end_at(stream, "registration after")
    ended = stream.marker().incarnation
    stream.judges.order("s", StreamCommand(command="discard", region="EWR", number=0))
    with pytest.raises(RegistrationRefused, match="region-removed"):
        stream.reset()
    marker = stream.marker()
    assert (marker.incarnation, marker.resetting) == ("a", False), "the marker before the reset"
    assert marker.incarnation != ended


def test_a_repeated_reset_does_not_use_an_incarnation_that_the_log_has_forgotten(
    stream: Stream, tmp_path: Path
) -> None:
    """It was registered, and replaced; then a commit has moved the region."""
    empty = tmp_path / "empty"
    end_at(stream, "registration after", empty)
    marker = CheckpointLocation(str(empty)).marker()
    assert marker is not None
    other = stream.reset().incarnation
    plan(stream.root, 3)
    stream.restart(stream.root)
    stream.write(stream.root, 3)
    done = stream.reset(empty)
    assert done.position == position(stream.root, other, 3)
    assert done.incarnation not in (marker.incarnation, other)
    assert stream.judges.live("s", "EWR") == done.incarnation


def test_a_refusal_leaves_the_location_as_it_was(stream: Stream) -> None:
    stream.judges.order("s", StreamCommand(command="remove", region="EWR", number=0))
    before = files(stream.root)
    with pytest.raises(RegistrationRefused, match=r"region-removed.*Nothing is changed in the location"):
        stream.reset()
    assert files(stream.root) == before


def test_a_refusal_of_the_registration_puts_the_marker_back(stream: Stream) -> None:
    """The region is removed between the answers."""

    def remove(body: RegionRegistered, after: bool) -> None:
        if body.probe and after:
            stream.judges.order("s", StreamCommand(command="remove", region="EWR", number=0))

    stream.ends = remove
    before = files(stream.root)
    with pytest.raises(RegistrationRefused, match="region-removed"):
        stream.reset()
    assert files(stream.root) == before


def test_state_goes_back_too_and_is_refused_where_it_was_deleted(stream: Stream) -> None:
    state = stream.root / "state" / "0" / "1"
    state.mkdir(parents=True)
    for name in ("1.delta", "2.delta", "3.delta", "4.delta", "5.snapshot", ".5.snapshot.crc"):
        (state / name).write_text(name)
    (stream.root / "state" / "0" / "_metadata").mkdir()
    (stream.root / "state" / "0" / "_metadata" / "metadata").write_text("kept")
    aside = Path(stream.reset().backup) / "state/0/1"
    assert sorted(path.name for path in state.iterdir()) == ["1.delta", "2.delta", "3.delta"]
    assert sorted(path.name for path in aside.iterdir()) == [".5.snapshot.crc", "4.delta", "5.snapshot"]

    for name in ("2.delta", "3.delta"):
        (state / name).unlink()
    before = files(stream.root)
    with pytest.raises(BadCheckpointLocation, match=r"as of batch 2 was deleted \(state/0/1\)"):
        stream.reset()
    assert files(stream.root) == before


def test_purged_offsets_and_foreign_locations_are_refused(stream: Stream, tmp_path: Path) -> None:
    (stream.root / "offsets" / "2").unlink()
    with pytest.raises(BadCheckpointLocation, match="minBatchesToRetain"):
        stream.reset()
    other = tmp_path / "other"
    plan(other, *range(6))
    with pytest.raises(
        BadCheckpointLocation, match=r"was refused.*with an empty one. Else give the checkpointLocation"
    ):
        stream.reset(other)
    marker = IncarnationMarker(query="q7", incarnation="x", stream="s", region="LGA")
    CheckpointLocation(str(other)).write_marker(marker)
    with pytest.raises(BadCheckpointLocation, match="belongs to region LGA of stream s"):
        stream.reset(other)


def test_a_location_with_another_batch_is_refused_before_anything_is_changed(stream: Stream) -> None:
    (stream.root / "sources/0/2").write_text(FILES.format(batch=2).replace("/in/2", "/in/9"))
    before = files(stream.root)
    with pytest.raises(BadCheckpointLocation, match=r"with other source data than.*Put the newer location"):
        stream.reset()
    for batch in (5, 4, 3, 2):
        (stream.root / "offsets" / str(batch)).unlink()
    with pytest.raises(BadCheckpointLocation, match=r"up to 1 only.*Put the newer location"):
        stream.reset()
    assert {*before} - {*files(stream.root)} == {f"offsets/{batch}" for batch in (2, 3, 4, 5)}


def test_batches_of_another_stream_are_not_written_again(stream: Stream) -> None:
    """The query wrote batches 3 and 4 to another stream, and comes back: both streams have rows of it."""
    marker = IncarnationMarker(query="q7", incarnation="back", first=5, stream="s", region="EWR")
    CheckpointLocation(str(stream.root)).write_marker(marker)
    before = files(stream.root)
    with pytest.raises(BadCheckpointLocation, match=r"begins for this stream at batch 5.*an empty location"):
        stream.reset()
    assert files(stream.root) == before
    assert stream.judges.live("s", "EWR") == "a"
    done = stream.reset(stream.root.parent / "empty")
    assert (done.empty, done.position) == (True, position(stream.root, "a", 2))


def test_an_empty_location_that_a_reset_of_another_region_has_marked_is_freed(tmp_path: Path) -> None:
    marker = IncarnationMarker(query=None, incarnation="x", stream="s", region="LGA")
    CheckpointLocation(str(tmp_path)).write_marker(marker)
    with pytest.raises(BadCheckpointLocation, match=r"belongs to region LGA.*delete the folder"):
        Stream(tmp_path).reset()


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


def begin_next(stream: Stream, root: Path) -> None:
    """Register the location with the next assignment, as its driver does, and commit a batch."""
    checkpoint = CheckpointLocation(str(root))
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
def test_it_goes_back_after_an_end_at_any_step(removed: Stream, place: str) -> None:
    before, at = files(removed.root), position(removed.root, "a", 2)
    if place:
        end_at(removed, place)
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
    end_at(stream, "registration after")
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
