"""Looks every few seconds if Kafka answers, and keeps the time of its last answer."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from sluicegate.coordinator.runtime.startup import absent
from sluicegate.coordinator.web.outages import Silence
from sluicegate.kafka.internals import sender_ended
from sluicegate.kafka.outages import KAFKA
from sluicegate.kafka.producer import SessionProducer

INTERVAL: Final = 3.0
"""Seconds between two looks, and for which an answer is awaited."""
_AWAY: Final = "Kafka does not answer: "


class Partition(Protocol):
    """A partition that this process is assigned."""

    @property
    def started(self) -> bool:
        """True once its state records are read."""
        ...

    async def end_offset(self) -> int:
        """Return the end offset of the log. Raises KafkaError."""
        ...


class KafkaWatch:
    """The last look at Kafka."""

    def __init__(self, events: str) -> None:
        """`events` is the name of the events topic."""
        self.away: str | None = None
        """Reason why nothing can be read during a session; None: there is none."""
        self._events = events
        self._answered = _now()

    async def run(
        self,
        producer: SessionProducer,
        consumer: AIOKafkaConsumer,
        runners: Callable[[], Sequence[Partition]],
    ) -> None:
        """Check that Kafka answers, until cancelled. Raises KafkaError if the producer has died."""
        self._answered = _now()
        while True:
            await asyncio.sleep(INTERVAL)
            if sender_ended(producer):
                raise KafkaError("the producer's sender has ended")
            try:
                async with asyncio.timeout(INTERVAL):
                    self.away = await self._lacks(consumer, runners())
                KAFKA.answered()
                self._answered = _now()
            except (KafkaError, TimeoutError) as error:
                KAFKA.trouble(repr(error))
                detail = (
                    f"no answer within {INTERVAL:g} s" if isinstance(error, TimeoutError) else repr(error)
                )
                self.away = f"{_AWAY}{detail}"

    def silence(self, trouble: str | None) -> Silence | None:
        """Return why nothing is read; `trouble` is the reason for which there is no session."""
        detail = self.away or trouble
        return None if detail is None else Silence(detail.removeprefix(_AWAY), self._answered)

    async def _lacks(self, consumer: AIOKafkaConsumer, runners: Sequence[Partition]) -> str | None:
        """Return the reason why nothing can be read although Kafka answers; None if there is none.

        Raises KafkaError or TimeoutError if Kafka does not answer.
        """
        started = [each for each in runners if each.started]
        if started:
            await started[0].end_offset()
            return None
        return None if self._events in await consumer.topics() else absent(self._events)


def _now() -> int:
    return time.time_ns() // 1_000_000
