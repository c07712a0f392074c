"""Bodies of pending events with files: held in memory within a budget, else fetched again by offset."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.events.codec import Flaw, read_attributes
from sluicegate.events.envelope import CHECKPOINT_COMPLETED, FILES_WRITTEN, Envelope
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.kafka.clients import start_client, stop_client
from sluicegate.kafka.reading import read_batches

_AFTER_TYPE: Final = 2
"""Index of the first attribute of an envelope after its id and type."""

GAP: Final = 500
"""Largest gap between wanted offsets that is read through; across a larger gap the consumer seeks."""


class BodyUnavailable(Exception):
    """A body is not in the log, or not any more; the cause contains its offset."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


class WrittenEvent(NamedTuple):
    """An event with files as read from the log, with its body still encoded."""

    envelope: Envelope
    body: bytes


class Budget:
    """Memory limit in bytes for the pending events of all partitions: their bodies, and what was checked."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, size: int) -> bool:
        """Reserve memory. Return False, without a reservation, if the budget would be exceeded."""
        if self.held + size > self.most:
            return False
        self.held += size
        return True

    @property
    def room(self) -> int:
        """Bytes that are not reserved."""
        return self.most - self.held

    def give_back(self, size: int) -> None:
        """Release reserved memory."""
        self.held -= size


class Bodies:
    """Bodies of one partition's pending events, by offset."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held: dict[int, tuple[bytes, str, bool, tuple[str | int, ...]]] = {}
        """Body, id, whether it is a completion, other attributes.

        The garbage collector skips plain tuples of strings, numbers and bytes."""
        self._sizes: dict[int, int] = {}

    def keep(self, offset: int, envelope: Envelope, body: bytes) -> None:
        """Hold an event if the budget allows; otherwise it is fetched again on demand."""
        size = self._sizes[offset] = len(body)
        if offset not in self._held and self._budget.take(size):
            completes = envelope.type is CHECKPOINT_COMPLETED
            self._held[offset] = body, envelope.id, completes, envelope[_AFTER_TYPE:]

    def get(self, offset: int) -> WrittenEvent | None:
        """Return the event at an offset if it is held, else None."""
        held = self._held.get(offset)
        if held is None:
            return None
        body, event, completes, others = held
        kind = CHECKPOINT_COMPLETED if completes else FILES_WRITTEN
        return WrittenEvent(Envelope._make((event, kind, *others)), body)

    def size(self, offset: int) -> int:
        """Return the size in bytes of a pending event's body, held or not; 0 for an unknown offset."""
        return self._sizes.get(offset, 0)

    def first_of(self, offsets: Iterable[int]) -> dict[int, WrittenEvent]:
        """Return the events of the leading offsets, up to the first one that is not held."""
        found: dict[int, WrittenEvent] = {}
        for offset in offsets:
            event = self.get(offset)
            if event is None:
                break
            found[offset] = event
        return found

    def drop(self, offsets: Iterable[int]) -> None:
        """Forget bodies, and release their memory."""
        for offset in offsets:
            self._sizes.pop(offset, None)
            held = self._held.pop(offset, None)
            if held is not None:
                self._budget.give_back(len(held[0]))

    def drop_all(self) -> None:
        """Forget all bodies."""
        self.drop(self.offsets())

    def offsets(self) -> list[int]:
        """Return the offsets of all pending events, held or not."""
        return list(self._sizes)


class BodyFetcher:
    """Client that reads single records of the events topic by offset, outside of any consumer group."""

    def __init__(self, topic: str, options: dict[str, Any], patience: float) -> None:
        self._topic = topic
        self._options = options
        self._patience = patience
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def fetch(
        self, partition: int, offsets: Sequence[int], most: int | None = None
    ) -> dict[int, WrittenEvent]:
        """Read the events at these offsets. Raises BodyUnavailable, KafkaError or TimeoutError.

        `most` limits the result to the smallest offsets: reading stops after about this number of bytes, with
        at least one event.
        """
        found = await self.records(partition, offsets, most)
        # With a limit, offsets after the last record read are not missing; the caller fetches them later.
        read_to = max(found, default=None) if most is not None else None
        missing = [
            offset for offset in offsets if offset not in found and (read_to is None or offset < read_to)
        ]
        if missing:
            raise BodyUnavailable(
                Cause(code=CauseCode.EVENT_ABSENT, number=min(missing), partition=partition)
            )
        return {offset: _written(record) for offset, record in found.items()}

    async def records(
        self, partition: int, offsets: Sequence[int], most: int | None = None
    ) -> dict[int, ConsumerRecord]:
        """Read the records at these offsets (at least one), or the first of them up to about `most` bytes.

        Raises BodyUnavailable, KafkaError or TimeoutError.
        """
        # The consumer has one position, so only one read can use it at a time.
        async with self._lock:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(
                    auto_offset_reset="none", enable_auto_commit=False, **self._options
                )
                try:
                    await start_client(consumer)
                except BaseException:
                    await stop_client(consumer)
                    raise
                self._consumer = consumer
            source = TopicPartition(self._topic, partition)
            return await self._read(self._consumer, source, sorted(offsets), most)

    async def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            await stop_client(self._consumer)

    async def _read(
        self, consumer: AIOKafkaConsumer, source: TopicPartition, wanted: list[int], most: int | None
    ) -> dict[int, ConsumerRecord]:
        consumer.assign([source])
        first = (await consumer.beginning_offsets([source]))[source]
        if wanted[0] < first:
            raise BodyUnavailable(
                Cause(
                    code=CauseCode.EVENT_DELETED,
                    number=wanted[0],
                    other=first,
                    partition=source.partition,
                )
            )
        found: dict[int, ConsumerRecord] = {}
        for run in _runs(wanted):
            consumer.seek(source, run[0])
            await self._read_run(consumer, source, run, found, most)
            if most is not None and _size(found) >= most:
                break
        return found

    async def _read_run(
        self,
        consumer: AIOKafkaConsumer,
        source: TopicPartition,
        run: list[int],
        found: dict[int, ConsumerRecord],
        most: int | None,
    ) -> None:
        needed = set(run)
        position = run[0]
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._patience) as limit:
            while position <= run[-1]:
                reading = await read_batches(consumer, source, timeout_ms=1000)
                for record in reading.batches.get(source, []):
                    if record.offset in needed:
                        found[record.offset] = record
                before, position = position, await consumer.position(source)
                if position > before:
                    # The timeout limits a read without progress, not the whole run, which may be long.
                    limit.reschedule(loop.time() + self._patience)
                if most is not None and _size(found) >= most:
                    break


def _written(record: ConsumerRecord) -> WrittenEvent:
    envelope = read_attributes(record.headers)
    if isinstance(envelope, Flaw):
        raise BodyUnavailable(
            Cause(
                code=CauseCode.NOT_AN_EVENT,
                number=record.offset,
                partition=record.partition,
                problem=envelope.problem.code,
            )
        )
    return WrittenEvent(envelope, record.value or b"")


def _size(found: dict[int, ConsumerRecord]) -> int:
    return sum(len(record.value or b"") for record in found.values())


def _runs(offsets: list[int]) -> list[list[int]]:
    """Split ascending offsets into runs without a gap larger than `GAP`."""
    runs = [[offsets[0]]]
    for before, offset in pairwise(offsets):
        if offset - before > GAP:
            runs.append([])
        runs[-1].append(offset)
    return runs
