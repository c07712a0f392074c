"""Append times by offset: never later than the true one, close to it, and few."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.coordinator.stream.partition import MOST, STEP, AppendTimes


@dataclass
class Record:
    """An offset and its append time."""

    offset: int
    timestamp: int


def log(gaps: list[tuple[int, int]]) -> list[Record]:
    """A log from the gaps between offsets and between times."""
    records, offset, time = list[Record](), 0, 1_000_000
    for offsets, millis in gaps:
        offset, time = offset + offsets, time + millis
        records.append(Record(offset, time))
    return records


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3 * STEP)), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 80),
)
def test_a_time_is_at_most_a_step_older_than_the_record(
    gaps: list[tuple[int, int]], batch: int, forgotten: int
) -> None:
    records, times = log(gaps), AppendTimes()
    for start in range(0, len(records), batch):
        times.saw(records[start : start + batch])
    times.forget_before(forgotten)
    for record in records:
        if record.offset >= forgotten:
            found = times.at(record.offset)
            assert found is not None
            assert record.timestamp - STEP < found <= record.timestamp
    assert times.at(records[-1].offset + 1) is None


def test_a_day_in_one_batch_is_told_apart() -> None:
    records, times = log([(1, 3_600_000)] * 24), AppendTimes()
    times.saw(records)
    assert [times.at(each.offset) for each in records] == [each.timestamp for each in records]


def test_a_long_log_keeps_few_times() -> None:
    records, times = log([(1, STEP)] * (5 * MOST)), AppendTimes()
    for start in range(0, len(records), 500):
        times.saw(records[start : start + 500])
    found = times.at(records[MOST].offset)
    assert found is not None
    assert 0 <= records[MOST].timestamp - found <= 16 * STEP
    times.forget_before(records[-1].offset + 1)
    times.saw(later := [Record(records[-1].offset + 10, 10**10)])
    assert times.at(later[0].offset) == 10**10


def test_nothing_is_known_before_a_record() -> None:
    times = AppendTimes()
    times.forget_before(7)
    assert times.at(0) is None
