"""Every state store behaves the same, in memory and in Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluicegate.events.models import Position, SnapshotRef
from sluicegate.state_store import (
    AssignmentView,
    ConditionView,
    FurtherTableView,
    ListenerView,
    MemoryStateStore,
    ProblemView,
    RegionView,
    SavepointView,
    StateStore,
    StreamView,
)
from sluicegate.state_store.redis_store import RedisStateStore

pytestmark = pytest.mark.seam


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def store(request: pytest.FixtureRequest, unique: str) -> AsyncIterator[StateStore]:
    if request.param == "memory":
        yield MemoryStateStore()
        return
    redis = RedisStateStore(request.getfixturevalue("redis_url"), prefix=unique)
    yield redis
    await redis.close()


def view(revision: int, stream: str = "flights", **fields: Any) -> StreamView:
    defaults = {"updated_at": 1_700_000_000_000 + revision, "commit_user": "sluicegate-flights"}
    return StreamView(stream=stream, revision=revision, **(defaults | fields))


def at(incarnation: str, checkpoint: int) -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest=f"{incarnation}/{checkpoint}")


FULL = view(
    41,
    decided=8,
    committed=7,
    snapshot=SnapshotRef(id=2**63 - 1, identity="a/ü"),
    cut={"EWR": at("i1", 12), "JFK": at("i2", 0)},
    decided_cut={"EWR": at("i1", 13), "JFK": at("i2", 0)},
    forced_by=("LGA",),
    absent=("JFK",),
    single_region="fixed-buckets",
    savepoints=(
        SavepointView(name="s1", targets={"EWR": at("i1", 14)}),
        SavepointView(name="d1", drain=True),
    ),
    tables={
        "items": FurtherTableView(
            identifier="shop.items",
            identity="uuid",
            location="file:///items",
            decision=6,
            snapshot=SnapshotRef(id=4, identity="77"),
        )
    },
    watermark=-5,
    assignment=AssignmentView(number=3, regions=("EWR", "JFK", "LGA"), after=5),
    regions={
        "EWR": RegionView(
            phase="live",
            incarnation="i1",
            source_offsets='{"topic": "ü"}',
            watermark=1_357_034_400_000,
            heard=1_357_034_400_001,
            listeners={"tags": "7/ü"},
        ),
        "JFK": RegionView(
            phase="live",
            stalled=ProblemView(code="files-lost", message="Region JFK is stalled: files are lost."),
            refused=ProblemView(code="base-differs", message="why"),
            consecutive_fallbacks=2,
        ),
        "LGA": RegionView(idle=True),
    },
    listeners={
        "mark-done": ListenerView(
            type="webhook",
            decision=3,
            backlog=4,
            problem=ProblemView(code="listener-refused", message="ü"),
            stopped=True,
            handled_at=1_357_034_400_000,
        ),
        "tags": ListenerView(type="tags"),
    },
    conditions=(
        ConditionView(kind="stall", code="table-unfit", message='table "t" is away\nSee `sluicegate check`.'),
        ConditionView(kind="stall", code="files-lost", region="JFK", message="Region JFK is stalled."),
        ConditionView(kind="stall", code="table-unusable", table="items", message="The table items"),
    ),
    paused=True,
)


async def test_an_empty_store_knows_nothing(store: StateStore) -> None:
    await store.ping()
    assert await store.read("flights") is None
    assert await store.streams() == []


@pytest.mark.parametrize("written", [FULL, view(-1), view(0), view(2**53 - 1)])
async def test_a_view_is_read_as_it_was_written(store: StateStore, written: StreamView) -> None:
    assert await store.write(written)
    assert await store.read("flights") == written


async def test_a_newer_view_replaces_the_older_one_whole(store: StateStore) -> None:
    await store.write(FULL)
    newer = view(42)
    assert await store.write(newer)
    assert await store.read("flights") == newer


async def test_an_older_view_is_refused(store: StateStore) -> None:
    await store.write(FULL)
    assert not await store.write(view(40, decided=99))
    assert not await store.write(view(9))  # 9 is above 41 only as text
    assert await store.read("flights") == FULL


async def test_an_equal_revision_is_written_again(store: StateStore) -> None:
    await store.write(view(5))
    assert await store.write(view(5))
    moved = view(5, listeners={"tags": ListenerView(type="tags", decision=5)})
    assert await store.write(moved)
    assert await store.read("flights") == moved


async def test_streams_are_apart(store: StateStore) -> None:
    await store.write(view(5, "b"))
    assert await store.write(view(1, "a"))
    assert await store.write(view(2, "streams"))
    assert await store.streams() == ["a", "b", "streams"]
    assert await store.read("a") == view(1, "a")


async def test_all_views_are_read_at_once(store: StateStore) -> None:
    assert await store.read_all() == {}
    await store.write(FULL)
    for number in range(120):
        await store.write(view(number, f"s{number:03}"))
    found = await store.read_all()
    assert list(found) == ["flights", *(f"s{number:03}" for number in range(120))]
    assert (found["flights"], found["s119"]) == (FULL, view(119, "s119"))


async def test_a_removed_stream_starts_again(store: StateStore) -> None:
    await store.write(FULL)
    await store.write(view(1, "other"))
    await store.remove("flights")
    await store.remove("never seen")
    assert await store.read("flights") is None
    assert await store.streams() == ["other"]
    assert await store.write(view(0))
    assert await store.streams() == ["flights", "other"]


async def test_the_view_with_a_stamp_is_replaced_whatever_its_revision_is(store: StateStore) -> None:
    assert await store.stamp("flights") is None
    await store.write(FULL)
    stamp = await store.stamp("flights")
    assert stamp is not None
    assert stamp.revision == FULL.revision
    assert await store.replace(view(3), stamp)
    assert await store.read("flights") == view(3)
    assert await store.streams() == ["flights"]


@pytest.mark.parametrize("between", [view(41, decided=9, updated_at=1), view(87)])
async def test_a_view_that_was_written_after_the_stamp_stays(store: StateStore, between: StreamView) -> None:
    await store.write(FULL)
    stamp = await store.stamp("flights")
    assert stamp is not None
    await store.write(between)
    assert not await store.replace(view(3), stamp)
    assert await store.read("flights") == between
    await store.remove("flights")
    assert not await store.replace(view(3), stamp)
    assert await store.read("flights") is None


async def test_the_highest_of_racing_writes_stays(store: StateStore) -> None:
    outcomes = await asyncio.gather(*(store.write(view(i * 7 % 50)) for i in range(50)))
    assert await store.read("flights") == view(49)
    assert outcomes[7]  # 49, the highest


async def test_closing_may_be_repeated(store: StateStore) -> None:
    await store.close()
    await store.close()
