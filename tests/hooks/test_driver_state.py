"""What a driver knows of its commits: notifications in any order, answers, doubts and their ends."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.events.models import Assignment, Position
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    NotificationType,
    RegistrationAnswered,
)
from sluicegate.writer_hooks import incarnation as driver_state
from sluicegate.writer_hooks.errors import PublishFailed, RegionReplaced, RegistrationUnanswered
from sluicegate.writer_hooks.incarnation import CommittedCheckpoint, DriverState
from sluicegate.writer_hooks.options import Backpressure, Repetition
from sluicegate.writer_hooks.region import KafkaSettings, Region, Registered

OWN = Registered("q1", "run")


def at(number: int, incarnation: str = "q1", digest: str = "d") -> Position:
    return Position(incarnation=incarnation, checkpoint=number, digest=f"{digest}{number}")


def state_with(*completed: int) -> tuple[DriverState, list[int]]:
    """Return the state of a driver that has completed these checkpoints, and the numbers of its commits."""
    commits = list[int]()
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
    state = DriverState(region, lambda found: commits.append(found.number))
    state.begin(OWN, None)
    for number in completed:
        state.add_completed(CommittedCheckpoint(number, {"n": number}, at(number)))
    return state, commits


def commit(state: DriverState, position: Position) -> None:
    """Let the driver read that a commit has its region at a position."""
    body = Committed(decision=1, cut={"r1": position}, snapshot=None, watermark=None, files=0)
    state.apply(Notification("c", NotificationType.COMMITTED, "flights", "", "", body))


def test_a_commit_frees_its_checkpoint_and_those_before_it() -> None:
    state, commits = state_with(1, 2, 3)
    commit(state, at(2))
    assert (state.committed, commits) == (CommittedCheckpoint(2, {"n": 2}, at(2)), [2])
    oldest = state.oldest()
    assert oldest is not None
    assert oldest[0] == 3


@pytest.mark.parametrize(
    "position", [at(2, "q0"), at(2, digest="x"), at(9)], ids=["another incarnation", "other rows", "unknown"]
)
def test_another_commit_counts_for_nothing(position: Position) -> None:
    state, commits = state_with(1, 2)
    commit(state, position)
    assert (state.committed, commits) == (None, [])


def test_a_repeated_notification_tells_once() -> None:
    state, commits = state_with(1)
    commit(state, at(1))
    commit(state, at(1))
    assert commits == [1]


@pytest.mark.parametrize("error", [PublishFailed("away"), RegistrationUnanswered("nobody")])
def test_a_doubt_stays_until_a_coordinator_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    state, _ = state_with(1)
    asked = list[object]()
    answers: list[Callable[[], RegistrationAnswered]] = [raising(error), raising(error), accepted]

    def ask(*_: object, **__: object) -> RegistrationAnswered:
        asked.append(None)
        return answers[len(asked) - 1]()

    monkeypatch.setattr(driver_state, "ask", ask)
    assert state.check(OWN, None) is None, "there is no doubt"
    state.doubt()
    with caplog.at_level(logging.WARNING):
        assert state.check(OWN, None) is None
        assert state.check(OWN, None) is None
    assert state.check(OWN, None) is not None
    assert state.check(OWN, None) is None, "the doubt has ended"
    assert len(asked) == 3


def raising(error: Exception) -> Callable[[], RegistrationAnswered]:
    def answer() -> RegistrationAnswered:
        raise error

    return answer


def accepted(live: str = "q1") -> RegistrationAnswered:
    return RegistrationAnswered(registration="probe", accepted=True, live=live, run="run", decision=0)


def test_a_driver_that_was_replaced_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = state_with(1)
    monkeypatch.setattr(driver_state, "ask", lambda *_, **__: accepted("q2"))
    state.doubt()
    for _ in range(2):
        with pytest.raises(RegionReplaced):
            state.check(OWN, None)


@pytest.mark.parametrize(
    ("incarnations", "doubts"), [({"r1": "q1"}, True), ({"r1": "q0"}, False), ({"r2": "q1"}, False)]
)
def test_the_end_of_the_own_incarnation_is_a_doubt(
    monkeypatch: pytest.MonkeyPatch, incarnations: dict[str, str], *, doubts: bool
) -> None:
    state, _ = state_with(1)
    asked = list[object]()

    def ask(*_: object, **__: Any) -> RegistrationAnswered:
        asked.append(None)
        return accepted()

    monkeypatch.setattr(driver_state, "ask", ask)
    body = IncarnationsEnded(incarnations=incarnations)
    state.apply(Notification("e", NotificationType.ENDED, "flights", "", "", body))
    state.check(OWN, None)
    assert bool(asked) is doubts


def test_as_many_checkpoints_wait_as_are_allowed() -> None:
    limit = Backpressure(max_checkpoints=2, max_age=10.0)
    assert limit.excess({1: 100.0}, now=101.0) is None
    assert limit.excess({1: 100.0, 2: 100.0}, now=101.0) is not None
    assert limit.excess({1: 100.0}, now=110.0) is None
    assert limit.excess({1: 100.0}, now=110.5) is not None
    assert limit.excess({}, now=1_000.0) is None


def test_pauses_double_up_to_the_longest() -> None:
    question, due = Repetition(10.0, 1.0, longest=4.0), list[int]()
    for now in range(30):
        if question.is_due(float(now)):
            due.append(now)
    assert due == [10, 11, 13, 17, 21, 25, 29]
