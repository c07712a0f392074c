"""What the view and status say of a record, without servers."""

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.orders import obey
from sluicegate.coordinator.core.state import (
    LightState,
    LineageState,
    Order,
    RegionState,
    Savepoint,
    StateRecord,
)
from sluicegate.coordinator.stream.view import view_of
from sluicegate.coordinator.telemetry.reasons import UNOWNED, notes, region_reason, waits_for
from sluicegate.events.models import Assignment, Position, StreamCommand, StreamPolicy


def _region(**more: object) -> RegionState:
    return RegionState.model_validate(
        {"lineages": {"q.0": LineageState(opened_at=0)}, "chain": ["q.0"], **more}
    )


def _at(checkpoint: int) -> Position:
    return Position(lineage="q.0", checkpoint=checkpoint)


def _record(**regions: RegionState) -> StateRecord:
    state = LightState(
        assignment=Assignment(number=2, regions=tuple(regions)),
        next=Assignment(number=3, regions=("EWR", "NEW")),
        policy=StreamPolicy(number=1, partial="allow", max_consecutive_fallbacks=2, allowed_locations=()),
        savepoint=Savepoint(orders=[Order(name="s1"), Order(name="s2", drain=True)], targets={"EWR": _at(9)}),
        regions=regions,
    )
    return StateRecord(stream="flights", applied=7, low_water=0, state=state, joined="all-to-all sink")


RECORD = _record(
    EWR=_region(ref=_at(5), fallbacks=2, listeners={"tags": "7"}),
    JFK=_region(ref=_at(4), fallbacks=1),
    LGA=_region(fallbacks=1, idle=True, owned=False),
    OLD=_region(removed=True, fallbacks=1),
)


def test_the_view_says_who_stays_behind_and_what_is_to_come() -> None:
    view = view_of(RECORD, "user")
    assert view.fallbacks == {"EWR": _at(5), "JFK": _at(4)}
    assert (view.forced_by, view.joined) == (("EWR",), "all-to-all sink")
    assert view.savepoint is not None
    assert (view.savepoint.names, view.savepoint.drain) == (("s1", "s2"), True)
    assert view.savepoint.targets == {"EWR": _at(9)}
    assert (view.assignment, view.assigned) == (2, ("EWR", "JFK", "LGA", "OLD"))
    assert view.next_assignment == Assignment(number=3, regions=("EWR", "NEW"))
    assert {name: region.state for name, region in view.regions.items()} == {
        "EWR": "active",
        "JFK": "active",
        "LGA": "idle",
        "OLD": "removed",
    }
    assert (view.regions["EWR"].listeners, view.regions["LGA"].owned) == ({"tags": "7"}, False)


def test_reasons_name_what_matters_most() -> None:
    state = RECORD.state
    assert "last 2 commits, as often as it may" in (region_reason(state, "EWR") or "")
    assert region_reason(state, "JFK") == "stayed behind in the last commit"
    assert region_reason(state, "LGA") == UNOWNED
    assert "an operator removed it" in (region_reason(state, "OLD") or "")


def test_notes_are_of_the_stream() -> None:
    text = "\n".join(notes(RECORD))
    for part in (
        "one region for all commits, which are full: all-to-all sink",
        "the next commit has to be full: EWR",
        "assignment 3 (EWR, NEW) holds from its first full commit on",
        "the drain s1, s2 waits for: region EWR is at checkpoint 5, to reach 9",
        f"LGA: {UNOWNED}",
    ):
        assert part in text


def test_what_an_order_waits_for() -> None:
    assert waits_for(None, 3) == "a coordinator that writes the stream's state record"
    assert waits_for(RECORD, 7) == "region EWR is at checkpoint 5, to reach 9"
    assert "written before the order was read" in waits_for(RECORD, 8)
    stalled = RECORD.model_copy(update={"stalled": "the table is gone"})
    assert waits_for(stalled, 7).startswith("the stream is stalled: the table is gone")


def test_the_view_tells_a_pause_and_a_refused_opening_apart_from_a_stall() -> None:
    record = RECORD.model_copy(deep=True)
    record.refused = {"EWR": "it names no parent"}
    obey(Book("flights", record.state, record.applied), "flights", StreamCommand(command="pause"))
    view = view_of(record, "user")
    assert (view.stalled, view.paused) == (None, record.state.blocked)
    assert {name: region.refused for name, region in view.regions.items() if region.refused} == record.refused
    assert "go on with: sluicegate resume --stream flights" in waits_for(record, 1)
