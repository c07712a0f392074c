"""The listener of tags: which cut gets which tag, on real tables, with repetitions and refusals."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.models import CutReverted, SnapshotRef
from sluicegate.events.notifications import NotificationType
from sluicegate.listeners.port import (
    Action,
    Done,
    ListenerRefused,
    ListenerType,
    Outcome,
    Refused,
    Services,
    Step,
)
from sluicegate.listeners.tags import TYPE, MakeTag, TagsListener, TagsOptions, TagsState
from tests.contracts.lakes.harness import Stream as Committing
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.test_tags import read
from tests.listeners.mark_done.driving import committed, stream_of
from tests.listeners.mark_done.policies import DAY, at

NOON = DAY // 2


def listener(table: str = "/lake/t", **values: Any) -> TagsListener:
    options = TagsOptions.model_validate({"period": "daily", **values})
    nothing: Any = None
    services = Services(http=nothing, publish=nothing, in_thread=asyncio.to_thread)
    return TYPE.open(options, stream_of("paimon", table), services)


def names(steps: Sequence[Step[TagsState]]) -> list[list[str]]:
    """Return the names of the tags of each step."""
    return [[each.name for each in step.actions if isinstance(each, MakeTag)] for step in steps]


def live(made: TagsListener, *watermarks: int | None) -> list[Step[TagsState]]:
    """Return the steps of commits with these watermarks, one after the other."""
    state, steps = made.initial(), list[Step[TagsState]]()
    for decision, watermark in enumerate(watermarks, 1):
        outcome = committed(decision, watermark=watermark)
        step = made.apply(outcome, state)
        assert step == made.apply(outcome, state), "a repetition makes the same actions, with the same keys"
        steps.append(step)
        state = made.load(step.state.model_dump(mode="json"))
    return steps


JAN_2, JAN_3, JAN_6 = at("2013-01-02"), at("2013-01-03"), at("2013-01-06")


def test_the_first_cut_that_has_passed_a_day_gets_its_tag() -> None:
    steps = live(listener(), JAN_2 - NOON, JAN_2, JAN_2 + 1, JAN_2 + NOON, JAN_3 + NOON)
    assert names(steps) == [["2012-12-31"], [], ["2013-01-01"], [], ["2013-01-02"]]
    (action,) = steps[2].actions
    assert isinstance(action, MakeTag)
    assert (action.snapshot, action.decision) == (SnapshotRef(30, "i"), 3)


def test_a_cut_that_passes_several_days_gets_the_tag_of_the_newest_one() -> None:
    assert names(live(listener(), JAN_2 + 1, JAN_6 + 1)) == [["2013-01-01"], ["2013-01-05"]]


def test_gaps_are_filled_on_demand_in_order_and_not_before_the_first_tag() -> None:
    steps = live(listener(fill_gaps=True), JAN_2 + 1, JAN_6 + 1, JAN_6 + NOON)
    assert names(steps) == [["2013-01-01"], ["2013-01-02", "2013-01-03", "2013-01-04", "2013-01-05"], []]
    assert {each.snapshot for each in steps[1].actions if isinstance(each, MakeTag)} == {SnapshotRef(20, "i")}


def test_a_watermark_that_is_unknown_or_goes_back_makes_no_tag() -> None:
    steps = live(listener(), None, JAN_3 + 1, None, JAN_2 + 1, JAN_3 + 2)
    assert names(steps) == [[], ["2013-01-02"], [], [], []]


def test_a_reverted_cut_gets_no_tag_and_changes_nothing() -> None:
    made = listener(savepoints=True)
    before = TagsState(through=JAN_2)
    body = CutReverted(decision=7, digest="d", table="i", snapshot=HEAD)
    outcome = Outcome("r7", NotificationType.REVERTED, "flights", 0, body)
    assert made.apply(outcome, before) == Step(before)


HEAD = SnapshotRef(id=40, identity="i")


# --- tables ---------------------------------------------------------------------------------------


def outcome(decision: int, ref: SnapshotRef, watermark: int) -> Outcome:
    found = committed(decision, watermark=watermark)
    head = SnapshotRef(id=ref.id, identity=ref.identity)
    body = found.body.model_copy(update={"snapshot": head})
    return Outcome(found.id, found.type, found.stream, found.time, body)


async def only(made: TagsListener, seen: Outcome) -> Any:
    """Run the one action of an outcome; returns its result."""
    action: Action
    (action,) = made.apply(seen, made.initial()).actions
    return await made.run(action)


async def test_a_tag_is_made_once_and_found_after_a_crash(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Committing(lake)
    ref = stream.commit(1, [1])
    seen = outcome(1, ref, JAN_2 + 1)
    assert await only(listener(lake.location), seen) == Done()
    stream.commit(2, [2])
    # The process was killed before it wrote its record.
    assert await only(listener(lake.location), seen) == Done()
    assert read(lake, "2013-01-01") == [1]


async def test_a_name_that_is_taken_stops_the_listener_until_that_tag_is_gone(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Committing(lake)
    stream.commit(1, [1])
    lake.table.create_tag("2013-01-01", 1)
    ref = stream.commit(2, [2])
    result = await only(listener(lake.location), outcome(2, ref, JAN_2 + 1))
    assert isinstance(result, Refused)
    assert "The tag 2013-01-01 of snapshot 2 was not made: the name is that of a tag of snapshot 1." in (
        result.reason
    )
    assert "Delete or rename that one, or set another name for new tags." in result.reason
    assert "To go on without it, set skip_through = 2." in result.reason
    assert read(lake, "2013-01-01") == [1]
    # Both ways out.
    assert await only(listener(lake.location, name="'d-'yyyy-MM-dd"), outcome(2, ref, JAN_2 + 1)) == Done()
    lake.table.delete_tag("2013-01-01")
    assert await only(listener(lake.location), outcome(2, ref, JAN_2 + 1)) == Done()
    assert read(lake, "2013-01-01") == read(lake, "d-2013-01-01") == [1, 2]


async def test_a_snapshot_that_has_expired_is_named_with_the_way_out(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Committing(lake)
    ref = stream.commit(1, [1])
    stream.commit(2, [2])
    lake.expire(1)
    result = await only(listener(lake.location), outcome(1, ref, JAN_2 + 1))
    assert result == Refused(
        "Snapshot 1 of the tag 2013-01-01 has expired before its tag was made. Keep snapshots of the table "
        "longer. To go on without it, set skip_through = 1."
    )


def test_the_type_is_one_of_the_port_and_delta_is_refused() -> None:
    assert isinstance(TYPE, ListenerType)
    with pytest.raises(ListenerRefused, match=r"a Delta table has no tags.* Remove the listener"):
        TYPE.check(TagsOptions(period="daily"), stream_of("delta", "/lake/t"))
