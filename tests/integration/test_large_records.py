"""Source offsets of many regions in one state record: it is compressed, and a limit has a way out."""

import json
import random
import string
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.causes import CauseCode
from sluicegate.events.problems import Code
from sluicegate.kafka.clients import started
from sluicegate.kafka.producer import MessageTooLarge, SessionProducer
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.letters import conditions
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

SMALLEST = 64 << 10
"""Bytes: the smallest limit that the settings take, so that few regions reach it."""
REGIONS = ("r1", "r2", "r3", "r4")


def like_kafka(region: int) -> str:
    """Return offsets of 2,600 partitions, as a reader of Kafka may state them: nearly 60,000 characters."""
    drawn = random.Random(region)
    return json.dumps({f"orders-{number}": drawn.randrange(100_000) for number in range(2600)})


def without_pattern(region: int) -> str:
    return "".join(random.Random(region).choices(string.ascii_letters, k=60_000))


async def set_limits(place: Place, limit: int) -> None:
    """Alter the topics, as an operator does."""
    names = place.topics
    wanted = {"max.message.bytes": str(limit), "message.timestamp.type": "LogAppendTime"}
    large = {"max.message.bytes": str(4 * limit), "cleanup.policy": "delete"}
    configs = {
        names.events: wanted,
        names.commits: wanted,
        names.state: {**wanted, "cleanup.policy": "compact"},
        names.dead_letters: large,
    }
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        for topic, each in configs.items():
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, each)])


def limited(place: Place, limit: int) -> Settings:
    settings = place.settings(stall_after="1s")
    return settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"max_message_bytes": limit})}
    )


@asynccontextmanager
async def jobs(place: Place) -> AsyncIterator[list[Job]]:
    """One job for each region, before they register."""
    async with AsyncExitStack() as stack:
        named = [place.job(region=name, regions=REGIONS, incarnation=f"life-{name}") for name in REGIONS]
        yield [await stack.enter_async_context(job) for job in named]


async def write(each: Sequence[Job], offsets: Sequence[str]) -> None:
    """Register all regions, and complete a batch of each."""
    for number, job in enumerate(each):
        await job.register()
        await job.complete(await job.written(job.write_files([number])), source_offsets=offsets[number])


async def test_offsets_that_have_a_pattern_need_no_larger_limit(place: Place) -> None:
    await set_limits(place, SMALLEST)
    offsets = [like_kafka(region) for region in range(len(REGIONS))]
    async with jobs(place) as each:
        async with running(limited(place, SMALLEST)):
            await write(each, offsets)
            await each[0].committed([0, 1, 2, 3])
        async with running(limited(place, SMALLEST)):
            answers = [await job.begin(f"next-{job.region}") for job in each]
    assert [answer.source_offsets for answer in answers] == offsets


async def test_a_record_that_is_too_large_waits_for_higher_limits(place: Place) -> None:
    await set_limits(place, SMALLEST)
    offsets = [without_pattern(region) for region in range(len(REGIONS))]
    async with jobs(place) as each:
        async with running(limited(place, SMALLEST)) as service:
            await write(each, offsets)
            found = await until(lambda: [x for x in conditions(service) if x["code"] == Code.RETRYING])
            cause = found[0]["arguments"]["cause"]
            assert (cause["code"], cause["names"]) == (CauseCode.MESSAGE_TOO_LARGE, [place.topics.state])
            assert cause["number"] > cause["other"] == SMALLEST
            assert read_ids(place.table) == [0, 1, 2, 3], "the table has the rows, and nobody is told"
            told = await sluicegate(place, "status", HTTP__PORT=str(service.http_port))
            advice = (
                "Set max.message.bytes of the topics, and then kafka.max_message_bytes, to more than that"
            )
            assert advice in told
        await set_limits(place, 16 * SMALLEST)
        async with running(limited(place, 16 * SMALLEST)):
            await each[0].committed([0, 1, 2, 3])
            answers = [await job.begin(f"next-{job.region}") for job in each]
    assert [answer.source_offsets for answer in answers] == offsets


async def test_a_message_that_is_too_large_leaves_no_gap(place: Place) -> None:
    """Brokers would refuse it, and the partition would need another producer."""
    await set_limits(place, SMALLEST)
    producer = SessionProducer(
        SMALLEST, {place.topics.dead_letters: 2 * SMALLEST}, bootstrap_servers=place.bootstrap
    )
    async with started(producer):
        for topic, most in ((place.topics.state, SMALLEST), (place.topics.dead_letters, 2 * SMALLEST)):
            with pytest.raises(MessageTooLarge, match=topic):
                await producer.send_and_wait(topic, bytes(most), key=b"a", partition=0)
            for offset, size in enumerate((9, most - 200)):
                sent = await producer.send_and_wait(topic, bytes(size), key=b"a", partition=0)
                assert sent.offset == offset
