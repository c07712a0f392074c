"""A state topic that takes long to read: the first outcome waits for the records of listeners."""

import os
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state_record import listener_key, read_listener_key
from sluicegate.embedded import EmbeddedKafka
from sluicegate.events.notifications import Notification, NotificationType, read_notification
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, make_topics, read_records
from tests.integration.test_listeners import announced, coordinator
from tests.integration.waiting import until, watched
from tests.integration.webhooks import config_with, hook, receiving
from tests.kafka_configs import kafka_configs

pytestmark = pytest.mark.kafka

RATE: Final = 1_000_000
"""Bytes a second that the coordinator may read with all connections other than that of its group."""
SIZE: Final = 50_000
OTHERS: Final = 80
"""Records of listeners of other streams. The coordinator reads them several times at its start."""


async def test_the_first_outcome_waits_for_records_that_are_read_slowly(
    own_kafka: EmbeddedKafka, unique: str, tmp_path: Path
) -> None:
    """The coordinator is killed while it starts, too: the next one has the same topic before it."""
    topics = await make_topics(own_kafka.bootstrap, unique)
    place = Place(own_kafka.bootstrap, unique, topics, tmp_path, create_table(tmp_path))
    quota = f"--alter --add-config consumer_byte_rate={RATE} --entity-type clients --entity-name sluicegate"
    kafka_configs(f"--bootstrap-server {own_kafka.bootstrap} {quota}", tmp_path / "configs.log")
    log = tmp_path / "log"
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
        await _fill(place)
        config = config_with(place, hook(place, receiver))
        for number in (1, 2):
            await job.run_batch([number])
        with coordinator(place, config, log) as first:
            await until(lambda: "partitions assigned" in log.read_text(), by=first, log=log)
        await job.run_batch([3])
        with coordinator(place, config, log) as second, watched(second):
            await job.committed([1, 2, 3])
            every = [*range(1, len([*(Path(place.table) / "snapshot").glob("snapshot-*")]) + 1)]
            await until(receiver.decisions, lambda found: sorted({*found}) == every, log=log)
            assert sorted({*(await announced(job)).values()}) == every
        assert receiver.hidden == []
        assert await _first_record(place) <= await _first_outcome(place)


async def _fill(place: Place) -> None:
    """Write records of listeners that the coordinator has no streams of."""
    async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
        for number in range(OTHERS):
            key = listener_key(f"other{number}", "hook", "owner").encode()
            await producer.send_and_wait(place.topics.state, os.urandom(SIZE), key=key)


async def _first_record(place: Place) -> int:
    """Return the append time of the first record of the stream's listener."""
    found = await read_records(place.bootstrap, place.topics.state)
    named = [
        (read_listener_key((each.key or b"").decode(errors="replace")), each.timestamp) for each in found
    ]
    first: int = min(time for key, time in named if key is not None and key[0] == "flights")
    return first


async def _first_outcome(place: Place) -> int:
    """Return the append time of the first commit on the commits topic."""
    found = await read_records(place.bootstrap, place.topics.commits)
    read = [(read_notification(each.headers, each.value), each.timestamp) for each in found]
    kind = NotificationType.COMMITTED
    first: int = min(time for each, time in read if isinstance(each, Notification) and each.type is kind)
    return first
