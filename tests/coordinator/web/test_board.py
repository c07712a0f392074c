"""The place from which the page has the state of an own stream."""

from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.web.board import _reads
from sluicegate.events.problems import Code, Problem

STALL = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT))
WAIT = Condition(kind="wait", problem=Problem(code=Code.WAITS_FOR_REGIONS, names=("EWR",)))


@pytest.mark.parametrize(
    ("ready", "held", "conditions", "reads"),
    [
        (True, False, [], False),
        (False, False, [WAIT], True),
        (False, True, [], False),
        (False, False, [WAIT, STALL], False),
    ],
)
def test_a_stream_that_stalls_at_its_start_is_not_shown_as_one_of_another_coordinator(
    ready: bool, held: bool, conditions: list[Condition], reads: bool
) -> None:
    """Its former view in Redis would hide the stall, and name a coordinator that may not exist."""
    machine: Any = SimpleNamespace(ready=ready, conditions=lambda: conditions)
    runner: Any = SimpleNamespace(machine=machine, is_held=held)
    assert _reads(runner) is reads
