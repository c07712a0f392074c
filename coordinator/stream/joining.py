"""Streams that come and go while their partition is read on: the settings were reloaded.

A stream that comes is read from its own low-water mark by a consumer of its own, up to where the partition
has been read, and joins there. Until then, the partition passes over its events. No other stream is
disturbed.
"""

import asyncio
from typing import Any, Final, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.ownership import OwnedElsewhere
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.kafka.fetching import read_batches
from sluicegate.kafka.pauses import spread
from sluicegate.kafka.starting import start_client

log = structlog.get_logger(__name__)

RETRY: Final = 1.0
MOST_RECORDS: Final = 1_000
GRACE: Final = 10.0
"""Seconds for what a stream has under way when it leaves."""


class Host(Protocol):
    """What joining and leaving need of the partition."""

    source: TopicPartition
    position: int
    streams: dict[str, StreamRunner]

    def wanted(self) -> dict[str, StreamSettings]:
        """The streams that the settings name for this partition."""
        ...

    async def prepare(self, names: list[str]) -> list[StreamRunner]:
        """Make streams from their state records. Raises KafkaError, TimeoutError, OwnedElsewhere."""
        ...

    def feed(self, runner: StreamRunner, record: ConsumerRecord) -> None:
        """Hand a record to one stream, if it is one of the stream's."""
        ...

    def reached(self) -> None:
        """Tell all streams how far the partition has been read."""
        ...

    def forget(self, name: str) -> None:
        """Forget what is measured of a stream."""
        ...


class Changes:
    """Brings the streams of one partition in line with the settings."""

    def __init__(self, host: Host, options: dict[str, Any], patience: float) -> None:
        """`options`: of a consumer; `patience`: seconds that a reading may stand still."""
        self.joining: dict[str, int] = {}
        """Streams that come, with the offset from which they need the log."""
        self._host = host
        self._options = options
        self._patience = patience
        self.trouble: str | None = None
        """Why streams have not joined yet."""
        self._lock = asyncio.Lock()

    async def apply(self) -> None:
        """Let streams leave and join until the settings are met; tried again until it succeeds."""
        async with self._lock:
            while True:
                wanted = self._host.wanted()
                leaving = [
                    each for name, each in self._host.streams.items() if wanted.get(name) != each.settings
                ]
                await asyncio.gather(*(self._leave(each) for each in leaving))
                self.joining = {name: at for name, at in self.joining.items() if name in wanted}
                coming = [name for name in wanted if name not in self._host.streams]
                if not coming:
                    self.trouble = None
                    return
                try:
                    await self._join(coming)
                except (KafkaError, TimeoutError, BodyUnavailable, OwnedElsewhere, OSError) as error:
                    reason = str(error) or repr(error)
                    if reason != self.trouble:
                        log.warning("streams not joined yet", streams=coming, reason=reason)
                    self.trouble = reason
                    await asyncio.sleep(spread(RETRY))

    async def _leave(self, runner: StreamRunner) -> None:
        """Let a stream end its work, and write down where it stands."""
        host, name = self._host, runner.stream
        await runner.stop(GRACE)
        # Nothing comes between: from here on its events are passed over, or belong to no stream.
        del host.streams[name]
        if name in host.wanted():
            self.joining[name] = runner.machine.book.low_water(runner.machine.position)
        await runner.write_last_record()
        host.forget(name)
        log.info("stream left", stream=name, partition=host.source.partition)

    async def _join(self, names: list[str]) -> None:
        host = self._host
        for name in names:
            self.joining.setdefault(name, host.position)
        for runner in await host.prepare(names):
            name = runner.stream
            self.joining[name] = min(runner.machine.low_water, host.position)
            try:
                await self._catch_up(runner)
            finally:
                if name not in host.streams:
                    await runner.stop(0.0)

    async def _catch_up(self, runner: StreamRunner) -> None:
        """Read the log for a stream to where the partition has been read, and let it join there."""
        host, source, start = self._host, self._host.source, runner.machine.low_water
        consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **self._options)
        try:
            await start_client(consumer)
            consumer.assign([source])
            consumer.seek(source, start)
            position = start
            while position < host.position:
                async with asyncio.timeout(self._patience):
                    reading = await read_batches(consumer, source, timeout_ms=200, max_records=MOST_RECORDS)
                    position = await consumer.position(source)
                # From here to the next reading nothing may be awaited: the partition must not be read on.
                for record in reading.batches.get(source, []):
                    if record.offset < host.position:
                        host.feed(runner, record)
            host.streams[runner.stream] = runner
            del self.joining[runner.stream]
            host.reached()
        finally:
            await consumer.stop()
        log.info("stream joined", stream=runner.stream, partition=source.partition, read_from=start)
