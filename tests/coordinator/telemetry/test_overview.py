"""`status` for somebody who was just woken up: conditions, positions, silence, waiting work, in ages."""

import json
from pathlib import Path
from typing import Any

import pytest

from sluicegate.cli.status_lines import lines_of
from sluicegate.coordinator.core.state import RegionPhase, Revert, Savepoint
from sluicegate.coordinator.core.state_record import Condition, StateRecord, TableProgress, Waiting
from sluicegate.coordinator.observe import messages
from sluicegate.coordinator.observe.view import NOT_READ, overview, view_of
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import Head
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import StreamView
from tests.coordinator.telemetry.records import NOW, ONE, OTHER, position, record, region, undecided
from tests.golden.script import Script
from tests.golden.test_cases import FILES

pytestmark = pytest.mark.slow

UNFIT = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT, detail="no disk"), retry_in=12_000)
LOST = Problem(code=Code.FILES_LOST, region="JFK", incarnation=OTHER, checkpoint=10)

READ_ON = {
    *(Code.PAUSED, Code.SAVEPOINT_WAITS, Code.DRAIN_WAITS, Code.RETRYING, Code.RETENTION),
    *(Code.TABLE_UNFIT, Code.TABLE_REPLACED, Code.TABLE_AHEAD, Code.TABLE_CONTRADICTS),
    *(Code.ABSENCE_UNPROVEN, Code.COMMIT_REFUSED),
}
"""Conditions of a stream whose events are read meanwhile."""


def lines(found: StateRecord, *, live: bool = True, verbose: bool = False, as_of: int = NOW) -> list[str]:
    """Return the lines of `status`."""
    shown = {
        "stream": "flights",
        "configured": True,
        "problem": None,
        "partition": 1,
        "read_by_restart": 12,
        "live": live,
        "ready": True,
        "unserved": None,
        **overview(found, as_of),
    }
    return lines_of(shown, NOW, verbose=verbose)


def line_of(name: str, found: StateRecord, **more: Any) -> str:
    """Return the line of a region."""
    return next(line for line in lines(found, **more) if line.startswith(f"  {name} "))


# --- the stream -----------------------------------------------------------------------------------


def test_a_stream_that_progresses() -> None:
    assert lines(record()) == [
        "flights  commit 4, snapshot 57:abc  watermark 2027-01-15T08:00:00Z  partition 1 (a restart reads 12 "
        "records)",
        "  as of now, by its coordinator",
        "  assignment 2: EWR, JFK, LGA, after decision 3",
        "  EWR  live      checkpoint 17 of 6f0c1d2e…",
        '    source offsets {"orders":{"0":170}}',
        "  JFK  idle      checkpoint 9 of 81ab34cd…",
        "  LGA  waiting   nothing committed",
    ]


def test_conditions_are_shown_with_code_sentence_and_next_try() -> None:
    found = record(conditions=[UNFIT, Condition(kind="stall", problem=LOST)])
    first, second = lines(found)[2:4]
    assert first.startswith(
        "  STALL table-unfit: Stream flights is stalled: its table cannot be used: no disk."
    )
    assert first.endswith("(next try in 12 s)")
    assert second.startswith("  STALL files-lost: Region JFK is stalled: files of checkpoint 10 are lost.")
    shown = overview(found, NOW)["conditions"]
    assert [(each["kind"], each["code"], each["region"], each["retry_in"]) for each in shown] == [
        ("stall", "table-unfit", None, 12.0),
        ("stall", "files-lost", "JFK", None),
    ]
    assert shown[1]["arguments"] == {"incarnation": OTHER, "checkpoint": 10}


def test_a_refusal_for_a_stall_is_not_listed_a_second_time() -> None:
    refusal = Condition(kind="refusal", problem=UNFIT.problem.model_copy(update={"detail": "other words"}))
    found = record(conditions=[UNFIT, refusal], refused={"EWR": UNFIT.problem})
    assert [each["kind"] for each in overview(found, NOW)["conditions"]] == ["stall"]
    assert "newest registration refused (table-unfit)" in line_of("EWR", found)


def test_a_pause_is_told_apart_from_a_stall() -> None:
    pause = Condition(kind="pause", problem=Problem(code=Code.PAUSED))
    found = record({"paused": True}, conditions=[pause])
    assert overview(found, NOW)["paused"] is True
    assert lines(found)[2] == (
        "  PAUSE paused: Stream flights commits nothing: an operator paused it. Continue with `sluicegate "
        "stream resume --stream flights`. `sluicegate audit --stream flights` tells who paused it, when and "
        "why."
    )


