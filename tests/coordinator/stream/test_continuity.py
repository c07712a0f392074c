"""A coordinator continues from a state record only in the log that the record is of."""

from collections.abc import Mapping

import pytest

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.continuity import Home, LogRange, obstacle
from sluicegate.events.problems import CauseCode, Code

HOME = Home(partition=1, commit_user="user")


def record(applied: int = 9, low_water: int = 5, user: str | None = "user") -> StateRecord:
    """Return a record that has read up to an offset, and needs the log from another one on."""
    state = LogState(partition=1)
    return StateRecord(
        stream="s", applied=applied, applied_id="e9", low_water=low_water, state=state, commit_user=user
    )


def code(found: StateRecord, log: LogRange, events: Mapping[int, str | None], home: Home = HOME) -> object:
    problem = obstacle(found, home, log, events)
    return None if problem is None else (problem.code, problem.cause and problem.cause.code)


@pytest.mark.parametrize(
    ("log", "events", "cause"),
    [
        (LogRange(0, 20), {9: "e9"}, None),
        (LogRange(5, 10), {9: "e9"}, None),
        (LogRange(5, 9), {}, CauseCode.LOG_ENDS_EARLIER),
        (LogRange(6, 10), {9: "e9"}, CauseCode.LOG_BEGINS_LATER),
        (LogRange(0, 20), {9: "e8"}, CauseCode.OTHER_EVENT),
        (LogRange(0, 20), {9: None}, CauseCode.OTHER_EVENT),
    ],
)
def test_the_log_continues_the_record(
    log: LogRange, events: dict[int, str | None], cause: CauseCode | None
) -> None:
    found = code(record(), log, events)
    assert found == (None if cause is None else (Code.LOG_DISCONTINUOUS, cause))


def test_a_log_that_ends_before_the_low_water_mark_is_another_one() -> None:
    log = LogRange(0, 11)
    assert code(record(low_water=12), log, {9: "e9"}) == (Code.LOG_DISCONTINUOUS, CauseCode.LOG_ENDS_EARLIER)


def test_a_stream_continues_as_its_commit_user_in_its_partition() -> None:
    log, events = LogRange(0, 20), {9: "e9"}
    assert code(record(user=None), log, events) is None
    assert code(record(user="other"), log, events) == (Code.OTHER_COMMIT_USER, None)
    assert code(record(), log, events, Home(2, "user")) == (Code.OTHER_PARTITION, None)
