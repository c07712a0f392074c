"""End offsets of partitions, requested on a separate connection."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.kafka.clients import start_client, stop_client


class EndOffsets:
    """Client for end offsets, with a connection of its own.

    A broker answers the requests of one connection in order, and holds a fetch without new records for half a
    second. On the consumer's connection, each request for an end offset would wait for that fetch.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._client: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def of(self, source: TopicPartition) -> int:
        """Return the offset after the last record of a partition. Raises KafkaError."""
        client = await self._connected()
        end: int = (await client.end_offsets([source]))[source]
        return end

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await stop_client(self._client)

    async def _connected(self) -> AIOKafkaConsumer:
        async with self._lock:
            if self._client is None:
                client = AIOKafkaConsumer(enable_auto_commit=False, **self._options)
                try:
                    await start_client(client)
                except BaseException:
                    await stop_client(client)
                    raise
                self._client = client
            return self._client