def test_a_decision_without_an_outcome() -> None:
    found = undecided(record(table=TableProgress(head=Head(snapshot=58, identity="def"))))
    shown = overview(found, NOW)
    assert (shown["decided"], shown["committed"], shown["watermark"]) == (5, 4, NOW)
    ewr = shown["regions"]["EWR"]
    assert (ewr["committed"]["checkpoint"], ewr["decided"]["checkpoint"]) == (17, 18)
    assert (ewr["source_offsets"], ewr["watermark"], ewr["listeners"]) == ('{"orders":{"0":170}}', None, {})
    assert shown["regions"]["JFK"]["decided"] is None
    assert "  decision 5 with 1 file of EWR is not committed yet; LGA fell back; table head 58:def" in lines(
        found
    )
    assert "checkpoint 17 of 6f0c1d2e…; decided: checkpoint 18 of 6f0c1d2e…" in line_of("EWR", found)
    assert found.state.pending is not None
    found.state.pending.revert = Revert(offset=9, region="EWR")
    assert any("; it is being reverted, without region EWR" in line for line in lines(found))


def test_the_next_assignment_learns_its_predecessor_when_all_have_ended() -> None:
    found = record()
    for name in ("EWR", "JFK"):
        found.state.regions[name].phase = RegionPhase.CLOSED
    assert overview(found, NOW)["next_assignment_after"] is None
    found.state.regions["LGA"] = region("x", None, phase=RegionPhase.REMOVED)
    assert overview(found, NOW)["next_assignment_after"] == 4
    assert "  all its regions have ended; queries of the next assignment set assignment.after = 4" in lines(
        found
    )
    assert overview(undecided(found), NOW)["next_assignment_after"] is None


def test_savepoints_name_the_regions_that_they_wait_for() -> None:
    reached, not_yet = position(ONE, 17), position(OTHER, 10)
    savepoints = [
        Savepoint(name="s1", targets={"EWR": reached, "JFK": not_yet}, awaited=[]),
        Savepoint(name="s2", targets={"EWR": reached}),
        Savepoint(name="d1", drain=True),
    ]
    found = overview(record({"savepoints": savepoints}), NOW)["savepoints"]
    assert [(each["name"], each["unreached"]) for each in found] == [
        ("s1", ["JFK"]),
        ("s2", []),
        ("d1", ["EWR", "JFK", "LGA"]),
    ]


def test_regions_that_force_a_full_commit() -> None:
    found = record()
    found.state.regions["JFK"].fallbacks = 2
    assert "  the next commit is full: JFK fell back as often as allowed" in lines(found)
    assert "fell back 2 times in a row" in line_of("JFK", found)
    found.state.regions["JFK"].fallbacks = 1
    assert "fell back once" in line_of("JFK", found)


def test_waiting_work_is_counted_with_its_age() -> None:
    waiting = {
        "EWR": Waiting(files=3, rows=1_200, since=NOW - 35_000),
        "JFK": Waiting(files=1, rows=0, since=NOW - 9_000),
    }
    found = record(waiting=waiting)
    assert "  waiting: 4 files with 1,200 rows, the oldest for 35 s" in lines(found)
    assert line_of("EWR", found).endswith("; waiting: 3 files with 1,200 rows, the oldest for 35 s")
    assert line_of("JFK", found).endswith("; waiting: 1 file, the oldest for 9 s")


def test_refused_queries_of_regions_that_the_stream_lacks_have_a_line_of_their_own() -> None:
    stranger = Problem(code=Code.REGION_NOT_ASSIGNED, region="SFO", names=("EWR", "JFK", "LGA"))
    found = record(refused={"SFO": stranger})
    assert list(overview(found, NOW)["strangers"]) == ["SFO"]
    assert lines(found)[-1].startswith(
        "  REFUSED: a query of region SFO, which the stream does not have: The registration of region SFO is"
    )


def test_an_unregistered_stream_has_no_assignment() -> None:
    found = StateRecord(stream="flights", applied=-1, low_water=0, state=record().state.model_copy())
    found.state.assignment, found.state.regions, found.state.decided = None, {}, 0
    found.state.snapshot = None
    assert lines(found)[0].startswith("flights  no commit yet  watermark")
    assert len(lines(found)) == 2


# --- regions --------------------------------------------------------------------------------------


def test_a_region_whose_heartbeats_are_missing_is_silent() -> None:
    heard = {"EWR": NOW - 80_000, "JFK": NOW - 12_000}
    found = record(heard=heard, intervals={"EWR": 5_000, "JFK": 5_000})
    assert line_of("EWR", found) == (
        "  EWR  SILENT    checkpoint 17 of 6f0c1d2e…; silent for 80 s, heartbeats are due every 5 s: its "
        "query "
        "has probably ended"
    )
    assert line_of("JFK", found) == "  JFK  idle      checkpoint 9 of 81ab34cd…; last event 12 s ago"


def test_reasons_are_in_the_order_of_the_page() -> None:
    pause = Condition(kind="pause", problem=Problem(code=Code.PAUSED))
    stall = Condition(kind="stall", problem=LOST.model_copy(update={"region": "JFK"}))
    found = record(conditions=[pause, stall], heard={"EWR": NOW - 80_000}, intervals={"EWR": 5_000})
    shown = [
        line.split(":")[0] for line in lines(found) if line.startswith(("  STALL ", "  SIL", "  PAUSE "))
    ]
    assert shown == ["  STALL files-lost", "  SILENT silent", "  PAUSE paused"]
    assert any("To stop waiting for it: `sluicegate region remove" in line for line in lines(found))


