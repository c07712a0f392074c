"""Times in messages."""

import pytest

from sluicegate.coordinator.observe.messages import duration, iso_time


@pytest.mark.parametrize(
    ("millis", "shown"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_357_000_000_000, "2013-01-01T00:26:40Z"),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_times_are_iso_dates(millis: int | None, shown: str | None) -> None:
    assert iso_time(millis) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1 s"),
        (12.4, "12 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5_399, "90 min"),
        (5_400, "1.5 h"),
        (172_799, "48.0 h"),
        (259_200, "3 days"),
    ],
)
def test_durations_have_one_unit(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
