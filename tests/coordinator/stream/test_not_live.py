"""Completions that are read again: an incarnation that was live at their offset makes no dead letters."""

import pytest

from sluicegate.coordinator.core.state import (
    AssignmentState,
    Former,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.stream.letters import was_not_live
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Position


def region(name: str, since: int, phase: RegionPhase = RegionPhase.LIVE) -> RegionState:
    return RegionState(phase=phase, incarnation=Incarnation(id=name, from_offset=since, base=None))


def completion(incarnation: str) -> Envelope:
    return Envelope("e", EventType.CHECKPOINT_COMPLETED, "s", "r1", incarnation, 3, "", "", 0)


@pytest.mark.parametrize("phase", [RegionPhase.LIVE, RegionPhase.CLOSED])
@pytest.mark.parametrize(("offset", "expected"), [(20, False), (60, True)])
def test_the_former_assignment_was_live_before_the_newest_one(
    phase: RegionPhase, offset: int, expected: bool
) -> None:
    """Until the first decision of the newest assignment, its predecessor has not ended for good."""
    former = Former(
        assignment=AssignmentState(number=0, regions=["r1"]), regions={"r1": region("old", 10, phase)}
    )
    state = LogState(regions={"r1": region("new", 50)}, former=former)
    assert was_not_live(state, completion("old"), offset) is expected


@pytest.mark.parametrize(("offset", "expected"), [(20, False), (60, True)])
def test_an_ended_incarnation_was_live_before_its_successor(offset: int, expected: bool) -> None:
    state = LogState(regions={"r1": region("new", 50)}, ended={"old": "r1"})
    assert was_not_live(state, completion("old"), offset) is expected


def test_an_incarnation_that_the_state_may_have_forgotten_was_live_before_its_successor() -> None:
    newest = Incarnation(id="new", from_offset=50, base=Position(incarnation="p", checkpoint=3, digest="d"))
    state = LogState(regions={"r1": RegionState(phase=RegionPhase.LIVE, incarnation=newest)})
    assert not was_not_live(state, completion("old"), 20)
    assert was_not_live(state, completion("old"), 60)


def test_an_unknown_incarnation_was_never_live() -> None:
    state = LogState(regions={"r1": region("new", 50)})
    assert was_not_live(state, completion("other"), 20)