def test_silence_counts_from_the_time_of_the_record() -> None:
    """A reader of an old record does not know the later events of the queries."""
    found = record(heard={"EWR": NOW - 600_000}, intervals={"EWR": 5_000})
    before = NOW - 595_000
    assert overview(found, before)["regions"]["EWR"]["silent"] is None
    assert overview(found, NOW)["regions"]["EWR"]["silent"] == 600
    assert lines(found, live=False, as_of=before)[1] == "  as of 10 min ago, by its state record"
    assert "last event 10 min ago" in line_of("EWR", found, live=False, as_of=before)
    assert "silent for 10 min at that time, heartbeats" in line_of("EWR", found, live=False)


@pytest.mark.parametrize("phase", [each for each in RegionPhase if each is not RegionPhase.LIVE])
def test_only_live_regions_are_silent(phase: RegionPhase) -> None:
    found = record(heard={"EWR": 0, "JFK": 0}, intervals={"EWR": 5_000})
    found.state.regions["EWR"].phase = phase
    shown = overview(found, NOW)["regions"]
    assert (shown["EWR"]["phase"], shown["EWR"]["silent"], shown["JFK"]["silent"]) == (phase, None, None)


@pytest.mark.parametrize("code", sorted(NOT_READ))
def test_nothing_is_said_of_drivers_whose_events_are_not_read(code: Code) -> None:
    """They may be alive: nobody should remove a healthy region."""
    unread = Condition(kind="stall", problem=Problem(code=code))
    found = record(conditions=[unread], heard={"EWR": NOW - 80_000}, intervals={"EWR": 5_000})
    assert overview(found, NOW)["regions"]["EWR"]["silent"] is None
    assert not any("region remove" in line for line in lines(found))


def test_each_condition_of_a_stream_is_read_on_or_not_read() -> None:
    """A new code must be put into one of both lists."""
    assert sorted({*NOT_READ} & READ_ON) == []
    assert {*NOT_READ, *READ_ON} == {*messages.STREAM_MESSAGES, Code.OLDER_RELEASE}


def test_the_gravest_state_of_a_region_is_shown() -> None:
    found = record(heard={"EWR": 0}, intervals={"EWR": 5_000})
    ewr = found.state.regions["EWR"]
    ewr.fault = LOST.model_copy(update={"region": "EWR"})
    assert line_of("EWR", found).split()[1] == "STALLED"
    assert overview(found, NOW)["regions"]["EWR"]["stalled"]["code"] == "files-lost"
    ewr.fault, ewr.phase, ewr.final = None, RegionPhase.CLOSED, 18
    assert line_of("EWR", found).split()[1] == "closing"
    ewr.final = 17
    assert line_of("EWR", found).split()[1] == "closed"


def test_a_live_incarnation_that_has_committed_nothing_is_named() -> None:
    found = record()
    found.state.regions["EWR"] = region(OTHER, None, position=position(ONE, 17))
    assert "checkpoint 17 of 6f0c1d2e…; live: 81ab34cd…" in line_of("EWR", found)


def test_ids_and_offsets_are_short_unless_they_are_requested() -> None:
    found = record()
    found.state.regions["EWR"].source_offsets = "x" * 100
    assert ONE in line_of("EWR", found, verbose=True)
    assert f"    source offsets {'x' * 100}" in lines(found, verbose=True)
    assert f"    source offsets {'x' * 60}… (--verbose: all)" in lines(found)
    assert ONE not in "".join(lines(found))
    assert overview(found, NOW)["regions"]["EWR"]["committed"] == {
        "incarnation": ONE,
        "checkpoint": 17,
        "digest": "d17",
    }
    assert overview(found, NOW)["regions"]["EWR"]["source_offsets"] == "x" * 100


# --- every state ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_status_and_view_of_every_golden_case(path: Path) -> None:
    """Each state that a case ends with can be shown, as text, as JSON and in the state store."""
    script = Script()
    script.run(path.read_text(encoding="utf-8"))
    if script.world.record is None:
        return
    found = StateRecord.model_validate_json(script.world.record)
    shown = overview(found, NOW)
    assert json.loads(json.dumps(shown)) == shown
    names = {name for line in lines(found) if (name := line.partition("  ")[2].partition("  ")[0])}
    assert {*shown["regions"]} <= {*(name.strip() for name in names)}
    view = view_of(found, StreamSettings(table="file:/lake/flights", commit_user="user"))
    assert StreamView.model_validate_json(view.model_dump_json()) == view
    assert [each.code for each in view.conditions] == [each["code"] for each in shown["conditions"]]
    cut = {name: each["committed"] for name, each in shown["regions"].items() if each["committed"]}
    assert {name: at.model_dump() for name, at in view.cut.items()} == cut
