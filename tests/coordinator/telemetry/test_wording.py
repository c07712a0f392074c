"""Times and ranges in messages."""

import pytest

from sluicegate.coordinator.telemetry.wording import iso_time, spans


@pytest.mark.parametrize(
    ("millis", "shown"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999000Z"),
        (1_357_000_000_000, "2013-01-01T00:26:40Z"),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_times_are_iso_dates(millis: int | None, shown: str | None) -> None:
    assert iso_time(millis) == shown


def test_checkpoints_are_told_as_spans_by_lineage() -> None:
    assert spans([]) == ""
    assert spans([("q1", 4)]) == "4 of lineage q1"
    assert spans({("q2", 7), ("q1", 5), ("q1", 3), ("q1", 4)}) == "3..5 of lineage q1, 7 of lineage q2"
