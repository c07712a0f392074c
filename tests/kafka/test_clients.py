"""A client leaves no connection and no task, wherever its start or its stop ends early."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka import clients
from sluicegate.kafka.clients import start_client, started, stop_client
from tests.integration.waiting import until


def open_connections() -> list[AIOKafkaConnection]:
    """Return the open connections of this event loop. Threads of other tests have clients in theirs."""
    loop = asyncio.get_running_loop()
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, AIOKafkaConnection) and each.connected() and each._loop is loop
    ]


Others = Callable[[], set[asyncio.Task[Any]]]


@pytest.fixture
async def others() -> Others:
    """Return a function that returns the tasks of the loop that the test has started and not ended."""
    before = asyncio.all_tasks()
    return lambda: asyncio.all_tasks() - before - {asyncio.current_task()}


@pytest.fixture
async def topic(kafka_bootstrap: str, unique: str) -> str:
    """Make a topic, and return its name."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        await admin.create_topics([NewTopic(name=unique, num_partitions=1, replication_factor=1)])
    return unique


async def rest(_: Any, __: str) -> None:
    """Leave a client as its start left it."""


async def fetch(consumer: AIOKafkaConsumer, topic: str) -> None:
    source = TopicPartition(topic, 0)
    consumer.assign([source])
    consumer.seek(source, 0)
    await consumer.getmany(timeout_ms=10)


async def join(consumer: AIOKafkaConsumer, topic: str) -> None:
    consumer.subscribe([topic])
    await until(consumer.assignment)


async def send(producer: AIOKafkaProducer, topic: str) -> None:
    await producer.send(topic, b"1", partition=0)


Use = Callable[[Any, str], Awaitable[None]]
USES: list[Any] = [
    pytest.param(AIOKafkaConsumer, rest, id="consumer"),
    pytest.param(AIOKafkaConsumer, fetch, id="consumer that fetches", marks=pytest.mark.matrix),
    pytest.param(AIOKafkaProducer, send, id="producer"),
    pytest.param(AIOKafkaAdminClient, rest, id="admin", marks=pytest.mark.matrix),
]


async def cancelled_at(step: int, work: Awaitable[None]) -> bool:
    """Cancel some work after so many steps of the loop. Return True if it had ended before."""
    task = asyncio.ensure_future(work)
    for _ in range(step):
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return ended


@pytest.mark.kafka
@pytest.mark.parametrize("make", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient])
async def test_no_connection_is_left_wherever_a_start_is_cancelled(
    make: Callable[..., Any], kafka_bootstrap: str, others: Others
) -> None:
    step, ended = 1, False
    while not ended:
        client = make(bootstrap_servers=kafka_bootstrap)
        ended = await cancelled_at(step, start_client(client))
        await stop_client(client)
        assert not open_connections(), f"cancelled at step {step}"
        assert not others(), f"cancelled at step {step}"
        step += 1 + step // 25
    assert step > 10, "a start takes some steps"


@pytest.mark.seam
@pytest.mark.kafka
@pytest.mark.parametrize(("make", "use"), USES)
async def test_no_connection_is_left_wherever_a_stop_is_cancelled(
    make: Callable[..., Any], use: Use, kafka_bootstrap: str, topic: str, others: Others
) -> None:
    step, ended = 1, False
    while not ended:
        client = make(bootstrap_servers=kafka_bootstrap)
        await start_client(client)
        await use(client, topic)
        ended = await cancelled_at(step, stop_client(client))
        assert not open_connections(), f"cancelled at step {step}"
        assert not others(), f"cancelled at step {step}"
        step += 1 + step // 25
    assert step > 2, "a stop takes some steps"


@pytest.mark.kafka
async def test_a_member_of_a_group_leaves_it_although_its_stop_is_cancelled(
    kafka_bootstrap: str, topic: str, others: Others
) -> None:
    step, ended = 1, False
    while not ended:
        member = AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap, group_id=topic)
        await start_client(member)
        await join(member, topic)
        ended = await cancelled_at(step, stop_client(member))
        assert not open_connections(), f"cancelled at step {step}"
        assert not others(), f"cancelled at step {step}"
        step += 1 + step // 4
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        (answer,) = await admin.describe_consumer_groups([topic])
    assert answer.groups[0][5] == [], "members of the group"


@pytest.mark.kafka
async def test_a_request_during_and_after_a_stop_leaves_nothing_open(
    kafka_bootstrap: str, topic: str
) -> None:
    source, step, ended = TopicPartition(topic, 0), 1, False
    while not ended:
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap)
        await start_client(consumer)
        asking = asyncio.ensure_future(consumer.end_offsets([source]))
        for _ in range(step):
            await asyncio.sleep(0)
        ended = asking.done()
        await stop_client(consumer)
        with suppress(KafkaError):
            await cancelled_at(100, asking)
        # Nobody answers this one: it would be tried again for the time of a request.
        assert not await cancelled_at(100, consumer.end_offsets([source]))
        assert not open_connections(), f"stopped at step {step}"
        step += 1 + step // 5


@pytest.mark.kafka
async def test_a_start_that_is_cancelled_while_the_broker_does_not_answer_leaves_nothing(
    own_kafka: EmbeddedKafka, others: Others
) -> None:
    step, ended = 1, False
    while not ended:
        client = AIOKafkaConsumer(bootstrap_servers=own_kafka.bootstrap)
        starting = asyncio.ensure_future(start_client(client))
        for _ in range(step):
            await asyncio.sleep(0)
        ended = starting.done()
        own_kafka.suspend()
        try:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            await stop_client(client)
            assert not open_connections(), f"cancelled at step {step}"
            assert not others(), f"cancelled at step {step}"
        finally:
            own_kafka.resume()
        step += 1 + step // 5


async def test_a_task_of_a_client_that_drops_a_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch, others: Others
) -> None:
    monkeypatch.setattr(clients, "_LAST_WORDS", 0.01)
    consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    consumer._client._sync_task = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    await stop_client(consumer, 0.01)
    assert not others()
