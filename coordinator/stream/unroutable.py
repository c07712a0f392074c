"""Events that belong to no stream of their partition: dead letters, and answers to their registrations."""

import asyncio
import hashlib
import time

import structlog
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from sluicegate.coordinator.dead_letters.letterbox import Letterbox
from sluicegate.coordinator.stream.appending import announce
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.tasks import end
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.notifications import Notification, NotificationType, RegistrationAnswered
from sluicegate.events.partitioning import partition_of
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.pauses import spread

log = structlog.get_logger(__name__)

RETRY = 1.0
FRESH = 600.0
"""Seconds for which a job may wait for the answer to a registration."""


class UnroutableEvents:
    """Unroutable events of one partition: unknown streams, and events on the wrong partition.

    An event on the wrong partition is lost to its stream until somebody sends its dead letter again. Until
    then, its checkpoint is not sealed, so nothing after it is committed.
    """

    def __init__(self, partition: int, links: Links, letters: Letterbox) -> None:
        self._partition = partition
        self._links = links
        self._letters = letters
        self._first = self._since = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def skip_before(self, offset: int, since: int) -> None:
        """Skip events before the group's offset: they were handled before.

        A previous owner may have logged those before `since`.
        """
        self._first, self._since = offset, since

    def apply(self, record: ConsumerRecord, envelope: Envelope) -> None:
        """Send an event to the dead letters, and refuse a registration."""
        problem = self._problem(envelope.stream, envelope.id)
        self._letters.put(record, problem, envelope.stream)
        fresh = time.time() - record.timestamp / 1000 < FRESH
        if envelope.type is EventType.REGION_REGISTERED and record.offset >= self._first and fresh:
            self._refuse(record, envelope, problem)

    def put(self, record: ConsumerRecord, stream: str) -> None:
        """Send a record to the dead letters that only a newer release can read; nobody here waits for it."""
        self._letters.put(record, self._problem(stream), stream)

    async def stop(self) -> None:
        """Stop sending; the next owner reads the events again."""
        await end(self._tasks)

    def _problem(self, stream: str, event: str | None = None) -> Problem:
        if stream not in self._links.settings.streams:
            return Problem(code=Code.UNKNOWN_STREAM, event=event)
        home = partition_of(stream, self._links.partitions.events)
        return Problem(code=Code.WRONG_PARTITION, number=home, other=self._partition, event=event)

    def _refuse(self, record: ConsumerRecord, envelope: Envelope, problem: Problem) -> None:
        """Refuse a registration, while a job may wait for the answer."""
        stream = envelope.stream
        reason = format_problem(problem, stream)
        answer = RegistrationAnswered(
            registration=envelope.id, accepted=False, problem=problem, reason=reason
        )
        # An event that is read again after a restart was logged before.
        tell = log.warning if record.offset >= self._since else log.debug
        tell(
            "registration refused",
            stream=stream,
            region=envelope.region,
            incarnation=envelope.incarnation,
            code=problem.code,
            reason=reason,
        )
        identity = hashlib.sha256(f"{stream}/{problem.code}/{envelope.id}".encode()).hexdigest()[:32]
        found = Notification(
            identity,
            NotificationType.REGISTRATION_ANSWERED,
            stream,
            envelope.region,
            envelope.incarnation,
            answer,
        )
        task = asyncio.create_task(self._answer(found, record.timestamp / 1000 + FRESH))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Notification, until: float) -> None:
        """Send an answer; retry while a job may wait for it."""
        while time.time() < until:
            try:
                await announce(answer, self._links)
            except Exception as error:
                # Nobody else reads the errors of this task.
                trace = None if isinstance(error, KafkaError) else error
                log.warning("refusal not sent yet", stream=answer.stream, error=str(error), exc_info=trace)
                await asyncio.sleep(spread(RETRY))
            else:
                return
