"""Reasons, causes and times in messages."""

from typing import Any

import pytest

from sluicegate.cli.status import state_of
from sluicegate.coordinator.core.state import Decline
from sluicegate.coordinator.core.state_record import Condition, Waiting
from sluicegate.coordinator.observe.messages import duration, iso_time
from sluicegate.coordinator.observe.view import (
    RANKS,
    Reason,
    Unfinished,
    in_order,
    letters,
    reasons_of,
    silence,
    view_of,
)
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import StreamPolicy
from sluicegate.events.problems import Code, Problem
from tests.coordinator.telemetry.records import NOW, ONE, OTHER, record, region

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
        "checkpoint 413 unfinished: 2 events published, no completion. Start its driver again. If "
        "that is refused, its log has the way out."
    )
    assert "It left" not in silence("flights", "JFK", HEARD, 10_000).message


# --- one cause, one reason ------------------------------------------------------------------------

FAILED = 120_000
"""Milliseconds since the last word of the driver."""
MISMATCH = "SchemaMismatch: the rows lack the column origin"
WAITS = Condition(kind="wait", problem=Problem(code=Code.WAITS_FOR_REGIONS, names=("EWR",)))
OLD = Condition(kind="wait", problem=Problem(code=Code.POSITION_OLD, region="EWR", number=3_600))
SETTINGS = StreamSettings(table="/lake/flights", alignment_timeout=10.0, alignment_timeouts={"LGA": 60.0})


def declined(code: str) -> Condition:
    names = (code,) if code else ()
    problem = Problem(code=Code.DECLINED, region="EWR", checkpoint=7, names=names, detail=MISMATCH)
    return Condition(kind="wait", problem=problem)


def shown(*conditions: Condition, heard: int = 1_000, waits: int = 30_000) -> list[Reason]:
    """Return the reasons of a stream whose region EWR was heard, and whose work waits, for so long."""
    told = next((each.problem for each in conditions if each.problem.code is Code.DECLINED), None)
    last = None if told is None else Decline(checkpoint=7, at=NOW - FAILED, code="".join(told.names))
    regions = {"EWR": region(ONE, 17, declined=last), "JFK": region(OTHER, 9, idle=True)}
    # Only full commits wait for a region that has declined.
    full = {} if last is None else {"policy": StreamPolicy(number=1, partial="never")}
    found = record(
        state={"regions": regions, **full},
        conditions=conditions,
        heard={"EWR": NOW - heard},
        intervals={"EWR": 10_000},
        waiting={"JFK": Waiting(files=1, rows=1, since=NOW - waits)},
    )
    return reasons_of(view_of(found, SETTINGS, NOW), NOW, SETTINGS)


def test_a_driver_that_failed_gives_the_error_of_its_last_word() -> None:
    (found,) = shown(declined("batch-failed"), WAITS, OLD)
    assert (found.kind, found.code, found.region) == ("failed", "declined", "EWR")
    assert found.since == NOW - FAILED
    assert found.message == (
        "Region EWR of stream flights has failed: its driver has given up checkpoint 7 (batch-failed): "
        f"{MISMATCH}. The commits of flights wait for the region. Remove the cause, and start its driver "
        "again."
    )
    (found,) = shown(declined("batch-failed"))
    assert "wait for the region" not in found.message


def test_the_silence_after_a_last_word_is_the_same_cause() -> None:
    (found,) = shown(declined("query-failed"), WAITS, heard=90_000)
    assert (found.kind, found.since) == ("failed", NOW - FAILED)
    assert MISMATCH in found.message
    assert "Its last event is of " in found.message
    assert "region remove" not in found.message


def test_a_region_whose_driver_failed_is_not_shown_as_live() -> None:
    def state(code: str, **more: Any) -> str:
        declined = Decline(checkpoint=7, at=NOW, code=code)
        view = view_of(
            record(state={"regions": {"EWR": region(ONE, 17, declined=declined, **more)}}), None, NOW
        )
        return state_of(view, "EWR")

    assert state("query-failed") == "FAILED"
    assert state("query-failed", fault=WAITS.problem) == "STALLED"
    assert state("declined") == "live"


