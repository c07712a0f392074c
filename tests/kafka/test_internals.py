"""Each private attribute of aiokafka that the product uses is there, and behaves as the product relies on."""

import ast
import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import OffsetAndMetadata

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.clients import patiently, started
from sluicegate.kafka.internals import (
    RecordBatch,
    abandon_client,
    client_of,
    encoded_records,
    fetch_committed,
    positions,
    send_admin_request,
    sender_ended,
)
from sluicegate.kafka.outages import LOGGERS, NOISE, ROUTINE
from sluicegate.kafka.producer import SessionProducer
from tests.integration.waiting import until

pytestmark = pytest.mark.seam

SOURCE = Path(aiokafka.__file__).parent


async def make_topic(bootstrap: str, name: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1)])
        # The answer comes before the broker shows the topic in its metadata.
        await until(
            lambda: admin.describe_topics([name]),
            lambda found: [each["leader"] >= 0 for each in found[0]["partitions"]] == [True, True],
        )


async def collected(left: "weakref.ref[Any]") -> None:
    """Wait until an object is collected; connections that close keep it for some turns of the loop."""
    await until(lambda: gc.collect() >= 0 and left() is None)


@pytest.fixture
async def topic(kafka_bootstrap: str, unique: str) -> str:
    """Make a topic with two partitions, and return its name."""
    await make_topic(kafka_bootstrap, unique)
    return unique


