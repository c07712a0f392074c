"""Retention on a real broker: records that nobody needs are deleted, and every stream recovers afterwards."""

import functools
import operator
import time
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.coordinator.core.state_record import StateRecord, decode_record, deletion_start, read_key
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import records
from sluicegate.events.problems import Code
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import read_ids, read_records
from tests.integration.letters import home_of, stalled
from tests.integration.metrics import metrics_of, samples
from tests.integration.waiting import until

DAY = 86_400
"""Seconds."""
pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the retention often."""
    monkeypatch.setattr(records, "INTERVAL", 0.2)


def settings_of(place: Place, *streams: str, window: str = "1s") -> Settings:
    options = {"janitor": {"grace": "500ms"}}
    return place.settings(*streams, options=options, replay_window=window)


async def begin_of(place: Place) -> int:
    """Return the first offset of the partition of `flights`."""
    source = TopicPartition(place.topics.events, home_of("flights"))
    async with AIOKafkaConsumer(bootstrap_servers=place.bootstrap) as consumer:
        found: int = (await consumer.beginning_offsets([source]))[source]
        return found


async def records_of(place: Place, stream: str) -> list[tuple[int | None, Any]]:
    """Return the records of a stream in the order of their writing, each with the offset of its key."""
    found = [(read_key(each.key.decode()), each) for each in await read_records(*_state(place))]
    return [(start, each) for (name, start), each in found if name == stream]


def _state(place: Place) -> tuple[str, str]:
    return place.bootstrap, place.topics.state


async def test_a_stream_recovers_from_its_base_record_after_a_zombie_wrote_an_older_one(place: Place) -> None:
    async with place.job() as job:
        async with running(settings_of(place)):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            await until(lambda: begin_of(place), lambda begin: begin > 2)
        await job.run_batch([2])
        older = next(each for start, each in await records_of(place, "flights") if start is None)
        record = decode_record("flights", older.value)
        assert isinstance(record, StateRecord)
        assert record.low_water < await begin_of(place)
        await job.producer.send_and_wait(
            place.topics.state, older.value, key=older.key, partition=older.partition
        )
        async with running(settings_of(place)) as service:
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])
            assert stalled(service) is None
            assert (await job.register()).accepted


async def test_a_new_stream_starts_on_a_log_that_was_deleted_for_others_and_one_with_a_past_does_not(
    place: Place,
) -> None:
    """A stream without any record has a past if the table has its decisions."""
    fresh = neighbour("flights", same=True)
    async with place.job() as job, place.job(fresh) as another:
        async with running(settings_of(place)):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            await until(lambda: begin_of(place), lambda begin: begin > 2)
        async with running(settings_of(place, "flights", fresh, window="1h")):
            assert (await another.register()).accepted
            await another.run_batch([10])
            await another.committed([1, 10])
        keys = {(each.key, each.partition) for each in await read_records(*_state(place))}
        for key, partition in keys:
            await job.producer.send_and_wait(place.topics.state, None, key=key, partition=partition)
        async with running(settings_of(place, "flights", fresh, window="1h")) as service:
            await until(lambda: stalled(service), lambda code: code is not None)
            assert stalled(service) == Code.TABLE_AHEAD
            # The whole log of this one is there: it is read again.
            await another.run_batch([11])
            await another.committed([1, 10, 11])
        assert read_ids(place.table) == [1, 10, 11]


@pytest.mark.seam
async def test_nothing_is_deleted_while_a_stream_has_no_state_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stream recover` deletes the record while a coordinator still runs."""
    begun: list[int] = []

    def noted(needed: Iterable[int], kept_from: int, begin: int) -> int | None:
        start = deletion_start(needed, kept_from, begin)
        begun.extend([] if start is None else [start])
        return start

    monkeypatch.setattr(records, "deletion_start", noted)
    async with place.job() as job, running(settings_of(place, window="5s")):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        newest = [each for start, each in await records_of(place, "flights") if start is None][-1]
        await job.producer.send_and_wait(place.topics.state, None, key=newest.key, partition=newest.partition)

        async def applied() -> bool:
            # A second pass began, so a first one ended.
            return await begin_of(place) > 0 or len(begun) > 2

        await until(applied)
        bases = [each for start, each in await records_of(place, "flights") if start is not None]
        assert await begin_of(place) == 0 or bases


