"""Streams that join or leave a partition during reading, because the settings were reloaded.

A separate consumer reads a joining stream from its own low-water mark to the position of the partition. There
the stream joins. Until then, the partition skips its events. Other streams are not disturbed.

So two consumers read the events of one stream, and each event must reach it once. The own consumer delivers
everything before the position of the partition, and nothing at or after it. The stream joins exactly there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.other_groups import OwnedElsewhere
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.reading import NotContiguous, read_batches

log = structlog.get_logger(__name__)

RETRY: Final = 1.0
MOST_RECORDS: Final = 1_000
GRACE: Final = 10.0
"""Seconds for running effects of a leaving stream."""


Pause = Callable[[int], Awaitable[bool]]
"""Waits after so many events of a stream; False: the reading ends, and the stream does not join."""


async def _no_pause(_: int) -> bool:
    return True


class Host(Protocol):
    """The partition, as seen by joining and leaving streams."""

    source: TopicPartition
    position: int
    streams: dict[str, StreamRunner]

    def wanted(self) -> dict[str, StreamSettings]:
        """Return the streams that the settings have for this partition."""
        ...

    async def prepare(self, names: list[str]) -> list[StreamRunner]:
        """Make streams from their state records. Raises KafkaError, TimeoutError, OwnedElsewhere."""
        ...

    def check_order(self, begin: int, records: Sequence[ConsumerRecord], end: int) -> None:
        """Raise NotContiguous unless these records are between `begin` and `end`."""
        ...

    def feed(self, runner: StreamRunner, record: ConsumerRecord) -> bool:
        """Pass a record to a stream. Return False for a record of another stream, which is ignored."""
        ...

    def change(self) -> None:
        """Let streams leave and join, to match the settings in force."""
        ...

    def reached(self) -> None:
        """Pass the position of the partition to all streams."""
        ...

    def forget(self, name: str) -> None:
        """Remove the metrics of a stream."""
        ...


class Changes:
    """Changes of the streams of one partition to match the settings."""

    def __init__(self, host: Host, options: dict[str, Any], patience: float) -> None:
        """Make the changes; `options` of a consumer, `patience` in seconds without progress of a read."""
        self.joining: dict[str, int] = {}
        """Joining streams, with the offset from which each needs the log."""
        self.held: set[str] = set()
        """Those of them that read at their limit, and that nobody else lets join."""
        self._host = host
        self._options = options
        self._patience = patience
        self.trouble: str | None = None
        """Reason why streams have not joined yet."""
        self._lock = asyncio.Lock()

    async def apply(self) -> None:
        """Let streams leave and join until the settings are met; retry until it succeeds."""
        async with self._lock:
            while True:
                wanted = self._host.wanted()
                leaving = [
                    each
                    for name, each in self._host.streams.items()
                    if wanted.get(name) != each.settings or each.reads_again
                ]
                await asyncio.gather(*(self._leave(each) for each in leaving))
                self.joining = {name: at for name, at in self.joining.items() if name in wanted}
                coming = [name for name in wanted if name not in {*self._host.streams, *self.held}]
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

    async def step_out(self, runner: StreamRunner) -> bool:
        """Let a stream leave, which then reads at its limit; False if it has left already."""
        async with self._lock:
            if self._host.streams.get(runner.stream) is not runner:
                return False
            self.held.add(runner.stream)
            await self._leave(runner)
            return True

    async def _leave(self, runner: StreamRunner) -> None:
        """End a stream's work, and write its last state record."""
        host, name = self._host, runner.stream
        await runner.stop(GRACE)
        # Nothing may be awaited between these steps: later events are skipped, or belong to no stream.
        del host.streams[name]
        if name in host.wanted():
            self.joining[name] = runner.recorded_low_water
        await runner.write_last_record()
        host.forget(name)
        log.info("stream left", stream=name, partition=host.source.partition)

    async def _join(self, names: list[str]) -> None:
        host = self._host
        for name in names:
            self.joining.setdefault(name, host.position)
        for runner in await host.prepare(names):
            name = runner.stream
            self.joining[name] = min(runner.reads_from, host.position)
            try:
                await self.catch_up(runner)
            finally:
                if name not in host.streams:
                    await runner.stop(0.0)

    async def catch_up(self, runner: StreamRunner, pause: Pause = _no_pause) -> bool:
        """Read the log for a stream up to the position of the partition, and let it join there.

        Returns False if a pause has ended the reading.
        """
        host, source, start, own = self._host, self._host.source, runner.reads_from, 0
        consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **self._options)
        async with started(consumer):
            consumer.assign([source])
            consumer.seek(source, start)
            position = start
            """Every record from `start` up to here was delivered."""
            while position < host.position or own:
                if own:
                    if not await pause(own):
                        return False
                    own = 0
                    continue
                async with asyncio.timeout(self._patience):
                    if (begin := await consumer.position(source)) != position:
                        raise NotContiguous(source, position, begin)
                    reading = await read_batches(consumer, source, timeout_ms=200, max_records=MOST_RECORDS)
                    end = await consumer.position(source)
                # Nothing may be awaited from here to the next read: the partition must not advance in
                # between.
                if end > (joint := max(position, host.position)):
                    # The partition may pass these during the pause, or deliver them after the stream has
                    # joined. That is not known yet, so they are read again.
                    consumer.seek(source, joint)
                    end = joint
                records = [each for each in reading.batches.get(source, []) if each.offset < end]
                host.check_order(position, records, end)
                own = sum([host.feed(runner, each) for each in records])
                position = end
            if position != host.position and position > start:
                raise NotContiguous(source, host.position, position)
            host.streams[runner.stream] = runner
            del self.joining[runner.stream]
            host.reached()
        log.info("stream joined", stream=runner.stream, partition=source.partition, read_from=start)
        return True
