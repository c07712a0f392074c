"""The connections of one session: opened for a stack that closes them within a bound, whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)

from sluicegate.coordinator.dead_letters.sending import DeadLetters
from sluicegate.coordinator.runtime.startup import make_store
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.links import Links, Partitions
from sluicegate.coordinator.telemetry.metrics import Metrics
from sluicegate.kafka.bodies import BodyFetcher, Budget
from sluicegate.kafka.ends import EndOffsets
from sluicegate.kafka.internals import abandon_producer, discard_coordination_error
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.starting import start_client
from sluicegate.kafka.topics import DEAD_LETTER_EXTRA_BYTES, TopicNames
from sluicegate.lakes.threads import CommitThreads

log = structlog.get_logger(__name__)

PATIENCE: Final = 2.0
"""Seconds that each connection may take to close."""
HEARTBEAT_MS: Final = 500
FETCH_WAIT_MS: Final = 100
"""Longest time for which a broker may hold a fetch without records.

aiokafka has one fetch in flight for each broker. A fetch of quiet partitions delays a partition that was just
assigned, or that was paused while its records were processed.
"""
METADATA_MS: Final = 30_000
FORBIDDEN: Final = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
"""Errors that new connections do not cure."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Forwards the rebalances of the group, with numbers of partitions."""

    def __init__(
        self, revoke: Callable[[list[int]], Awaitable[None]], assign: Callable[[list[int]], None]
    ) -> None:
        self._revoke = revoke
        self._assign = assign

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoke([source.partition for source in revoked])

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._assign([source.partition for source in assigned])


async def open_links(
    settings: Settings, topics: TopicNames, counts: Partitions, metrics: Metrics, stack: AsyncExitStack
) -> Links:
    """Connect everything that the streams share. Raises KafkaError."""
    options = settings.kafka.client_options()
    # The broker enforces the limit of each topic; that of the dead letters is the largest.
    largest = settings.kafka.max_message_bytes + DEAD_LETTER_EXTRA_BYTES
    producer = SessionProducer(max_request_size=largest, **options)
    stack.push_async_callback(_close_producer, producer)
    await start_client(producer)
    fetcher = BodyFetcher(topics.events, options, settings.kafka.request_timeout)
    stack.push_async_callback(partial(_close_soon, "fetcher", fetcher.close))
    ends = EndOffsets(options)
    stack.push_async_callback(partial(_close_soon, "end offsets", ends.close))
    store = make_store(settings)
    if store is not None:
        stack.push_async_callback(store.close)
    threads = CommitThreads(settings.commit_threads)
    stack.callback(threads.shutdown)
    return Links(
        settings=settings,
        topics=topics,
        partitions=counts,
        producer=producer,
        fetcher=fetcher,
        ends=ends,
        store=store,
        threads=threads,
        budget=Budget(settings.memory.body_budget),
        dead_letters=DeadLetters(
            topics.dead_letters,
            producer,
            fetcher,
            metrics,
            {**options, "max_partition_fetch_bytes": 2 * largest},
            settings.kafka.request_timeout,
            largest,
        ),
        metrics=metrics,
    )


async def open_consumer(settings: Settings, client_id: str, stack: AsyncExitStack) -> AIOKafkaConsumer:
    """Connect a member of the group that is not subscribed yet. Raises KafkaError."""
    kafka = settings.kafka
    session = round(kafka.session_timeout * 1000)
    consumer = AIOKafkaConsumer(
        group_id=kafka.group_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        session_timeout_ms=session,
        # By heartbeats a member hears that others have come or gone, so they decide how soon it takes over.
        heartbeat_interval_ms=max(100, min(session // 5, HEARTBEAT_MS)),
        # A topic that was created again is seen this late; nothing else tells.
        metadata_max_age_ms=METADATA_MS,
        max_poll_interval_ms=max(300_000, session * 10),
        fetch_max_bytes=64 << 20,
        max_partition_fetch_bytes=8 << 20,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        **{**kafka.client_options(), "client_id": client_id},
    )
    stack.push_async_callback(_close_consumer, consumer)
    await start_client(consumer)
    return consumer


async def _close_soon(what: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close something; what does not close in time is left behind."""
    # A task of its own: the client's own tasks, cancelled by it, must not look like our cancellation.
    closing = asyncio.ensure_future(close())
    await asyncio.wait({closing}, timeout=PATIENCE)
    if not closing.done():
        closing.cancel()
        await asyncio.wait({closing}, timeout=PATIENCE)
        log.warning("left behind, as it does not close", what=what, seconds=PATIENCE)
    if closing.done() and not closing.cancelled() and (error := closing.exception()) is not None:
        log.warning("not closed cleanly", what=what, error=repr(error))


async def _close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Leave the group and close."""
    await _close_soon("consumer", consumer.stop)
    discard_coordination_error(consumer)


async def _close_producer(producer: AIOKafkaProducer) -> None:
    """Deliver what can be delivered soon, give the rest up, and close."""
    try:
        async with asyncio.timeout(PATIENCE):
            await producer.flush()
    except TimeoutError:
        log.warning("messages not delivered: the brokers do not answer")
        await _close_soon("producer", partial(abandon_producer, producer))
    else:
        await _close_soon("producer", producer.stop)
