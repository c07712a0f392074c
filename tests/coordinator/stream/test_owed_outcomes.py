"""What an owner announces, as listeners count on it."""

import pytest

from sluicegate.coordinator.core.state_record import Due
from sluicegate.coordinator.stream import outcomes
from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Committed, NotificationType, RegistrationAnswered, SavepointTaken


def commit(decision: int) -> Due:
    body = Committed(decision=decision, cut={}, snapshot=None, watermark=None, files=0)
    return Due(id=f"c{decision}", type=NotificationType.COMMITTED, body=body)


def revert(decision: int) -> Due:
    body = CutReverted(decision=decision, digest="d", table="t")
    return Due(id=f"r{decision}", type=NotificationType.REVERTED, body=body)


def savepoint(decision: int) -> Due:
    body = SavepointTaken(name="s", drained=False, decision=decision, cut={}, snapshot=None, watermark=None)
    return Due(id=f"s{decision}", type=NotificationType.SAVEPOINT_TAKEN, body=body)


def answer() -> Due:
    body = RegistrationAnswered(registration="e1", accepted=True)
    return Due(id="a", type=NotificationType.REGISTRATION_ANSWERED, body=body)


@pytest.mark.parametrize(
    ("due", "before"),
    [
        ([], 5),
        ([answer()], 5),
        ([commit(5)], 4),
        ([answer(), revert(5)], 4),
        ([savepoint(4), commit(5)], 3),
        ([savepoint(0)], 0),
    ],
)
def test_outcomes_that_an_owner_owes_are_still_to_come(due: list[Due], before: int) -> None:
    """A listener that begins now has not missed them: it takes none of them for lost."""
    assert outcomes.outcomes_after(5, due, keeps=True).before == before


def test_an_owed_outcome_counts() -> None:
    test_outcomes_that_an_owner_owes_are_still_to_come([savepoint(4), commit(5)], 3)