@pytest.fixture
async def consumer(kafka_bootstrap: str, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Give a consumer with a group of its own, which has no partitions yet."""
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka_bootstrap, group_id=topic, enable_auto_commit=False
    ) as started:
        yield started


@pytest.mark.kafka
async def test_connections_of_a_consumer_answer_requests(consumer: AIOKafkaConsumer, topic: str) -> None:
    client = client_of(consumer)
    assert isinstance(client, AIOKafkaClient)
    assert (await client.fetch_all_metadata()).partitions_for_topic(topic) == {0, 1}


@pytest.mark.kafka
async def test_positions_are_those_that_are_known(consumer: AIOKafkaConsumer, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert positions(consumer) == {}
    consumer.assign([first, second])
    consumer.seek(second, 3)
    assert positions(consumer) == {second: 3}, "nothing is awaited, so the first one is not known yet"
    assert await consumer.position(second) == 3


@pytest.mark.kafka
async def test_a_committed_offset_is_fetched_with_its_metadata(
    consumer: AIOKafkaConsumer, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([first, second])
    await consumer.commit({first: OffsetAndMetadata(2, "note")})
    assert await fetch_committed(consumer, first) == OffsetAndMetadata(2, "note")
    missing = await fetch_committed(consumer, second)
    assert missing is None or missing.offset < 0


@pytest.mark.kafka
@pytest.mark.parametrize("abandoned", [True, False])
async def test_an_error_of_the_group_task_is_reported_unless_the_client_is_abandoned(
    kafka_bootstrap: str,
    topic: str,
    abandoned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A captured record would keep the error, and so the task.
    caplog.set_level(logging.CRITICAL, "aiokafka.consumer.group_coordinator")
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_exception_handler", reported.append)
    await collected(await _fail_in_group(kafka_bootstrap, topic, abandoned))
    assert [each["message"] for each in reported] == (
        [] if abandoned else ["Task exception was never retrieved"]
    )


async def _fail_in_group(bootstrap: str, topic: str, abandon: bool) -> "weakref.ref[asyncio.Task[None]]":
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic)
    await consumer.start()
    consumer._coordinator.ensure_coordinator_known = _fail
    consumer.subscribe([topic])
    task: asyncio.Task[None] = consumer._coordinator._coordination_task
    await asyncio.wait({task})
    await consumer.stop()
    if abandon:
        abandon_client(consumer)
    return weakref.ref(task)


async def _fail() -> None:
    raise OSError("made to fail")


@pytest.mark.kafka
async def test_a_sender_that_fails_has_ended(kafka_bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"1")
        assert not sender_ended(producer)
        producer._sender._maybe_wait_for_pid = _fail
        with pytest.raises(KafkaError):
            await producer.send_and_wait(topic, b"2")
        assert sender_ended(producer)


@pytest.mark.kafka
@pytest.mark.parametrize("how", [{}, {"group_id": "tasks"}], ids=["alone", "in a group"])
async def test_an_abandoned_consumer_has_no_task(
    kafka_bootstrap: str, topic: str, how: dict[str, str]
) -> None:
    before = asyncio.all_tasks()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka_bootstrap, **how)
    await consumer.start()
    await until(consumer.assignment)
    await consumer.getmany(timeout_ms=10)
    assert asyncio.all_tasks() > before
    await asyncio.wait(abandon_client(consumer))
    # Tasks that wait for an event are cancelled by those that have ended.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert consumer._client._conns, "connections are kept here"
    assert not any(each.connected() for each in consumer._client._conns.values())


@pytest.mark.kafka
async def test_an_abandoned_producer_is_closed_without_its_brokers(
    own_kafka: EmbeddedKafka, unique: str
) -> None:
    await make_topic(own_kafka.bootstrap, unique)
    producer = AIOKafkaProducer(bootstrap_servers=own_kafka.bootstrap, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait(unique, b"1", partition=0)
    own_kafka.kill()
    sent = await producer.send(unique, b"2", partition=0)
    await asyncio.wait(abandon_client(producer))
    assert not sent.done(), "delivery was neither awaited nor failed"
    assert sender_ended(producer)
    await producer.stop()
    # An open producer or connection warns when it is collected, and a warning fails the test.
    left = weakref.ref(producer)
    del producer, sent
    await collected(left)


@pytest.mark.kafka
async def test_the_admin_client_sends_a_request_that_it_has_no_method_for(
    kafka_bootstrap: str, unique: str
) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        node = await patiently(lambda: admin.find_coordinator(unique))
        response = await send_admin_request(admin, HeartbeatRequest(unique, -1, ""), node)
    assert response.error_code == UnknownMemberIdError.errno


@pytest.mark.parametrize("compression", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_gives_its_records_uncompressed(compression: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    values = [b"first" * 100, b"second" * 100]
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1, key=None, value=value, headers=[])
    buffer, start, count = encoded_records(RecordBatch(bytes(builder.build())))
    assert count == 2
    assert [bytes(buffer).count(value, start) for value in values] == [1, 1]
    assert bytes(buffer).find(values[0], start) - start < 20, "the records begin there"


async def test_names_of_the_producer_of_a_session_are_its_own() -> None:
    theirs = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    ours = SessionProducer(1 << 20, bootstrap_servers="127.0.0.1:1")
    names = (vars(ours).keys() - vars(theirs).keys()) | {
        name for name in vars(SessionProducer) if not name.startswith("__")
    }
    sends = {"send", "send_and_wait"}
    assert {"_gap", "_largest", "_limits", "_look", "_refuse_too_large", "watch", *sends} == names
    assert {name for name in names if hasattr(theirs, name)} == sends
    for each in (ours, theirs):
        await each.stop()


def logged() -> Iterator[tuple[str, str]]:
    """Give each message that aiokafka's source logs, with the name of its logger."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        logger = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for call in calls:
            first = call.args[0]
            if ast.unparse(call.func) == "logging.getLogger" and isinstance(first, ast.Constant):
                logger = str(first.value)
        for call in calls:
            first = call.args[0]
            if ast.unparse(call.func).startswith("log.") and isinstance(first, ast.Constant):
                yield logger, str(first.value)


MESSAGES = list(logged())


@pytest.mark.parametrize("prefix", NOISE + ROUTINE)
def test_a_message_that_is_noise_is_logged_by_a_known_logger(prefix: str) -> None:
    found = {logger for logger, text in MESSAGES if text.startswith(prefix)}
    assert found, "no message begins so"
    assert found <= set(LOGGERS)
