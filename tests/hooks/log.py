"""A small stand-in for the coordinator: it reads the log whole, and answers registrations."""

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.events.codec import read_files, read_record
from sluicegate.events.encoding import encode_notification
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import Body, CheckpointCompleted, FilesWritten, RegionRegistered
from sluicegate.events.notifications import Notification, NotificationType, RegistrationAnswered
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from sluicegate.writer_hooks.region import Event
from tests.hooks.replica import Judges
from tests.integration.waiting import Source, wait_until, watched

PARTITIONS = 3
B = TypeVar("B", bound=Body)


class Log:
    """All events of one topic prefix, in a thread of its own.

    The replica of each stream answers its registrations. `answer` may take its place: the registration then
    has no effect.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.names = TopicNames(prefix)
        self.events: list[Event] = []
        self._carried: dict[str, FilesWritten] = {}
        """By id, the files of completions that carry some."""
        self.partitions: set[int] = set()
        self.judges = Judges()
        self.answer: Callable[[Event], RegistrationAnswered | None] | None = None
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)

    def __enter__(self) -> "Log":
        self._thread.start()
        wait_until(self._ready.is_set, by=self._thread, what="the connections of the log")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        wait_until(lambda: not self._thread.is_alive(), what="the connections' end")

    def of(self, kind: type[B], incarnation: str | None = None) -> list[tuple[Envelope, B]]:
        """The events with bodies of that kind, in the order of the log; also the files of completions."""
        return [
            (event.envelope, body)
            for event in list(self.events)
            for body in (event.body, self._carried.get(event.envelope.id))
            if isinstance(body, kind) and incarnation in (None, event.envelope.incarnation)
        ]

    def registrations(self) -> list[tuple[Envelope, RegionRegistered]]:
        """The registrations that are no probes."""
        return [each for each in self.of(RegionRegistered) if not each[1].probe]

    def probes(self) -> list[tuple[Envelope, RegionRegistered]]:
        """The registrations that change nothing."""
        return [each for each in self.of(RegionRegistered) if each[1].probe]

    def wait(
        self,
        condition: Callable[[], object],
        missing: str,
        by: Source | None = None,
        log_file: Path | None = None,
    ) -> None:
        """Wait until the log has what is looked for; `by` is who should append it, with its log file."""
        with watched(self._thread):
            wait_until(
                lambda: (bool(condition()), self.kinds()),
                lambda seen: seen[0],
                by=by,
                log=log_file,
                what=missing,
            )

    def wait_completed(self, checkpoint: int) -> None:
        """Wait until the log has been read up to the completion of a checkpoint."""
        self.wait(
            lambda: checkpoint in [envelope.checkpoint for envelope, _ in self.of(CheckpointCompleted)],
            f"no completion of {checkpoint}",
        )

    def kinds(self) -> list[str]:
        return [f"{event.envelope.type}@{event.envelope.checkpoint}" for event in list(self.events)]

    def named_files(self) -> dict[int, list[FilesWritten]]:
        """The bodies that each checkpoint's first completion names."""
        written = {envelope.id: body for envelope, body in self.of(FilesWritten)}
        named: dict[int, list[FilesWritten]] = {}
        for envelope, body in self.of(CheckpointCompleted):
            named.setdefault(envelope.checkpoint, [written[event] for event in body.events])
        return named

    async def _work(self) -> None:
        await ensure_topics(self.bootstrap, topic_specs(self.names, partitions=PARTITIONS))
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        async with started(consumer), started(producer):
            consumer.assign([TopicPartition(self.names.events, at) for at in range(PARTITIONS)])
            self._ready.set()
            while not self._stop.is_set():
                for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                    self.partitions.add(partition.partition)
                    for record in records:
                        reading = read_record(record.offset, record.timestamp, record.headers, record.value)
                        assert reading.record is not None, reading.flaw
                        envelope, body = reading.record.envelope, reading.record.body
                        if envelope.writer:
                            files = read_files(envelope, record.value)
                            assert isinstance(files, FilesWritten), files
                            if envelope.type is EventType.FILES_WRITTEN:
                                body = files
                            else:
                                self._carried[envelope.id] = files
                        assert body is not None, reading.flaw
                        await self._answer(Event(envelope, body), producer)

    async def _answer(self, event: Event, producer: AIOKafkaProducer) -> None:
        if self.answer is not None and isinstance(event.body, RegionRegistered):
            answer = self.answer(event)
        else:
            answer = self.judges.apply(event.envelope, event.body)
        self.events.append(event)
        if answer is not None:
            await self.announce(producer, event.envelope, NotificationType.REGISTRATION_ANSWERED, answer)

    async def announce(
        self, producer: AIOKafkaProducer, of: Envelope, kind: NotificationType, body: Body
    ) -> None:
        """Publish a notification on the commits topic."""
        place = (of.stream, of.region, of.incarnation)
        message = encode_notification(Notification(str(uuid.uuid4()), kind, *place, body), 0)
        await producer.send_and_wait(
            self.names.commits,
            message.value,
            key=message.key,
            partition=partition_of(of.stream, PARTITIONS),
            headers=message.headers,
        )


def refuse(reason: str) -> Callable[[Event], RegistrationAnswered]:
    def answer(registration: Event) -> RegistrationAnswered:
        problem = Problem(code=Code.REGION_NOT_ALLOWED)
        return RegistrationAnswered(
            registration=registration.envelope.id, accepted=False, problem=problem, reason=reason
        )

    return answer


def silent(registration: Event) -> None:
    return None
