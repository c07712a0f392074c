"""Outcomes in memory are those of the topic, and none is announced before the listeners have records."""

import asyncio
from typing import Any, Final

import pytest

from sluicegate.coordinator.core.state_record import Due
from sluicegate.coordinator.stream.outcomes import HELD, NotPlaced, Outcomes, outcomes_after
from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import (
    Committed,
    Notification,
    NotificationType,
    RegistrationAnswered,
    SavepointTaken,
)

TYPES: Final[dict[type[Any], NotificationType]] = {
    Committed: NotificationType.COMMITTED,
    CutReverted: NotificationType.REVERTED,
    RegistrationAnswered: NotificationType.REGISTRATION_ANSWERED,
    SavepointTaken: NotificationType.SAVEPOINT_TAKEN,
}


def commit(decision: int) -> Committed:
    return Committed(decision=decision, cut={}, snapshot=None, watermark=None, files=0)


def notification(decision: int) -> Notification:
    return Notification(f"c{decision}", NotificationType.COMMITTED, "s", "", "", commit(decision))


REVERTED: Final = CutReverted(decision=5, digest="d", table="t")
ANSWER: Final = RegistrationAnswered(registration="e1", accepted=True)


def savepoint(decision: int) -> SavepointTaken:
    return SavepointTaken(name="s", drained=False, decision=decision, cut={}, snapshot=None, watermark=None)


@pytest.mark.parametrize(
    ("committed", "owed", "before"),
    [
        (0, [], 0),
        (1, [commit(1)], 0),
        (5, [], 5),
        (5, [ANSWER], 5),
        (5, [commit(5)], 4),
        (5, [commit(4), commit(5)], 3),
        (5, [ANSWER, REVERTED], 4),
        (5, [savepoint(4), commit(5)], 3),
        (5, [savepoint(0)], 0),
    ],
)
def test_the_decisions_that_an_owner_announces_are_those_that_are_owed(
    committed: int, owed: list[Any], before: int
) -> None:
    """A listener that begins now has not missed those that are owed: it takes none of them for lost."""
    due = [Due(id=str(number), type=TYPES[type(body)], body=body) for number, body in enumerate(owed)]
    assert outcomes_after(committed, due, keeps=True).before == before


def test_outcomes_that_were_dropped_are_read_in_the_topic() -> None:
    memory = Outcomes()
    memory.complete(0)
    for decision in range(1, HELD + 3):
        memory.announced(notification(decision), decision * 10, 0)
    # Those of the decisions 1 and 2 are dropped.
    assert memory.since(20) is None
    held = memory.since(21)
    assert held is not None
    assert [each.outcome.decision for each in held] == list(range(3, HELD + 3))


def test_a_topic_is_read_until_its_end_is_known() -> None:
    memory = Outcomes()
    memory.announced(notification(1), 30, 0)
    assert memory.since(30) is None
    memory.complete(25)
    assert memory.since(24) is None
    assert memory.since(25) is not None


async def test_the_first_outcome_waits_for_the_records_of_the_listeners() -> None:
    memory = Outcomes()
    announcing = asyncio.create_task(memory.before_announcing(notification(1)))
    await asyncio.sleep(0)
    assert not announcing.done()
    memory.place()
    await announcing
    given_up = Outcomes()
    announcing = asyncio.create_task(given_up.before_announcing(notification(1)))
    await asyncio.sleep(0)
    given_up.give_up()
    with pytest.raises(NotPlaced):
        await announcing


def test_an_offset_that_does_not_rise_is_of_a_new_topic() -> None:
    memory = Outcomes()
    memory.complete(0)
    memory.announced(notification(1), 7, 0)
    memory.announced(notification(2), 0, 0)
    assert (memory.times_made, memory.since(0)) == (1, None)
    assert [each.outcome.decision for each in memory.former] == [1]
