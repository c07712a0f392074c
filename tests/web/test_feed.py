"""The feed of the page on real topics, through the loss of its connection."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from sluicegate.coordinator.web.feed import KEPT, Feed
from sluicegate.events.encoding import encode_notification
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Committed, Notification, NotificationType
from sluicegate.kafka.clients import started
from tests.coordinator.web.test_history import at
from tests.integration.coordinator import settings_for
from tests.integration.job import PARTITIONS, make_topics
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def announce(bootstrap: str, topic: str, upto: int, after: int = 0) -> None:
    """Append the messages of commits."""
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(after + 1, upto + 1):
            body = Committed(decision=number, cut={"EWR": at(number)}, snapshot=None, watermark=None, files=1)
            found = Notification(f"n{number}", NotificationType.COMMITTED, "flights", "", "", body)
            key, value, headers = encode_notification(found, number)
            home = partition_of("flights", PARTITIONS)
            await producer.send_and_wait(topic, value, key=key, headers=headers, partition=home)


@pytest.mark.parametrize("error", [KafkaConnectionError("lost"), RuntimeError("a defect")])
async def test_a_feed_that_reads_again_has_each_cut_once(
    kafka_bootstrap: str, unique: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """More cuts are on the topic than are kept, so the older ones must not count as new."""
    topics = await make_topics(kafka_bootstrap, unique)
    await announce(kafka_bootstrap, topics.commits, KEPT + 20)
    monkeypatch.setattr("sluicegate.coordinator.web.feed.RETRY", 0.01)
    feed = Feed(settings_for(kafka_bootstrap, unique, {"flights": {"table": "/lake/flights"}}))
    newest = list(range(21, KEPT + 21))

    def decisions() -> list[int]:
        return [each.decision for each in feed.history.cuts("flights")]

    running = asyncio.create_task(feed.run())
    await until(decisions, lambda found: found == newest)
    take = Feed._take

    def fail(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(Feed, "_take", take)
        raise error

    monkeypatch.setattr(Feed, "_take", fail)
    # The message of one more commit meets the error, and is read again with the others.
    await announce(kafka_bootstrap, topics.commits, KEPT + 21, after=KEPT + 20)
    await until(decisions, lambda found: found[-1:] == [KEPT + 21])
    assert decisions() == [*newest[1:], KEPT + 21]
    await until(lambda: feed.reading, lambda problem: problem is None)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
