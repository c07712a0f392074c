"""The advised quota of the brokers: a client that floods the events topic delays itself, and nobody else."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.embedded import EmbeddedKafka
from sluicegate.embedded.ports import LOOPBACK, free_port
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, make_topics, read_records
from tests.integration.letters import home_of
from tests.integration.waiting import until
from tests.kafka_configs import kafka_configs

pytestmark = pytest.mark.kafka

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
RATE: Final = 1_048_576
"""Bytes a second of the advice."""
SIZE: Final = 100_000
FLOOD: Final = 6_000_000
"""Bytes, so that the flood is longer than its free part."""
FREE: Final = 3_000_000
"""Bytes that a client may send at once: two windows of a second, and the request that is over the quota."""
_PASSWORD: Final = "word-of-the-driver"  # noqa: S105
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def login() -> str:
    """Address at which clients have a name."""
    return f"{LOOPBACK}:{free_port()}"


@pytest.fixture
def broker(login: str) -> Iterator[EmbeddedKafka]:
    """A broker with the user `driver`, and with short windows of quotas."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_LOGIN} user_driver="{_PASSWORD}";',
        "quota.window.num": "2",
        "quota.window.size.seconds": "1",
    }
    with EmbeddedKafka(settings=settings, listeners=(f"SASL_PLAINTEXT://{login}",)) as kafka:
        yield kafka


def follow(bootstrap: str, log: Path) -> None:
    """Run the command of the page."""
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    (command,) = re.findall(r"`kafka-configs\.sh (--bootstrap-server kafka:9092 --alter [^`]+)`", text)
    assert f"producer_byte_rate={RATE}" in command
    told = kafka_configs(command.replace("kafka:9092", bootstrap), log)
    assert "Completed updating config for user driver" in told


class Flood:
    """Messages that are no events, sent as fast as the broker takes them."""

    def __init__(self, login: str, topic: str) -> None:
        self.sent = 0
        self.enough = asyncio.Event()
        self._login, self._home = login, {"topic": topic, "partition": home_of("flights")}

    async def run(self) -> None:
        """Send until it is enough, at least FLOOD bytes."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._login,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="driver",
            sasl_plain_password=_PASSWORD,
        )
        async with started(producer):
            while not self.enough.is_set() or self.sent * SIZE < FLOOD:
                await producer.send_and_wait(value=os.urandom(SIZE), **self._home)
                self.sent += 1


async def test_a_client_over_the_advised_quota_delays_itself_alone(
    broker: EmbeddedKafka, login: str, unique: str, tmp_path: Path
) -> None:
    topics = await make_topics(broker.bootstrap, unique)
    place = Place(broker.bootstrap, unique, topics, tmp_path, create_table(tmp_path))
    await asyncio.to_thread(follow, broker.bootstrap, tmp_path / "configs.log")
    flood = Flood(login, topics.events)
    async with running(place.settings()), place.job() as job:
        await job.register()
        flooding = asyncio.create_task(flood.run())
        # The neighbour is on the same partition, and has no quota.
        await until(lambda: flood.sent, lambda sent: sent * SIZE > FREE, by=flooding)
        for number in (1, 2):
            await job.run_batch([number])
            await job.committed([*range(1, number + 1)])
        assert not flooding.done()
        flood.enough.set()
        await flooding
        events = await read_records(broker.bootstrap, topics.events)
        times = [each.timestamp for each in events if len(each.value or b"") == SIZE]
        assert len(times) == flood.sent
        # The clock of the broker: it has taken no more than the quota allows.
        assert flood.sent * SIZE <= RATE * (max(times) - min(times)) / 1000 + FREE
        letters = await until(
            lambda: read_records(broker.bootstrap, topics.dead_letters),
            lambda found: len(found) == flood.sent,
        )
        assert all(len(each.value or b"") == SIZE for each in letters)