async def test_former_base_records_are_deleted(place: Place) -> None:
    async with place.job() as job, running(settings_of(place)):
        await job.register()
        for number in (1, 2, 3):
            before = await begin_of(place)
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
            await until(lambda: begin_of(place), functools.partial(operator.lt, before))
        latest: dict[int, bytes | None] = {}

        async def kept() -> list[int]:
            for start, each in await records_of(place, "flights"):
                if start is not None:
                    latest[start] = each.value
            return [start for start, value in latest.items() if value is not None]

        found = await until(kept, lambda starts: len(latest) > 1 and len(starts) == 1)
        assert found == [max(latest)]


@pytest.mark.seam
async def test_what_a_stream_needs_stays_in_the_log(place: Place) -> None:
    """Files without a completion, of a stream that the coordinator does not have any more."""
    other = neighbour("flights", same=True)
    async with place.job() as job, place.job(other) as absent:
        async with running(settings_of(place, "flights", other, window="1h")):
            await absent.register()
            await absent.run_batch([10])
            await absent.committed([10])
            waiting = await absent.written(absent.write_files([11]))
            await job.register()
            await job.run_batch([1])
            await job.committed([1, 10])
        (held,) = [
            each.offset
            for each in await read_records(place.bootstrap, place.topics.events)
            if dict(each.headers)["ce_id"] == waiting.encode()
        ]
        async with running(settings_of(place)):
            await job.run_batch([2])
            await job.committed([1, 2, 10])
            assert 0 < await until(lambda: begin_of(place)) <= held
        async with running(settings_of(place, "flights", other)):
            await absent.complete(waiting)
            await absent.committed([1, 2, 10, 11])
            await until(lambda: begin_of(place), lambda begin: begin > held)


async def test_a_limit_of_the_topic_is_a_condition_before_it_deletes_what_is_needed(place: Place) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        # The broker deletes whole segments, some minutes later.
        limit = {"retention.ms": "2000", "message.timestamp.type": "LogAppendTime"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, place.topics.events, limit)])
    async with place.job() as job, running(settings_of(place, window="1h")) as service:
        await job.register()
        event = await job.written(job.write_files([1]))
        await until(lambda: stalled(service), lambda code: code == Code.RETENTION)
        assert read_ids(place.table) == []
        await job.complete(event)
        await job.committed([1])
        await until(lambda: stalled(service) is None)


async def test_the_age_of_what_is_needed_can_be_compared_with_the_limit(place: Place) -> None:
    """Files without a completion wait; the metrics show since when, and the limit."""
    source = place.topics.events
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        limit = {"retention.ms": f"{DAY}000", "message.timestamp.type": "LogAppendTime"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, source, limit)])
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        files = job.write_files([1])
        size = sum(each.size for each in files.files)
        written = await job.written(files)
        seen = await until(
            lambda: samples(service),
            lambda seen: seen.get("pending_files") == 1 and "oldest_needed" in str(seen),
        )
        assert seen["pending_bytes"] == size
        assert (
            abs(seen["oldest_needed_timestamp_seconds"] - time.time()) < DAY
        )  # time: compared with the time of the log
        text = await until(
            lambda: metrics_of(service), lambda text: "sluicegate_events_retention_seconds{" in text
        )
        assert f'sluicegate_events_retention_seconds{{topic="{source}"}} {DAY}.0' in text.splitlines()
        assert "sluicegate_kafka_up 1.0" in text.splitlines()
        numbers = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
        assert numbers["sluicegate_partitions_owned"] == numbers["sluicegate_events_partitions"] != "0.0"
        assert float(numbers["sluicegate_event_loop_lag_seconds_count"]) > 0
        await job.complete(written)
        await job.committed([1])
        seen = await until(lambda: samples(service), lambda seen: seen["pending_files"] == 0)
        assert (seen["pending_bytes"], seen["state_record_bytes"] > 100) == (0, True)
