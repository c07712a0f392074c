"""A replay reads the same decisions from a log as its coordinators made, whatever went wrong with those."""

from collections.abc import Sequence

import pytest

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    LogFold,
    LoggedDecision,
    OrphanEvents,
    ReplayRefused,
    start_of,
)
from tests.replay.schedules import EMPTY, Watched, decisions, history, starts, steps, watched
from tests.simulator.world import COMMIT_USER, STREAM, Entry

SEEDS = range(101_500, 101_508)
PROVEN = {CommitStatus.THERE, CommitStatus.EXPIRED}


def in_short(logged: LoggedDecision) -> tuple[object, ...]:
    """Return what two readings of one decision must agree about."""
    made, digests = logged.decision, logged.digests
    return made.id, made.offset, logged.time, made.parts, dict(logged.included), logged.outcome, digests


def winners_of(log: Sequence[Entry]) -> set[int]:
    """Return the offsets of the events that commits include."""
    return {offset for each in decisions(EMPTY, log) if not each.reverted for offset in each.decision.parts}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_are_those_of_the_account_without_the_core(seed: int) -> None:
    schedule = watched(seed)
    log = schedule.world.log
    found = [
        (
            each.decision.id,
            each.decision.digest,
            [log[offset].envelope.id for offset in each.decision.parts],
            "reverted" if each.reverted else "committed" if each.outcome is not None else "",
        )
        for each in decisions(EMPTY, log)
    ]
    told = schedule.checks.truth.verdicts
    assert found == [(each.body.decision, each.body.digest, each.parts, each.outcome) for each in told]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_decision_of_a_log_is_in_its_table(seed: int) -> None:
    world = watched(seed).world
    comparison = Comparison(history(world), COMMIT_USER)
    assert {comparison.judge(each).status for each in decisions(EMPTY, world.log)} <= PROVEN
    assert comparison.foreign(1, None) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_reading_continues_from_any_state_record(seed: int) -> None:
    schedule = watched(seed)
    whole = {each.decision.id: in_short(each) for each in decisions(EMPTY, schedule.world.log)}
    for _, start in starts(schedule):
        found = decisions(start, schedule.world.log)
        assert [in_short(each) for each in found] == [
            each for number, each in whole.items() if number > start.resolved
        ]


@pytest.mark.slow
def test_the_schedules_have_what_makes_it_hard() -> None:
    kinds = {"reverted": 0, "starts": 0, "open at a start": 0}
    for seed in SEEDS:
        schedule = watched(seed)
        kinds["reverted"] += sum(each.reverted for each in decisions(EMPTY, schedule.world.log))
        for _, start in starts(schedule):
            kinds["starts"] += 1
            kinds["open at a start"] += start.state.unresolved is not None
    assert all(count > 2 for count in kinds.values()), kinds


# --- orphans --------------------------------------------------------------------------------------


def orphans_at(schedule: Watched, end: int, start: int | None = None) -> dict[int, str]:
    """Return the orphans of the first records of a log: by offset, the reason."""
    bases = {each.begin: each for _, each in starts(schedule)}
    fold = LogFold(STREAM, 0, EMPTY if start is None else bases[start])
    events = OrphanEvents(fold.start.state)
    for step in steps(fold, schedule.world.log[fold.start.begin : end]):
        events.note(step, fold.replica.state)
    fold.finish()
    return {each.arrival.offset: each.reason for each in events.orphans(fold.replica.state)}


def paths(schedule: Watched, offsets: set[int]) -> set[str]:
    bodies = [schedule.world.log[offset].files for offset in offsets]
    return {file.path for body in bodies if body is not None for file in body.files}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_orphan_at_any_moment_is_never_committed(seed: int) -> None:
    schedule = watched(seed)
    log, committed = schedule.world.log, {*schedule.world.table.files}
    written = {entry.offset for entry in log if entry.files is not None}
    winners = winners_of(log)
    for look, start in [*((look, None) for look in schedule.looks), *starts(schedule)]:
        orphans = {*orphans_at(schedule, look.end, start.begin if start is not None else None)}
        assert not orphans & winners
        # A path that another event names, too, is kept by the search.
        assert not (paths(schedule, orphans) - paths(schedule, written - orphans)) & committed


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_in_the_end_everything_that_is_in_no_commit_is_an_orphan(seed: int) -> None:
    """At rest nothing is pending, so only events of stalled and live incarnations are left."""
    schedule = watched(seed)
    log, state = schedule.world.log, schedule.checks.reference.state
    winners = winners_of(log)
    orphans = {*orphans_at(schedule, len(log))}
    for entry in log:
        if entry.files is not None and entry.offset not in winners | orphans:
            region = state.regions.get(entry.envelope.region)
            assert region is None or entry.envelope.incarnation not in state.ended
            assert region is None or not region.covers(entry.envelope.incarnation, entry.envelope.checkpoint)


# --- the start ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_that_lacks_its_beginning_starts_with_a_base_record_or_is_refused() -> None:
    schedule = watched(SEEDS[0])
    assert start_of(STREAM, 0, {}) == EMPTY
    with pytest.raises(ReplayRefused, match="it begins at offset 7, and no base record has the state before"):
        start_of(STREAM, 7, {})
    checked = 0
    for look, start in starts(schedule):
        record = StateRecord.model_validate_json(look.record or "")
        if record.low_water < 2:
            continue
        base = start.begin - 1
        # The log was deleted up to `base`: the record needs nothing before its low-water mark.
        assert start_of(STREAM, base, {base: record}) == start._replace(begin=base)
        with pytest.raises(ReplayRefused):
            start_of(STREAM, start.begin + 1, {base: record})
        with pytest.raises(ReplayRefused):
            start_of(STREAM, base, {start.begin + 1: record})
        checked += 1
    assert checked
