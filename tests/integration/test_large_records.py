"""Large state records: they are compressed, the largest one passes, and one that is refused waits."""

import random
import string
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.coordinator.core.state_record import StateRecord, encode_record
from sluicegate.coordinator.stream.records import read_records
from sluicegate.events.models import MOST_REGIONS
from sluicegate.events.problems import CauseCode, Code
from sluicegate.kafka.clients import started
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.topics import STATE_MESSAGE_BYTES
from tests.golden.coordinator import STREAM
from tests.golden.largest_record import largest_record
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.letters import conditions
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

SMALLEST = 64 << 10
"""Bytes: a limit that few regions reach."""
REGIONS = ("r1", "r2", "r3", "r4")


def without_pattern(region: int) -> str:
    return "".join(random.Random(region).choices(string.ascii_letters, k=60_000))


async def set_limit(place: Place, limit: int) -> None:
    """Alter the topic of state records, as an operator does."""
    wanted = {
        "max.message.bytes": str(limit),
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "compact",
    }
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, place.topics.state, wanted)])


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


async def test_a_record_that_the_broker_refuses_waits_for_a_higher_limit(place: Place) -> None:
    offsets = [without_pattern(region) for region in range(len(REGIONS))]
    async with jobs(place) as each, running(place.settings(stall_after="1s")) as service:
        await set_limit(place, SMALLEST)
        await write(each, offsets)
        found = await until(lambda: [x for x in conditions(service) if x["code"] == Code.RETRYING])
        cause = found[0]["arguments"]["cause"]
        assert (cause["code"], cause["names"]) == (CauseCode.MESSAGE_TOO_LARGE, [place.topics.state])
        told = await sluicegate(place, "status", HTTP__PORT=str(service.http_port))
        assert f"Set its max.message.bytes to at least {STATE_MESSAGE_BYTES}" in told
        assert read_ids(place.table) == [0, 1, 2, 3], "the table has the rows, and nobody is told"
        await set_limit(place, STATE_MESSAGE_BYTES)
        await each[0].committed([0, 1, 2, 3])
        answers = [await job.begin(f"next-{job.region}") for job in each]
    assert [answer.source_offsets for answer in answers] == offsets


async def test_the_largest_record_passes_the_topic(place: Place) -> None:
    kafka, record = place.settings().kafka, largest_record(random.Random(1))
    options = kafka.client_options()
    async with started(SessionProducer(kafka.max_message_bytes, kafka.limits(), **options)) as producer:
        for number in range(2):
            value = encode_record(record.model_copy(update={"applied": number}))
            await producer.send_and_wait(place.topics.state, value, key=STREAM.encode(), partition=0)
    found = (await read_records(place.topics.state, 1, options, [STREAM], kafka.request_timeout))[STREAM]
    assert isinstance(found, StateRecord)
    assert (found.applied, len(found.state.regions)) == (1, MOST_REGIONS)
