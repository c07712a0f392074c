"""The producer of a session, which notices that the broker takes nothing from it any more."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId


class SessionProducer(AIOKafkaProducer):  # type: ignore[misc]
    """Idempotent, acknowledged by all replicas.

    A message that is refused for good, or lost by the broker, leaves a gap in the sequence of its partition:
    from then on the client library's every message to it is refused. Only another producer helps.
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
            self._gap.exception()  # it is told here, also if nobody watches any more

    async def watch(self) -> None:
        """Wait for such a gap, and raise its KafkaError."""
        await asyncio.shield(self._gap)
