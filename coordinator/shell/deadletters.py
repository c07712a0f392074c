"""Dead letters: what cannot be used, as it came, with the reason. Delivered before its offset is released."""

import asyncio
from typing import NamedTuple

import structlog
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from sluicegate.coordinator.metrics import Metrics
from sluicegate.events.pauses import spread

log = structlog.get_logger(__name__)

REASON_HEADER = "sluicegate-reason"
SOURCE_HEADER = "sluicegate-source"
LETTER_HEADER = "sluicegate-letter"
"""Of a mark that an operator leaves: which letter has been dealt with."""
DEALT_HEADER = "sluicegate-dealt-with"
"""Of such a mark: how."""
TOO_LARGE = b"too large for a dead letter; see where it stands"


Place = tuple[str, int, int]
"""Topic, partition, offset."""
_Headers = list[tuple[str, bytes | None]]
_Content = tuple[bytes | None, bytes | None, _Headers]


class _Letter(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: _Headers


class DeadLetters:
    """Sends in the background, in order, until each is acknowledged."""

    def __init__(self, topic: str, producer: AIOKafkaProducer, metrics: Metrics) -> None:
        self._topic = topic
        self._producer = producer
        self._metrics = metrics
        self._waiting: list[_Letter] = []
        self._seen: set[tuple[int, int]] = set()
        self._more = asyncio.Event()

    def put(self, record: ConsumerRecord, kind: str, reason: str) -> None:
        """Put a message aside; `kind` names the reason in a word for the metrics."""
        place = (record.topic, record.partition, record.offset)
        self._put(place, kind, reason, (record.key, record.value, list(record.headers)))

    def put_body(self, place: Place, body: bytes, kind: str, reason: str) -> None:
        """Put a body aside of whose message nothing else is at hand."""
        self._put(place, kind, reason, (None, body, []))

    def _put(self, place: Place, kind: str, reason: str, content: _Content) -> None:
        topic, partition, offset = place
        if (partition, offset) in self._seen:
            return
        self._seen.add((partition, offset))
        self._metrics.dead_letter(kind)
        source = f"{topic}/{partition}/{offset}"
        log.warning("dead letter", source=source, reason=reason)
        key, value, headers = content
        told = [(REASON_HEADER, reason.encode()), (SOURCE_HEADER, source.encode())]
        self._waiting.append(_Letter(partition, offset, key, value, [*headers, *told]))
        self._more.set()

    def first_waiting(self, partition: int) -> int | None:
        """The first offset of a partition whose letter is not delivered; it must not be released."""
        return min((letter.offset for letter in self._waiting if letter.partition == partition), default=None)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                letter = self._waiting[0]
                try:
                    # The client refuses a message that has neither key nor value.
                    value = b"" if letter.key is None and letter.value is None else letter.value
                    await self._producer.send_and_wait(
                        self._topic, value, key=letter.key, headers=letter.headers
                    )
                except MessageSizeTooLargeError:
                    # It stays in the log of events for as long as that is kept.
                    told = [
                        header for header in letter.headers if header[0] in (REASON_HEADER, SOURCE_HEADER)
                    ]
                    self._waiting[0] = letter._replace(key=None, value=TOO_LARGE, headers=told)
                    continue
                except KafkaError as error:
                    log.warning("dead letter not delivered yet", error=repr(error))
                    await asyncio.sleep(spread(1))
                    continue
                self._waiting.pop(0)
