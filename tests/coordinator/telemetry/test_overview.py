"""`status` for somebody who was just woken up: what is silent, what waits, what fails, in ages."""

from typing import Any

from sluicegate.cli.status_lines import lines_of
from sluicegate.coordinator.core.state import (
    LightState,
    LineageState,
    RegionState,
    Retrying,
    StateRecord,
    Waiting,
)
from sluicegate.coordinator.telemetry.overview import overview
from sluicegate.events.models import Assignment, Position

NOW = 1_800_000_000_000
ONE, OTHER = "6f0c1d2e-7777-4a4a-9b9b-000000000001.0", "6f0c1d2e-7777-4b4b-9b9b-000000000002.11"


def _region(lineage: str, checkpoint: int, **more: Any) -> RegionState:
    return RegionState(
        lineages={lineage: LineageState(opened_at=0)},
        chain=[lineage],
        ref=Position(lineage=lineage, checkpoint=checkpoint),
        **more,
    )


def _record(**more: Any) -> StateRecord:
    regions = {"EWR": _region(ONE, 17), "JFK": _region(OTHER, 9, idle=True)}
    state = LightState(
        assignment=Assignment(number=0, regions=tuple(regions)), regions=regions, decided=4, committed=4
    )
    return StateRecord(stream="flights", applied=9, low_water=0, state=state, **more)


def _lines(record: StateRecord, *, live: bool = True, verbose: bool = False, as_of: int = NOW) -> list[str]:
    shown = {
        "stream": "flights",
        "configured": True,
        "problem": None,
        "partition": 1,
        "read_by_restart": 12,
        "live": live,
        "ready": True,
        **overview(record, as_of),
    }
    return lines_of(shown, NOW, verbose=verbose)


def test_a_region_whose_heartbeats_are_missing_is_silent() -> None:
    heard = {"EWR": NOW - 80_000, "JFK": NOW - 12_000}
    lines = _lines(_record(heard=heard, heartbeats={"EWR": 5_000, "JFK": 5_000}))
    assert lines[2] == (
        "  EWR  SILENT        checkpoint 17 of lineage 6f0c1d2e-7777-4a….0; silent for 80 s, heartbeats are "
        "due every 5 s: its query has probably ended"
    )
    assert lines[3] == "  JFK  idle          checkpoint 9 of lineage 6f0c1d2e-7777-4b….11; heard of 12 s ago"


def test_silence_counts_from_when_the_record_was_made() -> None:
    """Who reads an old record does not know what the queries have done since."""
    record = _record(heard={"EWR": NOW - 600_000}, heartbeats={"EWR": 5_000})
    before = NOW - 595_000
    assert overview(record, before)["regions"]["EWR"]["silent"] is None
    assert overview(record, NOW)["regions"]["EWR"]["silent"] == 600
    lines = _lines(record, live=False, as_of=before)
    assert lines[1] == "  as of 10 min ago, by its state record"
    assert "heard of 10 min ago" in lines[2]


def test_a_closed_region_is_not_silent_and_one_without_an_interval_is_not_judged() -> None:
    record = _record(heard={"EWR": 0, "JFK": 0}, heartbeats={"EWR": 5_000})
    record.state.regions["EWR"].closed = record.state.regions["EWR"].left = True
    shown = overview(record, NOW)["regions"]
    assert (shown["EWR"]["state"], shown["EWR"]["silent"], shown["JFK"]["silent"]) == ("closed", None, None)


def test_what_waits_is_counted_with_its_age() -> None:
    waiting = {
        "EWR": Waiting(files=3, rows=1_200, since=NOW - 35_000),
        "JFK": Waiting(files=1, rows=0, since=NOW - 9_000),
    }
    lines = _lines(_record(waiting=waiting))
    assert lines[2] == "  WAITING: 4 files with 1,200 rows, the oldest for 35 s"
    assert lines[3].endswith("; waiting: 3 files with 1,200 rows, the oldest for 35 s")
    assert lines[4].endswith("; waiting: 1 file, the oldest for 9 s")


def test_what_is_tried_again_is_shown_with_its_reason() -> None:
    retries = [
        Retrying(effect="publish", reason="No space left on device", failures=40, lasted=61_000),
        Retrying(effect="announce", reason="no leader", failures=1, lasted=0),
    ]
    assert _lines(_record(retries=retries))[2:4] == [
        "  RETRYING: publish failed 40 times in 61 s: No space left on device",
        "  RETRYING: announce failed once: no leader",
    ]


def test_a_reason_that_a_stall_has_is_not_repeated() -> None:
    retries = [Retrying(effect="publish", reason="No space left", failures=40, lasted=61_000)]
    lines = _lines(_record(retries=retries, stalled="a decision cannot be published: No space left. Look"))
    assert lines[3] == "  RETRYING: publish failed 40 times in 61 s: as above"


def test_silence_in_an_old_record_is_said_as_of_then() -> None:
    record = _record(heard={"EWR": NOW - 80_000}, heartbeats={"EWR": 5_000})
    assert "silent for 80 s when that was written, heartbeats" in _lines(record, live=False)[2]


def test_strangers_have_a_line_of_their_own() -> None:
    lines = _lines(
        _record(refused={"SFO": "region SFO is not in the assignment", "EWR": "it names no parent"})
    )
    assert [line.split()[0] for line in lines[2:]] == ["EWR", "LAST", "JFK", "REFUSED:"]
    assert lines[-1] == (
        "  REFUSED: a query of region SFO, which is not in the stream: region SFO is not in the assignment"
    )


def test_lineages_are_short_unless_they_are_asked_for() -> None:
    assert ONE in _lines(_record(), verbose=True)[2]
    assert OTHER in _lines(_record(), verbose=True)[3]
    assert ONE not in "".join(_lines(_record()))
    assert overview(_record(), NOW)["regions"]["EWR"]["cut"]["lineage"] == ONE


def test_times_are_without_fractions() -> None:
    record = _record()
    record.state.watermark = NOW + 123
    assert "watermark 2027-01-15T08:00:00Z" in _lines(record)[0]
