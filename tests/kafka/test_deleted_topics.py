"""A topic that is deleted under a consumer: few requests for metadata; reading continues when it is back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.clients import started
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

LINES = 20
MISSING = "not found in cluster metadata"


@pytest.fixture
async def admin(own_kafka: EmbeddedKafka) -> AsyncIterator[AIOKafkaAdminClient]:
    """Give the administration of a broker of the test's own, with one topic."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=own_kafka.bootstrap)) as client:
        await make(client)
        yield client


async def make(admin: AIOKafkaAdminClient) -> None:
    """Create the topic."""
    await admin.create_topics([NewTopic(name="log", num_partitions=1, replication_factor=1)])


class Times(logging.Handler):
    """The times of the lines about the missing topic."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if MISSING in record.getMessage():
            self.times.append(record.created)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Iterator[Times]:
    """Give the times of all lines of the client."""
    handler, logger = Times(), logging.getLogger("aiokafka.cluster")
    monkeypatch.setattr("sluicegate.kafka.clients.quiet_clients", lambda: None)
    monkeypatch.setattr(logger, "filters", [])
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def is_paced(times: Times) -> Callable[[], bool]:
    """Return True when LINES lines have come."""
    return lambda: len(times.times) > LINES


async def test_a_consumer_of_a_deleted_topic_asks_ten_times_a_second(
    own_kafka: EmbeddedKafka, admin: AIOKafkaAdminClient, times: Times
) -> None:
    source = TopicPartition("log", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=own_kafka.bootstrap, auto_offset_reset="earliest")
    async with started(consumer):
        consumer.assign([source])
        await consumer.position(source)
        await admin.delete_topics(["log"])
        await until(is_paced(times))
        assert times.times[LINES] - times.times[0] > 1.0, "a lower bound: a slow machine asks more rarely"
        await make(admin)
        reading = asyncio.ensure_future(consumer.getone())
        async with started(AIOKafkaProducer(bootstrap_servers=own_kafka.bootstrap)) as producer:
            await producer.send_and_wait("log", b"back")
        assert (await reading).value == b"back"
