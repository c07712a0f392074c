"""A small stand-in for the coordinator: it reads the log whole, and answers openings."""

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.events.codec import read_event
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CheckpointCompleted, Event, FilesWritten, OpeningAnswered
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from tests.integration.waiting import Source, wait_until, watched

PARTITIONS = 3
B = TypeVar("B", bound=Body)


class Log:
    """All events of one topic prefix, in a thread of its own; openings are answered by `answer`."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.names = TopicNames(prefix)
        self.events: list[Event] = []
        self.partitions: set[int] = set()
        self.answer: Callable[[Event], OpeningAnswered | None] = accept
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

    def of(self, kind: type[B], lineage: str | None = None) -> list[tuple[Envelope, B]]:
        """The events with bodies of that kind, in the order of the log."""
        return [
            (event.envelope, event.body)
            for event in list(self.events)
            if isinstance(event.body, kind) and lineage in (None, event.envelope.lineage)
        ]

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
        await consumer.start()
        await producer.start()
        consumer.assign([TopicPartition(self.names.events, at) for at in range(PARTITIONS)])
        self._ready.set()
        try:
            while not self._stop.is_set():
                for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                    self.partitions.add(partition.partition)
                    for record in records:
                        event = read_event(record.headers, record.value)
                        assert isinstance(event, Event), event
                        self.events.append(event)
                        await self._maybe_answer(event, producer)
        finally:
            await consumer.stop()
            await producer.stop()

    async def _maybe_answer(self, event: Event, producer: AIOKafkaProducer) -> None:
        if event.envelope.type is not EventType.REGION_OPENED:
            return
        body = self.answer(event)
        if body is None:
            return
        stream = event.envelope.stream
        place = (stream, event.envelope.region, event.envelope.lineage)
        envelope = Envelope(str(uuid.uuid4()), EventType.OPENING_ANSWERED, *place)
        message = encode(Event(envelope, body))
        await producer.send_and_wait(
            self.names.commits,
            message.value,
            key=message.key,
            partition=partition_of(stream, PARTITIONS),
            headers=message.headers,
        )


def accept(opening: Event) -> OpeningAnswered:
    return OpeningAnswered(opening=opening.envelope.id, accepted=True)


def refuse(reason: str) -> Callable[[Event], OpeningAnswered]:
    def answer(opening: Event) -> OpeningAnswered:
        return OpeningAnswered(opening=opening.envelope.id, accepted=False, reason=reason)

    return answer


def silent(opening: Event) -> None:
    return None