def test_a_slow_checkpoint_is_no_failure() -> None:
    assert [(each.kind, each.code) for each in shown(declined("declined"))] == [("wait", "declined")]
    assert [each.kind for each in shown(declined("declined"), heard=90_000)] == ["silent"]


def test_commits_that_wait_for_a_silent_region_have_one_reason() -> None:
    assert [each.kind for each in shown(WAITS, heard=90_000)] == ["silent"]
    both = WAITS.problem.model_copy(update={"names": ("EWR", "LGA")})
    silent, waits = shown(WAITS.model_copy(update={"problem": both}), heard=90_000, waits=61_000)
    assert (silent.kind, waits.kind) == ("silent", "wait")
    assert "no driver of the regions LGA has registered" in waits.message


@pytest.mark.parametrize(
    ("region", "waits", "kinds"),
    [("EWR", 9_000, []), ("EWR", 11_000, ["wait"]), ("LGA", 59_000, []), ("LGA", 61_000, ["wait"])],
)
def test_a_wait_is_shown_after_the_alignment_timeout(region: str, waits: int, kinds: list[str]) -> None:
    problem = WAITS.problem.model_copy(update={"names": (region,)})
    found = shown(WAITS.model_copy(update={"problem": problem}), waits=waits)
    assert [each.kind for each in found] == kinds
    assert [each.since for each in found] == [NOW - waits] * len(kinds)


@pytest.mark.parametrize(("heard", "told"), [(599_000, False), (601_000, True)])
def test_to_remove_a_region_is_advised_after_long_silence(heard: int, told: bool) -> None:
    command = "If the region has ended for good: `sluicegate region remove --stream flights --region EWR`."
    for conditions in ((), (declined("batch-failed"),)):
        (found,) = shown(*conditions, heard=heard)
        assert (command in found.message) is told
    problem = WAITS.problem.model_copy(update={"names": ("LGA",)})
    (wait,) = shown(WAITS.model_copy(update={"problem": problem}), waits=heard)
    assert ("`sluicegate region remove --stream flights --region LGA`" in wait.message) is told


def test_a_wait_says_what_is_known_of_each_region() -> None:
    """One whose driver is alive may hang; another has no driver yet, and is not removed for that."""
    problem = WAITS.problem.model_copy(update={"names": ("EWR", "LGA")})
    unstarted, working = shown(WAITS.model_copy(update={"problem": problem}), waits=700_000)
    assert (unstarted.kind, working.kind) == ("late", "late")
    assert unstarted.message.startswith(
        "The next commit of stream flights waits: no driver of the regions LGA has registered. Start them. "
    )
    assert working.message == (
        "The next commit of stream flights waits: the regions EWR have completed nothing since their "
        f"committed positions, and their drivers are alive: the last event is of {iso_time(NOW - 1_000)}. "
        "If that is longer than their checkpoints take, look at them: a writer hangs, or cannot write."
    )


@pytest.mark.parametrize(
    ("moved", "heard", "more", "told"),
    [
        (301_000, 1_000, {}, True),
        (299_000, 1_000, {}, False),
        (301_000, 1_000, {"commit_interval": 60.0}, False),
        (301_000, 61_000, {}, False),
    ],
)
def test_a_stream_whose_drivers_live_and_complete_nothing_is_not_fine(
    moved: int, heard: int, more: dict[str, float], told: bool
) -> None:
    found = record(heard={"EWR": NOW - heard}, intervals={"EWR": 600_000})
    found.state.regions["EWR"].moved_at = NOW - moved
    settings = SETTINGS.model_copy(update=more)
    reasons = reasons_of(view_of(found, settings, NOW), NOW, settings)
    assert [each.kind for each in reasons] == ["late"] * told
    assert not told or reasons[0].message.startswith(
        "Stream flights has committed nothing for 5 min: the regions EWR have completed nothing since "
    )


# --- letters, and times ---------------------------------------------------------------------------


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


def test_steps_that_fail_for_one_cause_are_one_reason() -> None:
    failing = [
        Condition(kind="stall", problem=Problem(code=Code.RETRYING, names=(step,), detail=detail))
        for step, detail in (("ask", "no such table"), ("check", "no such table"), ("announce", "no Kafka"))
    ]
    first, other = shown(*failing)
    assert "the step ask fails: no such table" in first.message
    assert "the step announce fails: no Kafka" in other.message
