"""The main way: from events on a real Kafka to snapshots of a real table."""

from pathlib import Path

import pytest
from aiokafka import TopicPartition

from sluicegate.events.notifications import Committed, Notification
from sluicegate.events.partitioning import partition_of
from tests.integration.coordinator import running, settings_for
from tests.integration.job import PARTITIONS, Job, create_table, make_topics, read_ids
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def test_batches_of_one_region_become_snapshots(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topics = await make_topics(kafka_bootstrap, unique)
    table = create_table(tmp_path)
    settings = settings_for(kafka_bootstrap, unique, {"flights": {"table": table}})
    async with running(settings), Job(kafka_bootstrap, topics, "flights", table) as job:
        assert (await job.register()).accepted
        await job.run_batch([1, 2], [3])
        await job.committed([1, 2, 3])
        await job.run_batch([4])
        await job.committed([1, 2, 3, 4])
        found = await until(job.notifications, lambda seen: sum(_is_commit(each) for each in seen) == 2)
        bodies = [each.body for each in found if isinstance(each.body, Committed)]
        assert [body.decision for body in bodies] == [1, 2]
        assert bodies[-1].cut["r1"].checkpoint == 1


async def test_a_gap_in_the_producers_sequence_is_got_over(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    """As a message that the broker refused leaves it, or a broker that lost its newest ones."""
    topics = await make_topics(kafka_bootstrap, unique)
    table = create_table(tmp_path)
    settings = settings_for(kafka_bootstrap, unique, {"flights": {"table": table}})
    async with running(settings) as service, Job(kafka_bootstrap, topics, "flights", table) as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        assert service._links is not None
        home = TopicPartition(topics.events, partition_of("flights", PARTITIONS))
        service._links.producer._txn_manager.increment_sequence_number(home, 1)
        await job.run_batch([2])
        await job.committed([1, 2])


async def test_a_cut_waits_for_every_active_region(kafka_bootstrap: str, unique: str, tmp_path: Path) -> None:
    topics = await make_topics(kafka_bootstrap, unique)
    table = create_table(tmp_path)
    settings = settings_for(kafka_bootstrap, unique, {"flights": {"table": table}})
    regions = ("r1", "r2")
    async with (
        running(settings),
        Job(kafka_bootstrap, topics, "flights", table, "r1", regions) as first,
        Job(kafka_bootstrap, topics, "flights", table, "r2", regions, "q2") as second,
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


async def test_a_restarted_coordinator_goes_on_where_the_last_one_stood(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topics = await make_topics(kafka_bootstrap, unique)
    table = create_table(tmp_path)
    settings = settings_for(kafka_bootstrap, unique, {"flights": {"table": table}})
    async with Job(kafka_bootstrap, topics, "flights", table) as job:
        async with running(settings):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        await job.run_batch([3])
        assert read_ids(table) == [1]
        async with running(settings):
            await job.committed([1, 2, 3])
            await job.close()
            await until(job.notifications, lambda found: sum(_is_commit(each) for each in found) == 2)


def _is_commit(found: Notification) -> bool:
    return isinstance(found.body, Committed)
