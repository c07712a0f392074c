"""Producer of a session, which detects a sequence gap that only a new producer can resolve."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId


class SessionProducer(AIOKafkaProducer):  # type: ignore[misc]
    """Idempotent producer whose messages are acknowledged by all in-sync replicas.

    A message that is permanently refused, or lost by the broker, leaves a gap in the sequence of its
    partition. After a gap, the client library fails every further message to that partition. Only a new
    producer helps.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(acks="all", enable_idempotence=True, **options)
        self._gap: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, *message: Any, **how: Any) -> Any:
        """See AIOKafkaProducer."""
        sending = await super().send(*message, **how)
        sending.add_done_callback(self._look)
        return sending

    def _look(self, sent: asyncio.Future[Any]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if self._gap.done():
            return
        if isinstance(error, OutOfOrderSequenceNumber | InvalidProducerEpoch | UnknownProducerId):
            self._gap.set_exception(error)
            self._gap.exception()  # marked as retrieved, or asyncio would log it if nothing watches

    async def watch(self) -> None:
        """Wait for a sequence gap, and raise its KafkaError."""
        await asyncio.shield(self._gap)
