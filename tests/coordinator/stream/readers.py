"""A partition of a log in memory with two streams, and its readers: the shared consumer, and own ones.

Everything but Kafka is the product's. Each read and each pause of an own consumer lets the partition advance
by a number that the test chooses, so every interleaving of the two readers can be had without a clock.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import partition, reload
from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.coordinator.stream.links import Links, Partitions
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.kafka.bodies import Budget
from sluicegate.kafka.reading import Reading
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.threads import CommitThreads

STREAM: Final = "flights"
OTHER: Final = "hotels"
SOURCE: Final = TopicPartition("sluicegate.events", 0)


def record_at(offset: int, stream: str) -> ConsumerRecord:
    """Return a heartbeat of a region that nobody knows: it has no effect, and every reader sees it."""
    envelope = Envelope(f"e{offset}", EventType.REGION_HEARTBEAT, stream, "r1", "q")
    key, value, headers = encode_event(envelope, RegionHeartbeat(run="e0"), 1_000)
    sizes = len(key), len(value)
    return ConsumerRecord(
        *(SOURCE.topic, SOURCE.partition, offset, 1_000, 1), key, value, None, *sizes, tuple(headers)
    )


class Consumer:
    """A consumer of the log."""

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.at = 0

    def assign(self, sources: object) -> None:
        """Do nothing: there is one partition."""

    pause = resume = assign

    def seek(self, source: object, offset: int) -> None:
        self.at = offset

    async def position(self, source: object) -> int:
        return self.at

    async def beginning_offsets(self, sources: object) -> Mapping[TopicPartition, int]:
        return {SOURCE: 0}

    async def commit(self, offsets: object) -> None:
        """Do nothing: the test looks at the low-water mark itself."""

    def highwater(self, source: object) -> int:
        return self.log.end

    def read(self, most: int) -> list[ConsumerRecord]:
        """Return the next records, and move on over offsets without one."""
        upto = min(self.log.end, self.at + most)
        found = [self.log.records[each] for each in range(self.at, upto) if each in self.log.records]
        self.at = upto
        return found


class Log:
    """The log, its partition in the coordinator, and what each stream was delivered."""

    def __init__(self, patch: pytest.MonkeyPatch, limit: int = 0) -> None:
        self.records: dict[int, ConsumerRecord] = {}
        self.end = 0
        self.most = 1_000
        """Records of one read of an own consumer."""
        self.turn: Callable[[], object] = lambda: None
        """Called at each read of an own consumer, and at each pause."""
        self.delivered: list[tuple[StreamRunner, int]] = []
        self.own: list[Consumer] = []
        """Consumers of joining streams, the newest last."""
        self.limit = limit
        self._patch(patch)
        self.links = links_of(self.settings(STREAM, OTHER))
        self.shared = Consumer(self)
        self.partition = self.assigned()

    def settings(self, *streams: str) -> Settings:
        """Return settings with these streams."""
        own: dict[str, dict[str, object]] = {each: {"table": "/nowhere/db.db/t"} for each in streams}
        if self.limit:
            own[STREAM]["max_events_per_second"] = self.limit
        return Settings.model_validate(
            {"kafka": {"bootstrap_servers": "nowhere:1", "partitions": 1}, "streams": own}
        )

    def assigned(self) -> PartitionRunner:
        """Return the partition as a new assignment has it."""
        return PartitionRunner(0, 1, self.shared, self.links)

    def append(self, *streams: str | None) -> None:
        """Append an event of each stream; None is an offset without a record."""
        for stream in streams:
            if stream is not None:
                self.records[self.end] = record_at(self.end, stream)
            self.end += 1

    def advance(self, most: int) -> None:
        """Let the shared consumer read."""
        self.partition.check_position(self.shared.at)
        found = self.shared.read(most)
        self.partition.take(found, self.shared.at)

    def offsets(self, stream: str, begin: int = 0, end: int | None = None) -> list[int]:
        """Return the offsets of a stream's events before the position of the partition."""
        upto = self.partition.position if end is None else end
        return [at for at in range(begin, upto) if at in self.records and _of(self.records[at]) == stream]

    def delivered_to(self, runner: StreamRunner) -> list[int]:
        return [offset for each, offset in self.delivered if each is runner]

    async def pause(self, events: int) -> bool:
        self.turn()
        return True

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        @asynccontextmanager
        async def started(consumer: Consumer) -> AsyncIterator[Consumer]:
            yield consumer

        async def read_batches(consumer: Consumer, *_: object, **__: object) -> Reading:
            self.turn()
            found = consumer.read(self.most)
            # The answer is on its way while the partition reads on.
            self.turn()
            return Reading({SOURCE: found}, [])

        def deliver(runner: StreamRunner, record: ConsumerRecord, read: Any, flaw: Any) -> None:
            right(runner, record, read, flaw)
            self.delivered.append((runner, record.offset))

        right = StreamRunner.deliver
        patch.setattr(StreamRunner, "deliver", deliver)
        # The effects of the core need a table. They are no part of reading.
        patch.setattr(StreamRunner, "pump", lambda _: None)

        def own(**_: object) -> Consumer:
            self.own.append(Consumer(self))
            return self.own[-1]

        patch.setattr(reload, "AIOKafkaConsumer", own)
        patch.setattr(reload, "started", started)
        patch.setattr(reload, "read_batches", read_batches)
        patch.setattr(reload, "spread", lambda _: 0.0)
        patch.setattr(partition, "read_held", AsyncMock(return_value={}))
        patch.setattr(partition, "refuse_other_groups", AsyncMock())
        patch.setattr(partition, "last_events", AsyncMock(return_value={}))
        patch.setattr(partition, "committed_with_note", AsyncMock(return_value=(None, "")))
        patch.setattr(PartitionRunner, "end_offset", AsyncMock(side_effect=lambda: self.end))


def links_of(settings: Settings) -> Links:
    """Return links to nothing."""
    letters = MagicMock()
    letters.box = lambda topic, number: Letterbox(topic, number, lambda: None)
    letters.close = AsyncMock()
    return Links(
        settings=settings,
        topics=TopicNames("sluicegate"),
        partitions=Partitions(1, 1, 1),
        producer=MagicMock(),
        fetcher=MagicMock(),
        ends=MagicMock(),
        store=None,
        threads=CommitThreads(1),
        budget=Budget(1 << 20),
        dead_letters=letters,
        metrics=Metrics(),
    )


def _of(record: ConsumerRecord) -> str:
    value: bytes = next(value for name, value in record.headers if name == "ce_stream")
    return value.decode()


def exactly_once(log: Log, *streams: str) -> None:
    """Every stream that the partition has was delivered each of its events before the position, once."""
    for name in streams:
        runner = log.partition.streams[name]
        twice = [at for at, times in Counter(log.delivered_to(runner)).items() if times > 1]
        assert twice == []
        assert log.delivered_to(runner) == log.offsets(name, runner.reads_from)


def mixed(pattern: str) -> Iterator[str | None]:
    """Yield streams by letters: f and h, and a dot for an offset without a record."""
    names = {"f": STREAM, "h": OTHER, ".": None}
    return (names[each] for each in pattern)
