"""A stream is over its limit by the append times of its events, with a burst of ten seconds."""

from sluicegate.coordinator.stream.reload import BURST, Pace

LIMIT = 10


def over(times: list[int]) -> list[bool]:
    pace = Pace(LIMIT)
    return [pace.over(each) for each in times]


def test_the_burst_is_allowed_and_the_next_event_is_over() -> None:
    assert over([1_000] * (LIMIT * BURST + 1)) == [False] * (LIMIT * BURST) + [True]


def test_a_stream_at_its_limit_is_never_over() -> None:
    assert not any(over(list(range(0, 100 * 1_000, 1_000 // LIMIT))))


def test_a_stream_at_twice_its_limit_is_over_after_twice_the_burst() -> None:
    found = over(list(range(0, 100 * 1_000, 500 // LIMIT)))
    assert abs(found.index(True) - 2 * LIMIT * BURST) <= 2


def test_a_clock_that_steps_back_frees_no_room() -> None:
    assert over([5_000, *[0] * (LIMIT * BURST)])[-1]
