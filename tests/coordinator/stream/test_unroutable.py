"""Events that belong to no stream here: a letter each time, and one refusal for each registration."""

import asyncio
import time

import pytest

from sluicegate.coordinator.core.state import (
    AssignmentState,
    Former,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.stream import partition
from sluicegate.coordinator.stream.letters import Letterbox, was_not_live
from sluicegate.coordinator.stream.partition import FRESH, UnroutableEvents
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Position
from sluicegate.events.notifications import Notification, RegistrationAnswered
from sluicegate.events.problems import Code
from tests.coordinator.stream.readers import STREAM, Log, links_of, record_at


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Notification]:
    """The answers that were sent."""
    sent = list[Notification]()

    async def announce(found: Notification, links: object) -> None:
        sent.append(found)

    monkeypatch.setattr(partition, "announce", announce)
    return sent


def events(monkeypatch: pytest.MonkeyPatch, handled: int = 0) -> tuple[UnroutableEvents, Letterbox]:
    """Unroutable events of a partition, of which those before an offset are handled."""
    links = links_of(Log(monkeypatch).settings(STREAM))
    letters = Letterbox("events", 0, lambda: None)
    letters.open(handled, "")
    found = UnroutableEvents(0, links, letters)
    found.skip_before(handled, handled)
    return found, letters


def registration(stream: str = "nobody") -> Envelope:
    return Envelope("e1", EventType.REGION_REGISTERED, stream, "r1", "q")


@pytest.mark.parametrize(
    ("offset", "age", "answers"),
    [(5, 0.0, 1), (4, 0.0, 0), (5, FRESH + 60, 0)],
    ids=["new", "handled", "old"],
)
async def test_a_registration_is_refused_once_while_its_job_may_wait(
    monkeypatch: pytest.MonkeyPatch, refused: list[Notification], offset: int, age: float, answers: int
) -> None:
    found, letters = events(monkeypatch, handled=5)
    record = record_at(offset, "nobody")
    record.timestamp = int((time.time() - age) * 1000)
    found.apply(record, registration())
    await asyncio.gather(*found._tasks)
    assert len(refused) == answers
    assert letters.waiting == (offset >= 5)
    for each in refused:
        assert isinstance(each.body, RegistrationAnswered)
        assert each.body.problem is not None
        assert (each.body.accepted, each.body.problem.code) == (False, Code.UNKNOWN_STREAM)


async def test_other_events_get_a_letter_alone(
    monkeypatch: pytest.MonkeyPatch, refused: list[Notification]
) -> None:
    found, letters = events(monkeypatch)
    record = record_at(0, "nobody")
    record.timestamp = int(time.time() * 1000)
    found.apply(record, Envelope("e1", EventType.REGION_HEARTBEAT, "nobody", "r1", "q"))
    assert (list(found._tasks), letters.waiting) == ([], 1)


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
