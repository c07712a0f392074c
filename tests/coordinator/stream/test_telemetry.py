"""Conditions are logged once at their beginning and once at their end; the metrics show the current ones."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import (
    AssignmentState,
    Before,
    Decision,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.core.state_record import Condition, Due, Kind
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.stream.telemetry import StreamTelemetry
from sluicegate.events.models import Position, StreamPolicy
from sluicegate.events.notifications import NotificationType, RegistrationAnswered
from sluicegate.events.problems import Code, Problem
from tests.coordinator.telemetry.pages import value_of


def condition(kind: Kind, code: Code, **arguments: Any) -> Condition:
    """Return a condition."""
    return Condition(kind=kind, problem=Problem(code=code, **arguments), retry_in=5)


def told(telemetry: StreamTelemetry, *steps: list[Condition]) -> list[tuple[str, str, str]]:
    """Return level, event and code of the lines that a course of conditions causes."""
    with capture_logs() as lines:
        for found in steps:
            telemetry.conditions(found)
    return [(line["log_level"], line["event"], line["code"]) for line in lines]


def telemetry(*due: Due) -> StreamTelemetry:
    """Return the telemetry of a stream with metrics of its own."""
    return StreamTelemetry("flights", Metrics(), due)


def test_each_condition_is_logged_once_and_so_is_its_end() -> None:
    unfit = condition("stall", Code.TABLE_UNFIT, detail="no disk")
    lost = condition("stall", Code.FILES_LOST, region="EWR", checkpoint=3)
    pause = condition("pause", Code.PAUSED)
    # The detail of an error and the time of the next try may change; the condition is the same.
    again = unfit.model_copy(
        update={"retry_in": 4, "problem": unfit.problem.model_copy(update={"detail": "still no disk"})}
    )
    assert told(telemetry(), [unfit], [unfit, lost, pause], [again, pause], [pause], []) == [
        ("error", "stalled", "table-unfit"),
        ("error", "stalled", "files-lost"),
        ("info", "paused", "paused"),
        ("info", "stall ended", "files-lost"),
        ("info", "stall ended", "table-unfit"),
        ("info", "resumed", "paused"),
    ]


def test_a_retry_that_becomes_a_stall_is_logged_again() -> None:
    retry = condition("retry", Code.RETRYING, names=("publish",), detail="No space left")
    stall = condition("stall", Code.RETRYING, names=("publish",), detail="No space left")
    view = condition("retry", Code.RETRYING, names=("view",), detail="Redis failed")
    assert told(telemetry(), [retry], [stall, view], [view], []) == [
        ("warning", "effect failed, will be tried again", "retrying"),
        ("error", "stalled", "retrying"),
        ("warning", "effect failed, will be tried again", "retrying"),
        ("info", "stall ended", "retrying"),
        ("info", "effect succeeded again", "retrying"),
    ]


def test_lines_have_the_fields_of_the_problem_and_its_sentence() -> None:
    with capture_logs() as lines:
        telemetry().conditions([condition("stall", Code.FILES_LOST, region="EWR", checkpoint=3)])
    (line,) = lines
    assert (line["stream"], line["region"], line["code"]) == ("flights", "EWR", "files-lost")
    assert line["reason"].startswith("Region EWR is stalled: files of checkpoint 3 are lost.")


def test_a_wait_for_regions_is_normal_and_not_logged() -> None:
    assert told(telemetry(), [condition("wait", Code.WAITS_FOR_REGIONS, names=("JFK",))], []) == []


def test_the_time_of_stalls_is_counted_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("sluicegate.coordinator.stream.telemetry.time.monotonic", lambda: now)
    metrics = Metrics()
    shown = StreamTelemetry("flights", metrics, ())

    def counted(code: Code) -> float | None:
        return value_of(metrics, "stall_seconds_total", stream="flights", code=code.value)

    lost = [condition("stall", Code.FILES_LOST, region=name) for name in ("EWR", "JFK")]
    now = 110.0
    shown.conditions(lost)
    assert counted(Code.FILES_LOST) is None
    now = 113.0
    shown.measure(Log("flights", LogState()), {}, lost, 0)
    # Two regions with one code are one stall of the stream.
    assert counted(Code.FILES_LOST) == 3
    now = 114.0
    shown.conditions(
        [condition("stall", Code.TABLE_UNFIT), condition("retry", Code.RETRYING, names=("ask",))]
    )
    now = 116.0
    shown.conditions([])
    now = 120.0
    shown.measure(Log("flights", LogState()), {}, [], 0)
    assert (counted(Code.FILES_LOST), counted(Code.TABLE_UNFIT), counted(Code.RETRYING)) == (4, 2, None)


def test_metrics_show_the_current_conditions_with_their_codes() -> None:
    metrics = Metrics()
    shown = StreamTelemetry("flights", metrics, ())

    def value(kind: str, code: str, table: str = "") -> float | None:
        labels = {"stream": "flights", "kind": kind, "code": code, "table": table}
        return value_of(metrics, "stream_conditions", **labels)

    shown.conditions(
        [
            condition("stall", Code.FILES_LOST, region="EWR"),
            condition("stall", Code.FILES_LOST, region="JFK"),
            condition("wait", Code.WAITS_FOR_REGIONS, names=("LGA",)),
            condition("stall", Code.TABLE_UNUSABLE, table="items"),
        ]
    )
    assert value("stall", "table-unusable", "items") == 1
    assert (value("stall", "files-lost"), value("wait", "waits-for-regions")) == (2, 1)
    shown.conditions([condition("stall", Code.FILES_LOST, region="JFK")])
    assert (value("stall", "files-lost"), value("wait", "waits-for-regions")) == (1, None)
    assert value("stall", "table-unusable", "items") is None


def test_refusals_are_logged_when_they_are_sent_and_not_by_a_second_owner() -> None:
    def refusal(number: int) -> Due:
        problem = Problem(code=Code.BASE_DIFFERS, region="EWR", incarnation="i2")
        body = RegistrationAnswered(registration=f"r{number}", accepted=False, problem=problem)
        kind = NotificationType.REGISTRATION_ANSWERED
        return Due(id=f"n{number}", type=kind, region="EWR", incarnation="i2", body=body)

    def lines(shown: StreamTelemetry, due: Due) -> list[MutableMapping[str, Any]]:
        with capture_logs() as found:
            shown.announced(due)
        return [line for line in found if line["log_level"] != "debug"]

    inherited = telemetry(refusal(1))
    assert lines(inherited, refusal(1)) == []
    (line,) = lines(inherited, refusal(2))
    assert (line["event"], line["code"], line["region"]) == ("registration refused", "base-differs", "EWR")
    assert "sluicegate region reset --stream flights --region EWR" in line["reason"]


def test_the_gauges_of_a_stream_and_its_regions_are_set() -> None:
    metrics = Metrics()
    shown = StreamTelemetry("flights", metrics, ())
    regions = {"EWR": RegionState(fallbacks=2), "JFK": RegionState()}
    state = LogState(policy=StreamPolicy(number=1, single_region="fixed-buckets"), regions=regions)
    shown.measure(Log("flights", state), {"EWR": 1_500}, (), 10_000)
    names = ("pending_files", "pending_bytes", "oldest_unsealed_age_seconds", "oldest_uncut_age_seconds")
    assert [value_of(metrics, name, stream="flights") for name in names] == [0, 0, 0, 0]
    assert value_of(metrics, "stream_single_region", stream="flights") == 1
    of_region = [
        (value_of(metrics, "region_consecutive_fallbacks", stream="flights", region=region), heard)
        for region in regions
        for heard in [
            value_of(metrics, "region_last_event_timestamp_seconds", stream="flights", region=region)
        ]
    ]
    assert of_region == [(2, 1.5), (0, None)]


def test_ages_of_positions_are_those_of_committed_ones() -> None:
    """An unresolved decision has moved nothing, an idle region ages, too, and one that left has no age."""
    metrics, names = Metrics(), ("EWR", "JFK", "LGA", "SFO")
    shown = StreamTelemetry("flights", metrics, ())
    life = Incarnation(id="q", from_offset=0, base=None)
    regions = {name: RegionState(phase=RegionPhase.LIVE, incarnation=life, moved_at=5_000) for name in names}
    regions["JFK"].moved_at, regions["JFK"].idle = 1_000, True
    regions["LGA"].phase = RegionPhase.LEFT
    regions["SFO"].moved_at = None
    state = LogState(assignment=AssignmentState(number=0, regions=[*names]), regions=regions)

    def shows(state: LogState) -> list[float | None]:
        shown.measure(Log("flights", state), {}, (), 10_000)
        of_region = [
            value_of(metrics, "region_position_timestamp_seconds", stream="flights", region=name)
            for name in names
        ]
        oldest = value_of(metrics, "stream_oldest_position_timestamp_seconds", stream="flights")
        return [*of_region, oldest]

    assert shows(state) == [5, 1, None, None, 5]
    before = Before(
        regions={"EWR": regions["EWR"].model_copy(update={"moved_at": 2_000})},
        watermark=None,
        provisional=False,
        former=None,
    )
    before.regions["EWR"].position = None
    to = Position(incarnation="q", checkpoint=1, digest="d")
    state.unresolved = Decision(
        id=1,
        digest="d",
        offset=1,
        cut={"EWR": to},
        fallbacks={},
        parts=[],
        files=0,
        first_offset=0,
        before=before,
    )
    assert shows(state) == [2, 1, None, None, 2]
