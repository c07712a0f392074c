"""The logged policy, where a scenario would be long."""

import pytest

from sluicegate.coordinator.core.cuts import most_fallbacks
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import AssignmentState, LogState
from sluicegate.events.models import StreamPolicy


@pytest.mark.parametrize(
    ("ratio", "regions", "most"), [(0.7, 90, 63), (0.29, 100, 29), (0.5, 3, 1), (0.0, 5, 0), (1.0, 5, 5)]
)
def test_the_ratio_is_a_decimal_number(ratio: float, regions: int, most: int) -> None:
    """0.7 of 90 regions is 63; in binary numbers it would be 62."""
    names = [f"r{number}" for number in range(regions)]
    policy = StreamPolicy(number=1, partial="allow", max_failure_ratio=ratio)
    state = LogState(policy=policy, assignment=AssignmentState(number=0, regions=names))
    assert most_fallbacks(Log("s", state)) == most
