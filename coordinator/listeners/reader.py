"""Reads outcomes from the commits topic by offset, for listeners with a backlog."""

import asyncio
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.coordinator.stream.outcomes import Announced, outcome_of
from sluicegate.events.feed import read_notification
from sluicegate.events.notifications import Notification
from sluicegate.kafka.clients import start_client, stop_client
from sluicegate.kafka.fetching import read_batches
from sluicegate.kafka.topic_ids import topic_id

MOST_RECORDS = 500
POLL_MS = 500


class Piece(NamedTuple):
    """A part of the feed."""

    outcomes: list[Announced]
    next: int
    """Offset after the part."""
    begin: int
    """First offset that the topic still has."""
    end: int
    """Offset after the last record of the topic."""
    topic: str
    """Id of the topic; empty if the brokers do not give it."""


class Bounds(NamedTuple):
    """A partition of the feed."""

    begin: int
    end: int
    topic: str
    """Id of the topic; empty if the brokers do not give it."""


class CommitsReader:
    """One connection for all listeners of the process, used by one at a time."""

    def __init__(self, topic: str, options: dict[str, Any], patience: float) -> None:
        self._topic, self._options, self._patience = topic, options, patience
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def read(self, stream: str, partition: int, offset: int) -> Piece:
        """Return the outcomes of a stream in the next records from an offset on.

        Raises KafkaError, or TimeoutError if nothing comes although the topic has more.
        """
        source = TopicPartition(self._topic, partition)
        async with self._lock, asyncio.timeout(self._patience):
            consumer = await self._connected()
            begin, end, topic = await self._bounds(consumer, source)
            # An offset after the end: the topic was made again, and its offsets began at 0.
            at = begin if offset > end else max(offset, begin)
            found: list[Announced] = []
            if at >= end:
                return Piece(found, at, begin, end, topic)
            consumer.assign([source])
            consumer.seek(source, at)
            while await consumer.position(source) == at:
                reading = await read_batches(consumer, source, timeout_ms=POLL_MS, max_records=MOST_RECORDS)
                for record in reading.batches.get(source, []):
                    read = read_notification(record.headers, record.value)
                    if isinstance(read, Notification) and read.stream == stream:
                        outcome = outcome_of(read, record.timestamp)
                        if outcome is not None:
                            found.append(Announced(record.offset, outcome))
            return Piece(found, await consumer.position(source), begin, end, topic)

    async def bounds(self, partition: int) -> Bounds:
        """Return the offsets of a partition, and the topic's id. Raises KafkaError or TimeoutError."""
        source = TopicPartition(self._topic, partition)
        async with self._lock, asyncio.timeout(self._patience):
            return await self._bounds(await self._connected(), source)

    async def topic(self) -> str:
        """Return the id of the topic; empty if it is not known now. Raises KafkaError or TimeoutError."""
        async with self._lock, asyncio.timeout(self._patience):
            return await topic_id(await self._connected(), self._topic)

    async def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            await stop_client(self._consumer)

    async def _bounds(self, consumer: AIOKafkaConsumer, source: TopicPartition) -> Bounds:
        # The id comes first: a topic that is made again meanwhile is noticed by the next question.
        topic = await topic_id(consumer, self._topic)
        begin: int = (await consumer.beginning_offsets([source]))[source]
        end: int = (await consumer.end_offsets([source]))[source]
        return Bounds(begin, end, topic)

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **self._options)
            try:
                await start_client(consumer)
            except BaseException:
                await stop_client(consumer)
                raise
            self._consumer = consumer
        return self._consumer
