"""What the replay makes of a log is what the coordinators made of it, whatever befell them."""

from functools import cache

import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.replay.attempts import Attempts
from sluicegate.replay.comparison import Comparison, Finding, Standing
from sluicegate.replay.course import Course
from sluicegate.simulator.world import STREAM, World
from tests.replay.schedules import (
    Watched,
    commit_user,
    decisions,
    history,
    newest,
    record_of,
    takings,
    watched,
)

SEEDS = range(101_500, 101_524)
SETTLED = {Standing.THERE, Standing.EXPIRED, Standing.UNKNOWN}


def unsettled(found: list[Finding], world: World) -> list[Finding]:
    """Return the decisions that the table lacks; a foreign job with our user may have taken an id as well."""
    user = commit_user(world)
    taken = {each.decision for each in world.table.history if each.commit_user == user and not each.digest}
    return [
        each
        for each in found
        if each.standing not in SETTLED and not (each.standing is Standing.OTHER and each.decision in taken)
    ]


@cache
def schedule_of(seed: int) -> Watched:
    return watched(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_decision_of_a_log_is_found_in_its_table(seed: int) -> None:
    world = schedule_of(seed).world
    comparison = Comparison(history(world), commit_user(world))
    found = [comparison.judge(each) for each in decisions(Course(STREAM, None, 0), world.log)]
    assert [each.decision for each in found] == list(range(1, newest(world) + 1))
    assert unsettled(found, world) == []
    assert comparison.foreign(1, None) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reading_goes_on_from_any_state_record(seed: int) -> None:
    schedule = schedule_of(seed)
    world = schedule.world
    for look in schedule.looks:
        if (record := record_of(look)) is None:
            continue
        course = Course(STREAM, record, 0)
        first = course.known_from + 1
        comparison = Comparison(history(world), commit_user(world))
        found = [comparison.judge(each) for each in decisions(course, world.log[record.low_water :])]
        assert [each.decision for each in found] == list(range(first, newest(world) + 1))
        assert unsettled(found, world) == []
        assert comparison.foreign(first, None) == []


def test_the_schedules_have_what_makes_it_hard() -> None:
    kinds = {"voided": 0, "expired": 0, "records": 0}
    for seed in SEEDS:
        world = schedule_of(seed).world
        comparison = Comparison(history(world), commit_user(world))
        for settled in decisions(Course(STREAM, None, 0), world.log):
            kinds["voided"] += settled.voided
            kinds["expired"] += comparison.judge(settled).standing is Standing.EXPIRED
        kinds["records"] += sum(look.record is not None for look in schedule_of(seed).looks)
    assert all(count > 1 for count in kinds.values()), kinds


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_orphaned_at_any_moment_is_never_committed(seed: int) -> None:
    schedule = schedule_of(seed)
    world = schedule.world
    for look in schedule.looks:
        record = record_of(look)
        low_water = record.low_water if record else 0
        for base in (None, record):
            course = Course(STREAM, base, 0)
            attempts = Attempts(course)
            for entry, taken in takings(course, world.log[course.low_water : look.end]):
                attempts.note(entry.offset, entry.time, taken)
            orphans = {each.arrival.offset for each in attempts.orphans(look.committed, low_water)}
            bodies = [world.log[offset].body for offset in orphans]
            kept = {
                file.path
                for entry in world.log
                if isinstance(entry.body, FilesWritten) and entry.offset not in orphans
                for file in entry.body.files
            }
            paths = {file.path for body in bodies if isinstance(body, FilesWritten) for file in body.files}
            assert not (paths - kept) & set(world.table.files)


def test_losers_and_void_attempts_are_found() -> None:
    reasons = {"without it": 0, "was replaced": 0, "carried": 0}
    for seed in SEEDS:
        world = schedule_of(seed).world
        course = Course(STREAM, None, 0)
        attempts = Attempts(course)
        for entry, taken in takings(course, world.log):
            attempts.note(entry.offset, entry.time, taken)
        for orphan in attempts.orphans(newest(world), len(world.log)):
            for reason in reasons:
                reasons[reason] += reason in orphan.reason
            reasons["carried"] += world.log[orphan.arrival.offset].envelope.origin is not None
    assert all(count > 10 for count in reasons.values()), reasons
