"""Reads the ends of the commits topic and of the dead-letter topic, and follows both."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.history import History
from sluicegate.coordinator.web.letters import Letters
from sluicegate.coordinator.web.model import Cut, DeadLetter
from sluicegate.coordinator.web.outages import Watched
from sluicegate.events.codec import Flaw
from sluicegate.events.feed import read_notification
from sluicegate.kafka.clients import started
from sluicegate.kafka.fetching import read_on
from sluicegate.kafka.pauses import spread
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import partitions_of

log = structlog.get_logger(__name__)

TAIL: Final = 5_000
"""Messages before the end of each partition that are read at the start."""
PIECE: Final = 200
"""Messages that are read between two turns of the event loop."""
RETRY: Final = 2.0
POLL_MS: Final = 500
_READING: Final = "the history of commits is being read"


class Feed:
    """The newest cuts and dead letters of the whole deployment. Nothing is decided from them."""

    def __init__(self, settings: Settings) -> None:
        self.history = History()
        self.letters = Letters()
        self.reading: str | None = _READING
        """Sentence while the ends of the topics are read for the first time; None: they were read."""
        self.watched = Watched()
        self.listener: Callable[[str, Cut | DeadLetter], None] = lambda *_: None
        """Told of each new cut with its stream, and of each letter that is new or was dealt with."""
        self._settings = settings

    async def run(self) -> None:
        """Read until cancelled. An error of Kafka is reported, and the reading begins again."""
        while True:
            try:
                await self._follow()
            except (KafkaError, ReplayRefused, TimeoutError, OSError) as error:
                self.watched.failed(repr(error))
                log.debug("history not read", error=repr(error))
            except Exception as error:
                # The page lacks it, and nothing else depends on it.
                self.watched.failed(repr(error))
                log.exception("history not read, it is tried again")
            await asyncio.sleep(spread(RETRY))

    async def _follow(self) -> None:
        names = self._settings.kafka.topic_names()
        consumer = AIOKafkaConsumer(
            enable_auto_commit=False, auto_offset_reset="earliest", **self._settings.kafka.client_options()
        )
        async with started(consumer):
            sources = [
                TopicPartition(topic, number)
                for topic in (names.commits, names.dead_letters)
                for number in await partitions_of(consumer, topic)
            ]
            # The ends are read again, and what was read before would count as new.
            self.history, self.letters = History(), Letters()
            self.reading = _READING
            consumer.assign(sources)
            ends = await consumer.end_offsets(sources)
            for source, begin in (await consumer.beginning_offsets(sources)).items():
                consumer.seek(source, max(begin, ends[source] - TAIL))
            while True:
                read = await read_on(consumer, timeout_ms=POLL_MS, max_records=PIECE)
                for source, records in read.items():
                    self._take(records, letters=source.topic == names.dead_letters)
                if self.reading is not None and await self._at(consumer, ends):
                    self.reading = None
                if self.reading is None:
                    self.watched.answered()
                await asyncio.sleep(0)

    async def _at(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
        return all([await consumer.position(source) >= end for source, end in ends.items()])

    def _take(self, records: list[ConsumerRecord], *, letters: bool) -> None:
        for record in records:
            if letters:
                if (letter := self.letters.add(record)) is not None:
                    self.listener(letter.stream or "", letter)
                continue
            read = read_notification(record.headers, record.value)
            if not isinstance(read, Flaw) and (cut := self.history.add(read, record.timestamp)) is not None:
                self.listener(read.stream, cut)
