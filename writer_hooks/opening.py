"""Opening of a region. It is the only step in which a driver waits for the coordinator."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events.codec import read_event
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Event, OpeningAnswered, Parent, RegionOpened
from sluicegate.events.partitioning import partition_of
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.kafka.starting import start_client
from sluicegate.writer_hooks.errors import OpeningRefused, OpeningUnanswered, PublishFailed
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import FOREVER, Region

_log = logging.getLogger(__name__)

_POLL_MS = 500
_LEAST_WAIT = 1.0  # seconds
_FIRST_WORD = 10.0
_STOP_TIMEOUT = 5.0


class Planned(NamedTuple):
    """The newest checkpoint in the driver's checkpoint location."""

    checkpoint: int
    digest: str
    """Digest of its source range."""
    previous: str | None = None
    """Digest of the source range of the previous checkpoint; None: unknown to the driver."""


def opening_event(
    region: Region, lineage: str, parents: Sequence[Parent] = (), planned: Planned | None = None
) -> Event:
    """Return the event that asks to add checkpoints of an incarnation to the stream."""
    body = RegionOpened(
        parents=tuple(parents),
        assignment=region.assignment,
        bounded=region.bounded,
        sink=region.sink,
        owned=region.owned,
        planned=planned.checkpoint if planned else None,
        planned_digest=planned.digest if planned else None,
        previous_digest=planned.previous if planned else None,
        table=region.table,
    )
    return region.event(EventType.REGION_OPENED, lineage, body)


