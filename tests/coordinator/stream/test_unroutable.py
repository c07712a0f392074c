"""Events that belong to no stream here: a letter each time, and one refusal for each registration."""

import asyncio
import time

import pytest

from sluicegate.coordinator.stream import partition
from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.coordinator.stream.partition import FRESH, UnroutableEvents
from sluicegate.events.envelope import Envelope, EventType
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
