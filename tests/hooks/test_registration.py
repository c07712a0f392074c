"""Registration of a location, step by step: the replica of the log judges, and every step may be the last."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sluicegate.events.models import Assignment, RegionHeartbeat, StreamCommand
from sluicegate.failpoints import points
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import InjectedFailure
from sluicegate.writer_hooks import (
    BadCheckpointLocation,
    RegionReplaced,
    RegistrationRefused,
    start_incarnation,
)
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live, register_query
from tests.hooks.locations import complete, finish, plan, position
from tests.hooks.log import Log
from tests.hooks.options import in_log

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

STEPS = [
    Failpoint.HOOK_PROBE_BEFORE,
    Failpoint.HOOK_PROBE_AFTER,
    Failpoint.HOOK_MARKER_BEFORE,
    Failpoint.HOOK_MARKER_AFTER,
    Failpoint.HOOK_REGISTRATION_BEFORE,
    Failpoint.HOOK_REGISTRATION_AFTER,
    Failpoint.HOOK_ANSWER_AFTER,
]


@dataclass
class Query:
    """A region's query, of which only the sink's driver side runs."""

    root: Path
    log: Log
    options: SinkOptions

    def at(self, root: Path, **assignment: object) -> "Query":
        """Return the query of the same region in another location."""
        region = self.options.region
        numbered = Assignment.model_validate({**region.assignment.model_dump(), **assignment})
        options = replace(
            self.options, checkpoint_location=str(root), region=replace(region, assignment=numbered)
        )
        return Query(root, self.log, options)

    def register(self) -> tuple[IncarnationMarker, Registered]:
        marker, registered, _ = register_query(self.options)
        return marker, registered

    def write(self, *batches: int) -> IncarnationMarker:
        """Register, and complete batches."""
        plan(self.root, batches[0])
        marker, _ = self.register()
        for batch in batches:
            plan(self.root, batch)
            complete(self.root, self.options.region, marker, batch)
        self.log.wait_completed(batches[-1])
        return marker

    def marker(self) -> IncarnationMarker | None:
        return CheckpointLocation(str(self.root)).marker()

    def commit(self) -> None:
        self.log.judges.commit(self.options.region.stream)

    def live(self) -> str | None:
        return self.log.judges.live(self.options.region.stream, self.options.region.name)

    def order(self, **command: object) -> None:
        self.log.judges.order(self.options.region.stream, StreamCommand.model_validate(command))


@pytest.fixture
def query(tmp_path: Path, log: Log, unique: str) -> Query:
    root = tmp_path / "checkpoint"
    plan(root, 0)
    given = {"table": str(tmp_path / "table"), "checkpointlocation": str(root)}
    return Query(root, log, SinkOptions.parse(in_log(log, unique) | given))


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    points.arm("")


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("step", STEPS)
def test_a_first_start_that_ends_at_any_step_is_repeated(query: Query, step: Failpoint) -> None:
    points.arm(f"{step}=fail")
    with pytest.raises(InjectedFailure):
        query.register()
    marked = query.marker()
    assert (marked is not None) == (STEPS.index(step) >= STEPS.index(Failpoint.HOOK_MARKER_AFTER))
    points.arm("")
    marker, registered = query.register()
    if marked is not None:
        assert marker == marked, "the incarnation and the base of the first try"
    assert query.live() == marker.incarnation == registered.incarnation
    # One incarnation alone was registered, so nothing of another one can be live.
    assert {envelope.incarnation for envelope, _ in query.log.registrations()} == {marker.incarnation}
    complete(query.root, query.options.region, marker, 0)
    query.log.wait_completed(0)
    query.commit()


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("step", STEPS)
def test_a_next_assignment_that_ends_at_any_step_is_repeated(query: Query, step: Failpoint) -> None:
    """The base is a position now: a repetition must register the same one again."""
    query.write(0, 1)
    query.commit()
    query.order(command="close", number=0)
    plan(query.root, 2)
    next_one = query.at(query.root, number=1, after=1)
    points.arm(f"{step}=fail")
    with pytest.raises(InjectedFailure):
        next_one.register()
    points.arm("")
    marker, _ = next_one.register()
    ((_, first), *others) = [each for each in query.log.registrations() if each[1].assignment.number == 1]
    assert first.base == position(query.root, query.log.registrations()[0][0].incarnation, 1)
    assert all(body.base == first.base for _, body in others)
    assert (query.live(), marker.first, marker.base) == (marker.incarnation, 2, first.base)
    complete(query.root, next_one.options.region, marker, 2)
    query.log.wait_completed(2)
    query.commit()
    assert query.log.judges.position(query.options.region.stream, "JFK") == position(
        query.root, marker.incarnation, 2
    )


def test_a_plain_restart_repeats_its_base_and_names_its_newest_batches(query: Query) -> None:
    marker = query.write(0, 1, 2)
    query.commit()
    plan(query.root, 3)
    again, _ = query.register()
    assert again == marker
    _, body = query.log.registrations()[-1]
    assert body.base is None
    named = [(each.checkpoint, each.digest) for each in body.planned]
    assert named == [(at, CheckpointLocation(str(query.root)).digest(at)) for at in (3, 2)]
    assert len(query.log.probes()) == 1, "a marked location does not probe"


def test_a_new_assignment_in_an_empty_location_starts_from_the_position(query: Query, tmp_path: Path) -> None:
    old = query.write(0, 1)
    query.commit()
    query.order(command="close", number=0)
    other = query.at(tmp_path / "other", number=1)
    plan(other.root, 0)
    with pytest.raises(
        RegistrationRefused, match=r"then name decision 1\. With Spark, set the option `assignment.after`"
    ):
        other.register()
    assert other.marker() is None
    marker, _ = other.at(other.root, number=1, after=1).register()
    assert (marker.base, marker.first) == (position(query.root, old.incarnation, 1), 0)


def test_a_location_that_is_lost_after_the_first_cut_of_an_assignment_is_refused(
    query: Query, tmp_path: Path
) -> None:
    """The cut that `assignment.after` names is not the position any more: rows would be written twice."""
    query.write(0, 1)
    query.commit()
    query.order(command="close", number=0)
    plan(query.root, 2)
    query.at(query.root, number=1, after=1).write(2)
    query.commit()
    lost = query.at(tmp_path / "lost", number=1, after=1)
    plan(lost.root, 0)
    with pytest.raises(RegistrationRefused, match="incarnation-live"):
        lost.register()
    assert lost.marker() is None


def test_a_next_assignment_is_refused_if_the_last_batch_is_not_the_position(query: Query) -> None:
    query.write(0, 1)
    query.commit()
    query.order(command="discard", region="JFK", number=0)
    finish(query.root, 2)
    plan(query.root, 2, 3)
    before = query.marker()
    with pytest.raises(RegistrationRefused, match="base-differs"):
        query.at(query.root, number=1, after=1).register()
    assert query.marker() == before


@pytest.mark.parametrize("kept", [0, 1])
def test_a_location_from_a_backup_is_refused(query: Query, tmp_path: Path, kept: int) -> None:
    if kept:
        query.write(*range(kept))
    plan(query.root, kept)
    query.register()
    shutil.copytree(query.root, tmp_path / "backup")
    query.write(*range(kept, 3))
    query.commit()
    shutil.rmtree(query.root)
    shutil.copytree(tmp_path / "backup", query.root)
    with pytest.raises(
        RegistrationRefused, match=rf"location-older.*checkpoint {kept}, before the committed"
    ):
        query.register()


def test_a_running_query_goes_on_while_its_incarnation_and_run_are_live(query: Query) -> None:
    _, registered = query.register()
    check_live(query.options, registered)
    (_, probe) = query.log.probes()[-1]
    assert probe.probe


def test_a_driver_whose_location_another_one_runs_stops(query: Query) -> None:
    _, older = query.register()
    _, newer = query.register()
    with pytest.raises(RegionReplaced, match="another process runs its checkpoint location"):
        check_live(query.options, older)
    check_live(query.options, newer)
    region = query.options.region
    assert query.log.judges.replica(region.stream).state.regions["JFK"].run == newer.run
    assert query.log.of(RegionHeartbeat) == []


def test_a_numbering_that_began_elsewhere_starts_at_its_batch(query: Query) -> None:
    plan(query.root, 1, 2, 3)
    finish(query.root, 0, 1, 2)
    with pytest.raises(BadCheckpointLocation, match=r"batch 3 is planned and not finished.*first=4\)"):
        query.register()
    incarnation = start_incarnation(str(query.root), first=3, unwritten=True)
    marker, _ = query.register()
    assert (marker.incarnation, marker.first, marker.base) == (incarnation, 3, None)
    assert (marker.stream, marker.region) == (query.options.region.stream, "JFK")
    complete(query.root, query.options.region, marker, 3)
    query.log.wait_completed(3)
    query.commit()
    with pytest.raises(BadCheckpointLocation, match="from batch 3 on"):
        start_incarnation(str(query.root), first=3)
