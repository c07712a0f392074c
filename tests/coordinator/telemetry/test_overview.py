"""`status` for somebody who was just woken up: conditions, positions, silence, waiting work, in ages."""

from pathlib import Path
from typing import Any

import click
import pytest

from sluicegate.cli.status import lines_of
from sluicegate.coordinator.core.state import RegionPhase, Revert, Savepoint
from sluicegate.coordinator.core.state_record import Condition, StateRecord, Waiting
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.observe.view import view_of
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import FurtherTable, KnownTable, SnapshotRef, StreamPolicy, TableVersion
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import StreamView
from tests.coordinator.telemetry.records import NOW, ONE, OTHER, position, record, undecided
from tests.golden.script import Script
from tests.golden.test_cases import FILES

pytestmark = pytest.mark.slow

UNFIT = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT, detail="no disk"), retry_in=12_000)
LOST = Problem(code=Code.FILES_LOST, region="JFK", incarnation=OTHER, checkpoint=10)


def shown_of(found: StateRecord, *, live: bool = True, as_of: int = NOW) -> dict[str, Any]:
    """Return a stream as `status` shows it."""
    return {
        "stream": "flights",
        "configured": True,
        "problem": None,
        "partition": 1,
        "read_by_restart": 12,
        "live": live,
        "ready": True,
        "unserved": None,
        **view_of(found, None, as_of).model_dump(mode="json"),
    }


def lines(found: StateRecord, *, live: bool = True, verbose: bool = False, as_of: int = NOW) -> list[str]:
    """Return the lines of `status`."""
    shown = shown_of(found, live=live, as_of=as_of)
    return [click.unstyle(each) for each in lines_of(shown, NOW, verbose=verbose)]


def of_tables(count: int) -> StateRecord:
    """Return a record of a stream with so many further tables, of which the first one is touched."""
    terms = [
        FurtherTable(identifier=f"shop.t{n:03d}", identity=f"u{n}", location=f"file:///t{n}")
        for n in range(count)
    ]
    known = {f"t{n:03d}": KnownTable(terms=each) for n, each in enumerate(terms)}
    newest = TableVersion(decision=3, snapshot=SnapshotRef(id=5, identity="55"))
    known["t000"] = known["t000"].model_copy(update={"newest": newest})
    policy = StreamPolicy(number=1, tables=dict(zip(known, terms, strict=True)))
    return record({"policy": policy, "tables": known})


def test_each_further_table_has_its_part_of_the_vector() -> None:
    shown = [line for line in lines(of_tables(2)) if "table" in line]
    assert shown == [
        "  table t000 (shop.t000): commit 3, snapshot 5:55",
        "  table t001 (shop.t001): no commit yet",
    ]


def test_of_many_further_tables_the_first_ones_are_listed() -> None:
    shown = [line for line in lines(of_tables(499)) if "table" in line]
    assert len(shown) == 21
    assert shown[-1] == "  and 479 further tables (--verbose: all)"
    assert len([line for line in lines(of_tables(499), verbose=True) if "table" in line]) == 499


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
        "  the next commit is partial: it does not wait for LGA",
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
    shown = view_of(found, None, NOW).conditions
    assert [(each.kind, each.code, each.region, each.retry_in) for each in shown] == [
        ("stall", "table-unfit", None, 12_000),
        ("stall", "files-lost", "JFK", None),
    ]
    assert shown[1].arguments == {"incarnation": OTHER, "checkpoint": 10}


def test_a_decision_without_an_outcome() -> None:
    found = undecided(record(table=TableProgress(head=SnapshotRef(id=58, identity="def"))))
    assert "  decision 5 with 1 file of EWR is not committed yet; LGA fell back; table head 58:def" in lines(
        found
    )
    assert "checkpoint 17 of 6f0c1d2e…; decided: checkpoint 18 of 6f0c1d2e…" in line_of("EWR", found)
    assert found.state.unresolved is not None
    found.state.unresolved.revert = Revert(offset=9, region="EWR")
    assert any("; it is being reverted, without region EWR" in line for line in lines(found))


def test_savepoints_name_the_regions_that_they_wait_for() -> None:
    reached, not_yet = position(ONE, 17), position(OTHER, 10)
    savepoints = [
        Savepoint(name="s1", offset=0, targets={"EWR": reached, "JFK": not_yet}, awaited=[]),
        Savepoint(name="s2", offset=0, targets={"EWR": reached}),
        Savepoint(name="d1", offset=0, drain=True),
    ]
    found = view_of(record({"savepoints": savepoints}), None, NOW).savepoints
    assert [(each.name, each.unreached) for each in found] == [
        ("s1", ("JFK",)),
        ("s2", ()),
        ("d1", ("EWR", "JFK", "LGA")),
    ]


