"""The main way: from events on a real Kafka to snapshots of a real table, whoever else runs."""

import asyncio
import json
from typing import Any

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from sluicegate.coordinator.observe.metrics import PREFIX
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import partition
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Committed, Notification
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.orders import die_at, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.seam
async def test_batches_of_one_region_become_snapshots(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        assert (await job.register()).accepted
        await job.run_batch([1, 2], [3])
        await job.committed([1, 2, 3])
        await job.commit([4], [1, 2, 3, 4])
        found = await until(job.notifications, lambda seen: sum(_is_commit(each) for each in seen) == 2)
        bodies = [each.body for each in found if isinstance(each.body, Committed)]
        assert [body.decision for body in bodies] == [1, 2]
        assert bodies[-1].cut["r1"].checkpoint == 1


@pytest.mark.seam
async def test_a_gap_in_the_producers_sequence_is_got_over(place: Place) -> None:
    """As a message that the broker refused leaves it, or a broker that lost its newest ones."""
    async with running(place.settings()) as service, place.job() as job:
        await job.begin_with_a_commit()
        assert service._links is not None
        home = TopicPartition(place.topics.events, partition_of("flights", PARTITIONS))
        service._links.producer._txn_manager.increment_sequence_number(home, 1)
        await job.commit([2], [1, 2])


@pytest.mark.seam
async def test_a_restarted_coordinator_goes_on_where_the_last_one_stood(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.begin_with_a_commit()
        await job.run_batch([2])
        await job.run_batch([3])
        assert read_ids(place.table) == [1]
        async with running(place.settings()):
            await job.committed([1, 2, 3])
            await job.close()
            await until(job.notifications, lambda found: sum(_is_commit(each) for each in found) == 2)


def _is_commit(found: Notification) -> bool:
    return isinstance(found.body, Committed)


async def test_a_logged_decision_is_executed_independent_of_the_limits(place: Place) -> None:
    """The limits are the proposer's alone: two coordinators with other ones commit the same."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
        body = job.write_files([1], [2], [3])
        await job.complete(await job.written(body))
        await die_at(place, "publish.before")
        assert read_ids(place.table) == []
        async with running(place.settings(options={"max_files_per_checkpoint": 1})):
            await job.committed([1, 2, 3])


def of_group(place: Place, group: str) -> Settings:
    settings = place.settings()
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"group_id": group})})


async def test_a_second_group_waits_until_the_first_has_no_members(place: Place) -> None:
    async with place.job() as job:
        async with running(of_group(place, f"{place.prefix}-other")):
            await job.begin_with_a_commit()
            async with running(place.settings(), ready=False) as second:
                reasons = await until(
                    second.unready, lambda seen: any("is served by" in each for each in seen)
                )
                told = next(each for each in reasons if "is served by" in each)
                assert f"the group {place.prefix}-other (of 1 now)" in told
                assert "stop those" in told
                assert "flights" not in second.status()["streams"]
                await job.commit([2], [1, 2])
        async with running(place.settings()):
            await job.commit([3], [1, 2, 3])


async def test_two_groups_that_began_together_notice_each_other_and_double_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before either has written a record."""

    async def nobody(*_: Any) -> None:
        """They look for each other too early."""

    monkeypatch.setattr(partition, "refuse_other_groups", nobody)
    with capture_logs() as logged:
        async with (
            place.job() as job,
            running(place.settings()) as one,
            running(of_group(place, f"{place.prefix}-other")) as other,
        ):
            await job.register()
            for number in range(1, 8):
                await job.commit([number], range(1, number + 1))
            await until(lambda: [*one.unready(), *other.unready()])
            seen = [*one.unready(), *other.unready()]
            assert any("decides for its streams, too" in each for each in seen)
    assert any("another group of coordinators decides" in str(line["event"]) for line in logged)


def counted(service: Service, outcome: str) -> int:
    line = f'{PREFIX}cuts_total{{outcome="{outcome}",stream="flights"}} '
    lines = service._metrics.render().decode().splitlines()
    return next((int(float(each.removeprefix(line))) for each in lines if each.startswith(line)), 0)


@pytest.mark.seam
@pytest.mark.redis
async def test_every_outcome_is_counted_and_shown(place: Place, redis_url: str) -> None:
    """With one fallback at most: partial, forced, partial, abandoned, partial."""
    regions = ("r1", "r2")
    options = {"partial": "allow", "alignment_timeout": "800ms", "max_consecutive_fallbacks": 1}
    redis = {"url": redis_url, "key_prefix": place.prefix}
    healthy = place.job(regions=regions)
    slow = place.job(regions=regions, region="r2", incarnation="q2")
    store = RedisStateStore(redis_url, prefix=place.prefix)
    async with running(place.settings(options=options, redis=redis)) as service, healthy, slow:
        await asyncio.gather(healthy.register(), slow.register())
        await asyncio.gather(healthy.run_batch([1]), slow.run_batch([2]))
        await healthy.committed([1, 2])
        await healthy.commit([3], [1, 2, 3])

        view = await until(lambda: store.read("flights"), lambda view: bool(view and view.forced_by))
        assert view is not None
        assert (view.forced_by, view.single_region) == (("r2",), None)
        assert view.regions["r2"].consecutive_fallbacks == 1
        assert view.cut["r2"] == slow.previous
        shown = json.loads(await sluicegate(place, "status", "--json"))["streams"][0]
        assert shown["forced_by"] == ["r2"]
        assert shown["regions"]["r2"]["consecutive_fallbacks"] == 1

        await asyncio.gather(healthy.run_batch([4]), slow.run_batch([5]))
        await healthy.committed([1, 2, 3, 4, 5])
        await healthy.commit([6], [1, 2, 3, 4, 5, 6])
        await healthy.commit([7], [1, 2, 3, 4, 5, 6, 7])
        wanted = {"full": 1, "forced": 1, "abandoned": 1, "partial": 3}
        await until(lambda: {name: counted(service, name) for name in wanted}, lambda found: found == wanted)
        history = await sluicegate(place, "history", "--stream", "flights")
        assert "abandoned: all regions had to move; behind: r2" in history
    await store.close()
