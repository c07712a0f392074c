"""Opening a region: the one time that a driver waits for the coordinator."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events import (
    Event,
    EventType,
    OpeningAnswered,
    Parent,
    RegionOpened,
    partition_of,
    read_event,
)
from sluicegate.writer_hooks.errors import OpeningRefused, OpeningUnanswered, PublishFailed
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region

_POLL_MS = 500


def opening_event(region: Region, lineage: str, parents: Sequence[Parent] = ()) -> Event:
    """Ask to add checkpoints of the lineage to the stream."""
    body = RegionOpened(parents=tuple(parents), assignment=region.assignment, bounded=region.bounded)
    return region.event(EventType.REGION_OPENED, lineage, body)


def announce(region: Region, lineage: str, parents: Sequence[Parent] = ()) -> None:
    """Publish an opening that was accepted before, without waiting for an answer."""
    opening = opening_event(region, lineage, parents)
    shared_publisher(region.kafka).publish(region.events_topic, [opening], region.publish_timeout)


def open_and_wait(region: Region, lineage: str, parents: Sequence[Parent] = ()) -> OpeningAnswered:
    """Publish an opening and wait until the coordinator has accepted it.

    Raises OpeningRefused with the coordinator's reason, OpeningUnanswered, PublishFailed or TopicMissing.
    """
    opening = opening_event(region, lineage, parents)
    deadline = time.monotonic() + region.opening_timeout
    timeout = min(region.publish_timeout, region.opening_timeout)
    publisher = shared_publisher(region.kafka)
    partition = partition_of(region.stream, publisher.partitions(region.commits_topic, timeout))
    answers = _Answers(region, partition)
    try:
        answers.start_at_end(timeout)
        publisher.publish(region.events_topic, [opening], timeout)
        answer = answers.wait_for(opening.envelope.id, deadline)
    finally:
        answers.close()
    if not answer.accepted:
        raise OpeningRefused(
            f"the coordinator refused to open the region {region.name} of the stream {region.stream} "
            f"(lineage {lineage}): {answer.reason}"
        )
    return answer


@dataclass(slots=True)
class _Answers:
    """Reads the stream's partition of the answers' topic from where it ended before the question."""

    region: Region
    partition: int
    _thread: LoopThread = field(default_factory=lambda: LoopThread("sluicegate-opening"))
    _consumer: AIOKafkaConsumer | None = None

    def start_at_end(self, timeout: float) -> None:
        try:
            self._thread.call(self._start(), timeout)
        except (KafkaError, TimeoutError) as error:
            raise PublishFailed(
                f"the topic {self.region.commits_topic} on {self.region.kafka.bootstrap_servers} cannot be "
                f"read ({error!r}); the region was not opened, and starting again is safe"
            ) from error

    async def _start(self) -> None:
        self._consumer = consumer = AIOKafkaConsumer(
            **self.region.kafka.client_arguments(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        partition = TopicPartition(self.region.commits_topic, self.partition)
        consumer.assign([partition])
        end = await consumer.end_offsets([partition])
        consumer.seek(partition, end[partition])

    def wait_for(self, opening: str, deadline: float) -> OpeningAnswered:
        remaining = max(deadline - time.monotonic(), 1.0)
        try:
            return self._thread.call(self._read(self._consumer, opening), remaining)
        except TimeoutError as error:
            raise OpeningUnanswered(self._unanswered()) from error
        except KafkaError as error:
            raise PublishFailed(
                f"the answer to the opening could not be read from {self.region.commits_topic} ({error!r}); "
                "starting again is safe"
            ) from error

    async def _read(self, consumer: AIOKafkaConsumer, opening: str) -> OpeningAnswered:
        while True:
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                for record in records:
                    answer = _answer(record, opening)
                    if answer is not None:
                        return answer

    def _unanswered(self) -> str:
        region = self.region
        return (
            f"no coordinator answered the opening of the region {region.name} of the stream {region.stream} "
            f"within {region.opening_timeout:g} s. Check that a coordinator runs against "
            f"{region.kafka.bootstrap_servers} with the topic prefix {region.topic_prefix}, that it is ready "
            "(/readyz), and that the stream is configured there; the option opening.timeout waits longer"
        )

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                self._thread.call(consumer.stop(), 5.0)
        finally:
            self._thread.stop()


def _answer(record: ConsumerRecord, opening: str) -> OpeningAnswered | None:
    event = read_event(record.headers, record.value)
    if isinstance(event, Event) and isinstance(event.body, OpeningAnswered) and event.body.opening == opening:
        return event.body
    return None