def test_waiting_work_is_counted_with_its_age() -> None:
    waiting = {
        "EWR": Waiting(files=3, rows=1_200, since=NOW - 35_000),
        "JFK": Waiting(files=1, rows=0, since=NOW - 9_000),
    }
    found = record(waiting=waiting)
    assert "  waiting: 4 files with 1,200 rows, the oldest for 35 s" in lines(found)
    assert line_of("EWR", found).endswith("; waiting: 3 files with 1,200 rows, the oldest for 35 s")
    assert line_of("JFK", found).endswith("; waiting: 1 file, the oldest for 9 s")


# --- regions --------------------------------------------------------------------------------------


def test_a_region_is_silent_by_the_setting_and_by_three_heartbeats() -> None:
    heard = {"EWR": NOW - 80_000, "JFK": NOW - 12_000}
    found = record(heard=heard, intervals={"EWR": 5_000, "JFK": 5_000})
    patient = StreamSettings(table="file:/lake/flights", silence=90)
    assert view_of(found, patient, NOW).silent == ()
    rare = record(heard=heard, intervals={"EWR": 30_000, "JFK": 5_000})
    assert view_of(rare, None, NOW).silent == ()
    assert line_of("EWR", found) == (
        "  EWR  SILENT    checkpoint 17 of 6f0c1d2e…; silent for 80 s, heartbeats are due every 5 s: its "
        "driver has probably ended"
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
    assert any("Start its driver again. If that is refused" in line for line in lines(found))


@pytest.mark.parametrize("phase", RegionPhase)
def test_a_region_is_silent_until_it_has_ended(phase: RegionPhase) -> None:
    found = record(heard={"EWR": 0, "JFK": 0}, intervals={"EWR": 5_000})
    ewr = found.state.regions["EWR"]
    ewr.phase, ewr.final = phase, 18 if phase is RegionPhase.CLOSED else None
    view = view_of(found, None, NOW)
    expected = ("EWR",) if phase in (RegionPhase.LIVE, RegionPhase.CLOSED) else ()
    assert (view.regions["EWR"].phase, view.silent) == (phase, expected)
    ewr.phase, ewr.final = RegionPhase.CLOSED, 17
    assert view_of(found, None, NOW).silent == ()


def test_the_gravest_state_of_a_region_is_shown() -> None:
    found = record(heard={"EWR": 0}, intervals={"EWR": 5_000})
    ewr = found.state.regions["EWR"]
    ewr.fault = LOST.model_copy(update={"region": "EWR"})
    assert line_of("EWR", found).split()[1] == "STALLED"
    ewr.fault, ewr.phase, ewr.final = None, RegionPhase.CLOSED, 18
    assert line_of("EWR", found).split()[1] == "SILENT"
    found.heard = {"EWR": NOW}
    assert line_of("EWR", found).split()[1] == "closing"
    ewr.final = 17
    assert line_of("EWR", found).split()[1] == "closed"


def test_ids_and_offsets_are_short_unless_they_are_requested() -> None:
    found = record()
    found.state.regions["EWR"].source_offsets = "x" * 100
    assert ONE in line_of("EWR", found, verbose=True)
    assert f"    source offsets {'x' * 100}" in lines(found, verbose=True)
    assert f"    source offsets {'x' * 60}… (--verbose: all)" in lines(found)
    assert ONE not in "".join(lines(found))


# --- every state ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_status_and_view_of_every_golden_case(path: Path) -> None:
    """Each state that a case ends with can be shown, as text, as JSON and in the state store."""
    script = Script()
    script.run(path.read_text(encoding="utf-8"))
    if script.world.record is None:
        return
    found = StateRecord.model_validate_json(script.world.record)
    view = view_of(found, StreamSettings(table="file:/lake/flights", commit_user="user"), NOW)
    assert StreamView.model_validate_json(view.model_dump_json()) == view
    names = {name for line in lines(found) if (name := line.partition("  ")[2].partition("  ")[0])}
    assert {*view.regions} <= {*(name.strip() for name in names)}


def test_conditions_have_the_colour_of_their_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = [
        each[:8]
        for each in lines_of(shown_of(record(conditions=[UNFIT])), NOW, verbose=False)
        if "\x1b" in each
    ]
    assert coloured == ["  \x1b[31mS"]
