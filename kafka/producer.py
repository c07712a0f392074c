"""Producer of a session, which detects a sequence gap that only a new producer can resolve."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    UnknownProducerId,
)

from sluicegate.events.problems import Cause, CauseCode

Headers = Sequence[tuple[str, bytes | None]]

_NONE: Final[Mapping[str, int]] = {}
_OVERHEAD: Final = 128
"""Bytes of a batch with one message, beside its key, value and headers; the headers' own lengths included."""


class MessageTooLarge(MessageSizeTooLargeError):  # type: ignore[misc]
    """A message exceeds the limit of its topic. It was not sent, or the broker has refused it."""

    def __init__(self, topic: str, limit: int, size: int | None = None) -> None:
        """`limit`: bytes of a message, by the settings; `size`: those of this one, None if it has fewer."""
        self.cause = Cause(code=CauseCode.MESSAGE_TOO_LARGE, names=(topic,), number=size, other=limit)
        super().__init__(f"a message is too large for the topic {topic}; the settings allow {limit} bytes")


class SessionProducer(AIOKafkaProducer):  # type: ignore[misc]
    """Idempotent producer whose messages are acknowledged by all in-sync replicas.

    A message that is permanently refused, or lost by the broker, leaves a gap in the sequence of its
    partition. After a gap, the client library fails every further message to that partition. Only a new
    producer helps. So what is too large is not sent.
    """

    def __init__(self, largest: int, limits: Mapping[str, int] = _NONE, **options: Any) -> None:
        """`largest`: bytes of a message in a topic; `limits`: the same, of topics with another limit."""
        most = max(largest, *limits.values()) if limits else largest
        super().__init__(acks="all", enable_idempotence=True, max_request_size=most + _OVERHEAD, **options)
        self._largest, self._limits = largest, limits
        self._gap: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Any:
        """See AIOKafkaProducer. Raises MessageTooLarge."""
        self._refuse_too_large(topic, value or b"", key or b"", headers or ())
        sending = await super().send(topic, value, key, partition, timestamp_ms, headers)
        sending.add_done_callback(self._look)
        return sending

    async def send_and_wait(self, topic: str, *message: Any, **more: Any) -> Any:
        """See AIOKafkaProducer. Raises MessageTooLarge."""
        try:
            return await super().send_and_wait(topic, *message, **more)
        except MessageTooLarge:
            raise
        except MessageSizeTooLargeError as error:
            # The topic takes less than the settings say.
            raise MessageTooLarge(topic, self._limits.get(topic, self._largest)) from error
        except TopicAuthorizationFailedError as error:
            raise TopicAuthorizationFailedError(f"grant this client WRITE on the topic {topic}") from error

    def _refuse_too_large(self, topic: str, value: bytes, key: bytes, headers: Headers) -> None:
        beside = len(key) + _OVERHEAD + sum(len(name) + len(text or b"") for name, text in headers)
        size = beside + len(value)
        limit = self._limits.get(topic, self._largest)
        if size > limit:
            raise MessageTooLarge(topic, limit, size)

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
