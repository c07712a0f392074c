"""A stream whose topics were lost and that was adopted: its record, its base record, and later recoveries."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from sluicegate.coordinator.core.state_record import StateRecord, decode_record, read_key
from sluicegate.kafka.clients import started
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import make_topics, read_ids, read_records
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.test_replay import three_commits, verified
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
ADOPT = ("stream", "adopt", "--stream", "flights", "--from-table")


async def lose_topics(place: Place, *some: str) -> None:
    """Delete topics, all without a name, and make them again."""
    topics = place.topics
    names = [*some] or [topics.events, topics.commits, topics.state, topics.dead_letters]
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.delete_topics(names)
        await until(admin.list_topics, lambda there: not {*names} & {*there}, what="the end of the topics")
    await make_topics(place.bootstrap, place.prefix)


@pytest.mark.seam
async def test_an_adopted_stream_is_read_from_its_base_record_by_replay_and_recovery(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        at = job.previous
        await lose_topics(place)
        assert (await invoke_here(place, *ADOPT)).exit_code == 0
        records = await read_records(place.bootstrap, place.topics.state)
        assert [read_key(each.key.decode()) for each in records] == [("flights", 0), ("flights", None)]
        base = decode_record("flights", records[0].value)
        assert isinstance(base, StateRecord)
        assert base.state.regions["r1"].position == at
        job.incarnation, job.base = "q2", at
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
        status, found = await verified(place)
        assert (status, found["first"], found["last"]) == (0, 4, 4)
        # A lost record is made of the base record and the log.
        await job.producer.send_and_wait(
            place.topics.state, None, key=b"flights", partition=records[1].partition
        )
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.run_batch([5])
            await job.committed([1, 2, 3, 4, 5])
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


@pytest.mark.redis
@pytest.mark.parametrize("by", ["the coordinator", "the command"])
async def test_the_view_of_the_former_log_does_not_stay_in_redis(
    place: Place, redis_url: str, by: str
) -> None:
    store = RedisStateStore(redis_url, prefix=place.prefix)
    redis = {"url": redis_url, "key_prefix": place.prefix}
    async with place.job() as job:
        async with running(place.settings(redis=redis)):
            assert (await job.register()).accepted
            for number in range(1, 6):
                await job.run_batch([number])
                await job.committed([*range(1, number + 1)])
        before = await store.read("flights")
        assert before is not None
        at = job.previous
        await lose_topics(place)
        if by == "the command":
            named = {"REDIS__URL": redis_url, "REDIS__KEY_PREFIX": place.prefix}
            await sluicegate(place, *ADOPT, **named)
            assert await store.read("flights") is None
        else:
            assert (await invoke_here(place, *ADOPT)).exit_code == 0
            assert await store.read("flights") == before
        job.incarnation, job.base = "q2", at
        async with running(place.settings(redis=redis)):
            assert (await job.register()).accepted
            await job.run_batch([6])
            await job.committed([1, 2, 3, 4, 5, 6])

            async def shown() -> bool:
                view = await store.read("flights")
                return view is not None and view.committed == before.committed + 1

            await until(shown, what="the view of the new log")
        after = await store.read("flights")
    assert after is not None
    # Otherwise, the fence would not have refused it.
    assert after.revision < before.revision
    await store.close()
