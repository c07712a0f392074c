"""The main way: from events on a real Kafka to snapshots of a real table."""

import pytest
from aiokafka import TopicPartition

from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Committed, Notification
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


async def test_batches_of_one_region_become_snapshots(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        assert (await job.register()).accepted
        await job.run_batch([1, 2], [3])
        await job.committed([1, 2, 3])
        await job.run_batch([4])
        await job.committed([1, 2, 3, 4])
        found = await until(job.notifications, lambda seen: sum(_is_commit(each) for each in seen) == 2)
        bodies = [each.body for each in found if isinstance(each.body, Committed)]
        assert [body.decision for body in bodies] == [1, 2]
        assert bodies[-1].cut["r1"].checkpoint == 1


async def test_a_gap_in_the_producers_sequence_is_got_over(place: Place) -> None:
    """As a message that the broker refused leaves it, or a broker that lost its newest ones."""
    async with running(place.settings()) as service, place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        assert service._links is not None
        home = TopicPartition(place.topics.events, partition_of("flights", PARTITIONS))
        service._links.producer._txn_manager.increment_sequence_number(home, 1)
        await job.run_batch([2])
        await job.committed([1, 2])


async def test_a_cut_waits_for_every_active_region(place: Place) -> None:
    regions = ("r1", "r2")
    async with (
        running(place.settings()),
        place.job(region="r1", regions=regions) as first,
        place.job(region="r2", regions=regions, incarnation="q2") as second,
    ):
        await first.register()
        await second.register()
        await first.run_batch([1])
        await first.run_batch([2])
        await second.run_batch([3])
        await first.committed([1, 2, 3])
        await first.run_batch([4])
        await second.heartbeat(idle=True)
        await first.committed([1, 2, 3, 4])


async def test_a_restarted_coordinator_goes_on_where_the_last_one_stood(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        await job.run_batch([3])
        assert read_ids(place.table) == [1]
        async with running(place.settings()):
            await job.committed([1, 2, 3])
            await job.close()
            await until(job.notifications, lambda found: sum(_is_commit(each) for each in found) == 2)


def _is_commit(found: Notification) -> bool:
    return isinstance(found.body, Committed)
