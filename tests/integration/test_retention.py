"""Retention on a real broker: records that nobody needs are deleted, and every stream recovers afterwards."""

from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, UnsupportedVersionError
from structlog.testing import capture_logs

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import retention
from sluicegate.coordinator.stream.state_records import deletion_start, read_key
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import read_records
from tests.integration.letters import home_of
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the retention often."""
    monkeypatch.setattr(retention, "INTERVAL", 0.2)


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
    return [(key[1], each) for key, each in found if key is not None and key[0] == stream]


def _state(place: Place) -> tuple[str, str]:
    return place.bootstrap, place.topics.state


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

    monkeypatch.setattr(retention, "deletion_start", noted)
    async with place.job() as job, running(settings_of(place, window="5s")):
        await job.begin_with_a_commit()
        newest = [each for start, each in await records_of(place, "flights") if start is None][-1]
        await job.producer.send_and_wait(place.topics.state, None, key=newest.key, partition=newest.partition)

        async def applied() -> bool:
            # A second pass began, so a first one ended.
            return await begin_of(place) > 0 or len(begun) > 2

        await until(applied)
        bases = [each for start, each in await records_of(place, "flights") if start is not None]
        assert await begin_of(place) == 0 or bases


@pytest.mark.seam
@pytest.mark.parametrize(
    "lacks", [IncompatibleBrokerVersion, pytest.param(UnsupportedVersionError, marks=pytest.mark.matrix)]
)
async def test_brokers_that_delete_no_records_are_named_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, lacks: type[KafkaError]
) -> None:
    asked = 0

    async def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise lacks

    passes = 0
    limit = retention.Retention.limit

    async def counted(self: retention.Retention) -> int:
        nonlocal passes
        passes += 1
        return await limit(self)

    monkeypatch.setattr(AIOKafkaAdminClient, "delete_records", refuse)
    monkeypatch.setattr(retention.Retention, "limit", counted)
    with capture_logs() as logs:
        async with place.job() as job, running(settings_of(place)):
            await job.begin_with_a_commit()
            await until(lambda: asked)
            after = passes
            await until(lambda: passes > after + 2)
    assert asked == 1
    (named,) = [each for each in logs if each["event"].startswith("these brokers delete no records")]
    assert "several times replay_window" in named["remedy"]


@pytest.mark.seam
async def test_what_a_stream_needs_stays_in_the_log(place: Place) -> None:
    """Files without a completion, of a stream that the coordinator does not have any more."""
    other = neighbour("flights", same=True)
    async with place.job() as job, place.job(other) as absent:
        async with running(settings_of(place, "flights", other, window="1h")):
            await absent.register()
            await absent.commit([10], [10])
            waiting = await absent.written(absent.write_files([11]))
            await job.register()
            await job.commit([1], [1, 10])
        (held,) = [
            each.offset
            for each in await read_records(place.bootstrap, place.topics.events)
            if dict(each.headers)["ce_id"] == waiting.encode()
        ]
        async with running(settings_of(place)):
            await job.commit([2], [1, 2, 10])
            assert 0 < await until(lambda: begin_of(place)) <= held
        async with running(settings_of(place, "flights", other)):
            await absent.complete(waiting)
            await absent.committed([1, 2, 10, 11])
            await until(lambda: begin_of(place), lambda begin: begin > held)