class Opening:
    """A published opening, whose answer is read in the background.

    If it is refused, `on_refusal` is called in another thread. The constructor raises PublishFailed or
    TopicMissing.
    """

    def __init__(
        self,
        region: Region,
        lineage: str,
        parents: Sequence[Parent] = (),
        planned: Planned | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        opening = opening_event(region, lineage, parents, planned)
        self._region, self._lineage = region, lineage
        self._deadline = time.monotonic() + region.opening_timeout
        timeout = min(region.publish_timeout, region.opening_timeout)
        publisher = shared_publisher(region.kafka)
        partition = partition_of(region.stream, publisher.partitions(region.commits_topic, timeout))
        self._thread = LoopThread("sluicegate-opening")
        try:
            # Position the consumer before the opening is published, so that it cannot miss the answer.
            consumer = self._start_at_end(TopicPartition(region.commits_topic, partition), timeout)
            self._answer = self._thread.start(_read_answer(consumer, opening.envelope.id, self._deadline))
            hit(Failpoint.HOOK_OPENING_BEFORE)
            publisher.publish(region.events_topic, [opening], timeout)
            hit(Failpoint.HOOK_OPENING_AFTER)
        except BaseException:
            self._thread.stop()
            raise
        self._answer.add_done_callback(lambda answer: self._ended(answer, on_refusal))

    def _ended(self, answer: "Future[OpeningAnswered | None]", on_refusal: Callable[[], None] | None) -> None:
        self._thread.release()
        if on_refusal is None or answer.cancelled() or answer.exception() is not None:
            return
        said = answer.result()
        if said is not None and not said.accepted:
            on_refusal()

    def _start_at_end(self, partition: TopicPartition, timeout: float) -> AIOKafkaConsumer:
        try:
            return self._thread.call(_consumer_at_end(self._region, partition), timeout)
        except (KafkaError, TimeoutError) as error:
            raise PublishFailed(
                f"the topic {partition.topic} on {self._region.kafka.bootstrap_servers} cannot be read "
                f"({error!r}); the region was not opened, and starting again is safe"
            ) from error

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until the opening is accepted. Raises OpeningRefused, OpeningUnanswered or PublishFailed.

        A missing answer is logged after ten seconds, and then at doubling intervals. Raises OpeningUnanswered
        also if `stopped` returns True because the query is being stopped.
        """
        try:
            answer = self._await_answer(stopped)
        except KafkaError as error:
            raise PublishFailed(
                f"the answer to the opening could not be read from {self._region.commits_topic} ({error!r}); "
                "starting again is safe"
            ) from error
        if answer is None:
            raise OpeningUnanswered(self._unanswered())
        self._judge(answer)

    def _await_answer(self, stopped: Callable[[], bool]) -> OpeningAnswered | None:
        pause, began = _FIRST_WORD, time.monotonic()
        due = began + pause
        while True:
            with contextlib.suppress(TimeoutError):
                return self._answer.result(min(_POLL_MS / 1000, max(0.0, due - time.monotonic())))
            # The wait can time out at the moment of the answer; a result that is present counts.
            if self._answer.done():
                return self._answer.result()
            if stopped():
                self._answer.cancel()
                raise OpeningUnanswered(
                    f"the query of the region {self._region.name} of the stream {self._region.stream} was "
                    "stopped while its opening waited for a coordinator; starting again is safe"
                )
            if time.monotonic() >= due:
                self._tell_waiting(time.monotonic() - began)
                pause *= 2
                due += pause

    def _tell_waiting(self, seconds: float) -> None:
        _log.warning(
            "no coordinator has answered the opening of the region %s of the stream %s for %d s; the query "
            "waits %s, and writes nothing before. %s",
            *(self._region.name, self._region.stream, seconds),
            _until(self._region.opening_timeout),
            self._advice(),
        )

    def glance(self, patience: float = 0.0) -> bool:
        """Return True if there is no answer left to wait for, after at most `patience` seconds.

        Raises OpeningRefused if the answer is a refusal.
        """
        if not wait([self._answer], patience).done:
            return False
        answer = None if self._answer.exception() is not None else self._answer.result()
        if answer is not None:
            self._judge(answer)
        return True

    def _judge(self, answer: OpeningAnswered) -> None:
        if not answer.accepted:
            raise OpeningRefused(
                f"the coordinator refused to open the region {self._region.name} of the stream "
                f"{self._region.stream} (lineage {self._lineage}): {answer.reason}"
            )
        if answer.start is not None:
            _log.info(
                "lineage %s of region %s of the stream %s goes on from checkpoint %d of lineage %s",
                *(self._lineage, self._region.name, self._region.stream),
                *(answer.start.checkpoint, answer.start.lineage),
            )

    def _unanswered(self) -> str:
        region = self._region
        return (
            f"no coordinator answered the opening of the region {region.name} of the stream {region.stream} "
            f"within {region.opening_timeout:g} s. {self._advice()}. The option opening.timeout waits longer "
            f"(seconds, or {FOREVER})"
        )

    def _advice(self) -> str:
        region = self._region
        return (
            f"Check that a coordinator runs against {region.kafka.bootstrap_servers} with the topic prefix "
            f"{region.topic_prefix}, that it is ready (/readyz), and that the stream is configured there"
        )


def _until(timeout: float) -> str:
    return "until one does" if timeout == math.inf else f"up to {timeout:g} s (opening.timeout)"


async def _consumer_at_end(region: Region, partition: TopicPartition) -> AIOKafkaConsumer:
    """Return a consumer of the answers, positioned at the current end of the partition."""
    consumer = AIOKafkaConsumer(
        **region.kafka.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await start_client(consumer)
        consumer.assign([partition])
        end = await consumer.end_offsets([partition])
        consumer.seek(partition, end[partition])
    except BaseException:
        await consumer.stop()
        raise
    return consumer


async def _read_answer(consumer: AIOKafkaConsumer, opening: str, deadline: float) -> OpeningAnswered | None:
    """Return the answer to an opening, None if there is none in time. Closes the consumer."""
    try:
        left = max(deadline - time.monotonic(), _LEAST_WAIT)
        async with asyncio.timeout(None if left == math.inf else left):
            while True:
                for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                    for record in records:
                        answer = _answer(record, opening)
                        if answer is not None:
                            return answer
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await consumer.stop()


def _answer(record: ConsumerRecord, opening: str) -> OpeningAnswered | None:
    event = read_event(record.headers, record.value)
    if isinstance(event, Event) and isinstance(event.body, OpeningAnswered) and event.body.opening == opening:
        return event.body
    return None
