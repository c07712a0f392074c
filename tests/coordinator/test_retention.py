"""Retention deletes nothing that is needed, and a stream recovers from a record that the log continues."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import (
    base_key,
    base_record,
    deletion_start,
    is_endangered,
    listener_key,
    read_key,
    recovery_record,
)

OFFSETS = st.integers(0, 60)


def record(low_water: int, applied: int) -> StateRecord:
    return StateRecord(
        stream="flights", applied=max(applied, low_water - 1), low_water=low_water, state=LogState()
    )


RECORDS = st.builds(record, OFFSETS, OFFSETS)


@pytest.mark.slow
@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True), OFFSETS)
def test_a_base_record_has_a_key_of_its_own(stream: str, start: int) -> None:
    assert read_key(base_key(stream, start)) == (stream, start)
    assert read_key(stream) == (stream, None)
    assert read_key(f"{stream}/mark-done") is None
    assert read_key(listener_key(stream, "tags", "c1")) is None


@pytest.mark.slow
@given(st.lists(OFFSETS), OFFSETS, OFFSETS)
def test_nothing_that_is_needed_or_young_is_deleted(needed: list[int], kept_from: int, begin: int) -> None:
    start = deletion_start(needed, kept_from, begin)
    if start is None:
        assert min([kept_from, *needed]) <= begin
    else:
        assert begin < start <= kept_from
        assert all(start <= each for each in needed)


@pytest.mark.slow
@given(st.none() | RECORDS, st.dictionaries(OFFSETS, RECORDS), OFFSETS)
def test_a_stream_recovers_from_a_record_that_the_log_continues(
    newest: StateRecord | None, bases: dict[int, StateRecord], begin: int
) -> None:
    found = recovery_record(newest, bases, begin)
    usable = [start for start, base in bases.items() if base.low_water >= max(start, begin)]
    if newest is not None and newest.low_water >= begin:
        assert found is newest
    elif usable:
        assert found is bases[max(usable)]
        assert found.low_water >= begin
    elif newest is not None or not bases:
        # The caller sees that the log does not continue it.
        assert found is newest
    else:
        assert found is not None


@pytest.mark.slow
@given(st.lists(RECORDS, min_size=1), OFFSETS, OFFSETS, st.data())
def test_a_zombies_older_record_is_replaced_by_the_base_record(
    history: list[StateRecord], kept_from: int, begin: int, data: st.DataObject
) -> None:
    """Records are written with rising low-water marks; a zombie writes one of them once more."""
    history.sort(key=lambda each: each.low_water)
    newest = history[-1]
    start = deletion_start([newest.low_water], kept_from, begin)
    if start is None:
        return
    zombie = data.draw(st.sampled_from(history))
    found = recovery_record(zombie, {start: newest}, start)
    assert found is not None
    assert found.low_water >= start


@pytest.mark.slow
@given(st.lists(RECORDS, min_size=2, max_size=2))
def test_a_log_does_not_continue_a_base_record_that_a_zombie_replaced(pair: list[StateRecord]) -> None:
    older, newer = sorted(pair, key=lambda each: each.low_water)
    assume(older.low_water < newer.low_water)
    found = recovery_record(None, {newer.low_water: older}, newer.low_water)
    assert found is older, "without it the stream would begin anew, and the log lacks its past"


def test_the_base_record_stays_while_the_log_continues_it() -> None:
    """Else nobody could replay, or find the orphans of, what is older than the newest record."""
    former, newest = record(40, 45), record(90, 95)
    assert base_record(newest, {}, 10) is newest
    assert base_record(newest, {10: former}, 40) is former
    assert base_record(newest, {10: former}, 41) is newest
    other = newest.model_copy(update={"commit_user": "other"})
    assert base_record(other, {10: former}, 40) is other
    assert base_record(newest, {10: record(5, 5), 20: former}, 30) is former
    interrupted = former.model_copy(update={"adoption": "never-done"})
    assert base_record(newest, {10: interrupted}, 40) is newest


def test_a_stream_is_endangered_once_half_of_the_retention_has_passed() -> None:
    assert is_endangered(4, half_expired=5)
    assert not is_endangered(5, half_expired=5)
    assert not is_endangered(0, half_expired=0)
