"""Notifications of one stream, read in a background thread from a point before the driver's registration."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Notification, read_notification
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.reading import read_on
from sluicegate.writer_hooks.errors import PublishFailed
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region

_log = logging.getLogger(__name__)

_POLL_MS: Final = 500
_RETRY: Final = 2.0  # seconds


class CommitFeed:
    """Reader of a stream's partition of the commits topic.

    It misses nothing that is published after `start` has returned. After a failure it continues where it was.
    """

    def __init__(
        self, region: Region, read: Callable[[Notification], None], reconnected: Callable[[], None]
    ) -> None:
        """Make a feed. Both functions are called in its thread.

        `read` gets each notification of the stream. `reconnected` is called after a failure: notifications
        may be missing, if the topic was made again meanwhile.
        """
        self._region = region
        self._read = read
        self._reconnected = reconnected
        self._position: int | None = None
        self._thread: LoopThread | None = None
        self._reading: Future[None] | None = None

    def start(self) -> None:
        """Find the end of the partition, and read from there in the background. Raises PublishFailed."""
        region, timeout = self._region, self._region.publish_timeout
        count = shared_publisher(region.kafka).partitions(region.commits_topic, timeout)
        source = TopicPartition(region.commits_topic, partition_of(region.stream, count))
        self._thread = LoopThread("sluicegate-commits")
        try:
            self._position = self._thread.call(self._end(source), timeout)
        except (KafkaError, TimeoutError) as error:
            self.stop()
            raise PublishFailed(
                f"the topic {source.topic} on {region.kafka.bootstrap_servers} cannot be read ({error!r}); "
                "the region was not registered, and starting again is safe"
            ) from error
        self._reading = self._thread.start(self._follow(source))

    def stop(self) -> None:
        """End the thread. Repeated calls are allowed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    async def _end(self, source: TopicPartition) -> int:
        async with started(self._consumer()) as consumer:
            return int((await consumer.end_offsets([source]))[source])

    async def _follow(self, source: TopicPartition) -> None:
        """Read until the thread ends. Failures are logged, and tried again."""
        failed = 0
        while True:
            try:
                async with started(self._consumer()) as consumer:
                    consumer.assign([source])
                    end = (await consumer.end_offsets([source]))[source]
                    # A topic that was deleted and created again has smaller offsets: it is read whole.
                    at = self._position or 0
                    consumer.seek(source, at if at <= end else 0)
                    if failed:
                        self._reconnected()
                    while True:
                        await self._poll(consumer)
                        failed = 0
            except Exception as error:  # whatever it is, the driver must not stop hearing of commits
                failed += 1
                # Logged the first time, the second, the fourth, the eighth ...
                if not failed & (failed - 1):
                    _log.warning(
                        "commits of the stream %s cannot be read (%d in a row): %r. Nothing that is written "
                        "depends on it; it is tried again about every %g s",
                        *(self._region.stream, failed, error, _RETRY),
                    )
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return  # a client that is closing suppresses the CancelledError itself
            await asyncio.sleep(spread(_RETRY))

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        for records in (await read_on(consumer, timeout_ms=_POLL_MS)).values():
            for record in records:
                found = read_notification(record.headers, record.value)
                if isinstance(found, Notification) and found.stream == self._region.stream:
                    self._read(found)
                self._position = record.offset + 1

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._region.kafka.client_options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
