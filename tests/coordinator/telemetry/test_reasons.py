"""Reasons, causes and times in messages."""

import pytest

from sluicegate.coordinator.observe.messages import duration, iso_time
from sluicegate.coordinator.observe.view import RANKS, Reason, Unfinished, in_order, letters, silence

HEARD = 1_764_233_472_345


def test_the_gravest_reason_comes_first_and_equals_keep_their_order() -> None:
    given = [Reason(kind, str(number), "") for number, kind in enumerate(("wait", "pause", "stall", "retry"))]
    given.append(Reason("stall", "4", ""))
    assert [each.code for each in in_order(given)] == ["2", "4", "3", "1", "0"]


def test_an_unknown_kind_of_a_newer_release_is_no_error() -> None:
    assert "doubt" not in RANKS
    found = in_order([Reason("pause", "b", ""), Reason("doubt", "a", "")])
    assert [each.code for each in found] == ["a", "b"]


def test_a_silent_region_names_what_its_driver_left() -> None:
    found = silence("flights", "JFK", HEARD, 10_000, Unfinished(413, 2))
    assert (found.kind, found.region, found.since) == ("silent", "JFK", HEARD)
    assert found.message == (
        "Region JFK of stream flights is silent: its last event is of 2025-11-27T08:51:12Z, and a "
        "heartbeat is due every 10 s. Its driver has ended, or its host does not reach Kafka. It left "
        "checkpoint 413 unfinished: 2 events published, no completion. Start its driver again. To stop "
        "waiting for it: `sluicegate region remove --stream flights --region JFK`."
    )
    assert "It left" not in silence("flights", "JFK", HEARD, 10_000).message


def test_dead_letters_have_the_newest_one_and_no_second_remedy() -> None:
    newest = {
        "source": "sluicegate.events, partition 1, offset 7",
        "offset": 3,
        "time": HEARD,
        "code": "unknown-type",
        "reason": "The message is not used: its type is unknown. Correct the program that sends it.",
    }
    found = letters("flights", 2, newest)
    assert (found.kind, found.code, found.since) == ("letter", "unknown-type", HEARD)
    assert found.message == (
        "Stream flights has 2 messages that could not be used: the newest is at sluicegate.events, "
        "partition 1, offset 7. The message is not used: its type is unknown. Look at it with `sluicegate "
        "dead-letters show --offset 3`. Correct the program that sent it. If the message can be used then, "
        "send it again with `sluicegate dead-letters retry --offset 3`; else give it up with `sluicegate "
        "dead-letters drop --offset 3`."
    )


@pytest.mark.parametrize(
    ("millis", "shown"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_357_000_000_000, "2013-01-01T00:26:40Z"),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_times_are_iso_dates(millis: int | None, shown: str | None) -> None:
    assert iso_time(millis) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1 s"),
        (12.4, "12 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5_399, "90 min"),
        (5_400, "1.5 h"),
        (172_799, "48.0 h"),
        (259_200, "3 days"),
    ],
)
def test_durations_have_one_unit(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
