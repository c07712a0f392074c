"""The embedded Kafka: what a client sees of it over its life."""

import socket
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.embedded import SHARED_BROKER_SETTINGS, EmbeddedKafka, StartError, cluster_id
from sluicegate.embedded.ports import LOOPBACK
from sluicegate.kafka.clients import started
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.kafka


async def create_topic(bootstrap: str, topic: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])


async def send(bootstrap: str, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, value)


async def first_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def test_a_record_goes_through_the_shared_kafka(kafka_bootstrap: str, unique: str) -> None:
    await create_topic(kafka_bootstrap, unique)
    await send(kafka_bootstrap, unique, b"one")
    assert await first_values(kafka_bootstrap, unique, 1) == [b"one"]


@pytest.mark.seam
async def test_a_restart_and_a_kill_keep_address_and_records(own_kafka: EmbeddedKafka, unique: str) -> None:
    bootstrap, before = own_kafka.bootstrap, own_kafka.pid
    await create_topic(bootstrap, unique)
    await send(bootstrap, unique, b"one")

    assert own_kafka.restart().bootstrap == bootstrap
    assert own_kafka.pid != before
    await send(bootstrap, unique, b"two")

    own_kafka.kill()
    assert not own_kafka.running
    assert cluster_id(LOOPBACK, own_kafka.port) is None
    own_kafka.restart()
    assert await first_values(own_kafka.bootstrap, unique, 2) == [b"one", b"two"]


async def test_the_broker_runs_with_the_shared_settings(own_kafka: EmbeddedKafka) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=own_kafka.bootstrap)) as admin:
        [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")])
    [resource] = answer.to_object()["resources"]
    effective = {entry["config_names"]: entry["config_value"] for entry in resource["config_entries"]}
    assert {key: effective.get(key) for key in SHARED_BROKER_SETTINGS} == dict(SHARED_BROKER_SETTINGS)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the states of threads in /proc")
def test_no_thread_runs_after_a_suspension(own_kafka: EmbeddedKafka) -> None:
    assert own_kafka._process is not None
    threads = Path(f"/proc/{own_kafka._process.pid}/task")
    for _ in range(20):
        own_kafka.suspend()
        states = [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads.iterdir()]
        own_kafka.resume()
        assert set(states) == {"T"}


def test_a_suspended_broker_accepts_connections_and_answers_nothing(own_kafka: EmbeddedKafka) -> None:
    own_kafka.suspend()
    assert own_kafka.running
    with socket.create_connection((LOOPBACK, own_kafka.port), timeout=BACKSTOP):
        assert cluster_id(LOOPBACK, own_kafka.port, timeout=0.3) is None  # time: it is frozen
    own_kafka.resume()
    assert cluster_id(LOOPBACK, own_kafka.port, timeout=BACKSTOP) is not None
    own_kafka.suspend()  # stop() must end a frozen broker, too


def test_a_given_directory_is_kept_and_a_temporary_one_is_removed(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kept") as kept, EmbeddedKafka() as temporary:
        identity = cluster_id(LOOPBACK, kept.port)
        removed = temporary.data_dir
        assert removed.is_dir()
        assert cluster_id(LOOPBACK, temporary.port) not in {None, identity}
    assert not removed.exists()
    with EmbeddedKafka(tmp_path / "kept") as again:
        assert cluster_id(LOOPBACK, again.port) == identity


def test_a_refused_setting_is_shown_with_the_log(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, settings={"log.retention.hours": "nonsense"})
    with pytest.raises(StartError, match="nonsense") as raised:
        kafka.start()
    assert str(kafka.log_file) in str(raised.value)
    assert "nonsense" in kafka.log_file.read_text(encoding="utf-8")
    assert not kafka.running


def test_a_taken_port_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as holder:
        kafka = EmbeddedKafka(tmp_path, port=holder.getsockname()[1])
        with pytest.raises(StartError, match="already in use"):
            kafka.start()
        assert not kafka.running
