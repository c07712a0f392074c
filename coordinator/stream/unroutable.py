"""Events that belong to no stream of their partition: sent to the dead letters, and reported to the owner."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Coroutine
from typing import Any

import structlog
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from sluicegate.coordinator.dead_letters.letterbox import Letterbox
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.tasks import end
from sluicegate.events.dead_letters import LetterCode
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, Event, EventType
from sluicegate.events.models import OpeningAnswered, StreamStalled
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.pauses import spread

log = structlog.get_logger(__name__)

RETRY = 1.0
FRESH = 600.0
"""Seconds for which a job may wait for the answer to an opening."""


class StrayEvents:
    """Unroutable events of one partition: unknown streams, and events on the wrong partition."""

    def __init__(self, partition: int, links: Links, letters: Letterbox) -> None:
        self._partition = partition
        self._links = links
        self._letters = letters
        self._first = self._since = 0
        self._owed: dict[str, str] = {}
        """Reason by stream, of stalls that are not in the log yet."""
        self._held: dict[str, int] = {}
        """By stream, the first offset that a pending stall is for; it holds back the release."""
        self._tasks: set[asyncio.Task[None]] = set()

    def skip_before(self, offset: int, since: int) -> None:
        """Skip events before the group's offset: they were handled before.

        A previous owner may have logged those before `since`.
        """
        self._first, self._since = offset, since

    def take(self, record: ConsumerRecord, envelope: Envelope) -> None:
        """Send an event to the dead letters, because its stream does not belong to this partition."""
        stream = envelope.stream
        if stream not in self._links.settings.streams:
            self._letters.put(
                record,
                LetterCode.UNKNOWN_STREAM,
                f"stream {stream} is not configured; add [streams.{stream}] to the settings and send the "
                "coordinators SIGHUP: what is still in the log is committed then",
            )
            self._refuse(record, envelope)
            return
        home = partition_of(stream, self._links.partitions.events)
        reason = (
            f"an event of stream {stream} stands on partition {self._partition}, offset {record.offset}, but "
            f"the stream's partition is {home}: the topic has grown, or a producer chooses itself. "
            f"Mend it, send the dead letter again, and resume: sluicegate resume --stream {stream}"
        )
        if record.offset >= self._first:
            # A stall must follow each such event in the log, also if an earlier stall was resumed.
            self._owed[stream] = reason
            if stream not in self._held:
                self._held[stream] = record.offset
                self._start(self._stall(stream, home))
        self._letters.put(record, LetterCode.WRONG_PARTITION, reason)

    def first_untold(self) -> int | None:
        """Return the first offset whose stall is not in the log; it must not be released."""
        return min(self._held.values(), default=None)

    async def stop(self) -> None:
        """Stop sending; the next owner reads the events again."""
        await end(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, record: ConsumerRecord, envelope: Envelope) -> None:
        """Refuse the opening of an unconfigured stream, while a job may wait for the answer."""
        fresh = time.time() - record.timestamp / 1000 < FRESH
        if envelope.type is not EventType.REGION_OPENED or record.offset < self._first or not fresh:
            return
        stream = envelope.stream
        reason = (
            f"stream {stream} is not configured on this coordinator; add [streams.{stream}] with its `table` "
            "to the coordinator's settings and send it SIGHUP, or correct the query's option `stream`; then "
            "start the query again"
        )
        # An event that is read again after a restart was logged before.
        tell = log.warning if record.offset >= self._since else log.debug
        tell(
            "opening refused", stream=stream, region=envelope.region, lineage=envelope.lineage, reason=reason
        )
        identity = hashlib.sha256(f"{stream}/unconfigured/{envelope.id}".encode()).hexdigest()[:32]
        answer = Envelope(identity, EventType.OPENING_ANSWERED, stream, envelope.region, envelope.lineage)
        body = OpeningAnswered(opening=envelope.id, accepted=False, reason=reason)
        self._start(self._answer(Event(answer, body), record.timestamp / 1000 + FRESH))

    async def _answer(self, event: Event, until: float) -> None:
        """Send an answer; retry while a job may wait for it."""
        message = encode(event)
        while time.time() < until:
            try:
                await self._links.producer.send_and_wait(
                    self._links.topics.commits,
                    message.value,
                    key=message.key,
                    partition=partition_of(event.envelope.stream, self._links.partitions.commits),
                    headers=message.headers,
                )
            except Exception as error:
                _tell("refusal not sent yet", event.envelope.stream, error)
                await asyncio.sleep(spread(RETRY))
            else:
                return

    async def _stall(self, stream: str, home: int) -> None:
        """Append a stall to the stream's own partition, so that its owner reads it."""
        while (reason := self._owed.pop(stream, None)) is not None:
            event = Event(
                Envelope(str(uuid.uuid4()), EventType.STREAM_STALLED, stream), StreamStalled(reason=reason)
            )
            message = encode(event)
            try:
                await self._links.producer.send_and_wait(
                    self._links.topics.events,
                    message.value,
                    key=message.key,
                    partition=home,
                    headers=message.headers,
                )
            except Exception as error:
                _tell("stall not logged yet", stream, error)
                self._owed.setdefault(stream, reason)
                await asyncio.sleep(spread(RETRY))
        del self._held[stream]


def _tell(what: str, stream: str, error: Exception) -> None:
    """Log the reason of a retry: nobody else reads the task's errors."""
    expected = isinstance(error, KafkaError)
    log.warning(what, stream=stream, error=str(error), exc_info=None if expected else error)
