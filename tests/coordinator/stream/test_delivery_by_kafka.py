"""A held stream on a real broker: each record once, although its consumer reads past the partition."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition

from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.reload import Changes
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.letters import home_of
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

RECORDS: Final = 400
START: Final = 40
OWN: Final = 8
"""Every so many records are of the stream."""


@dataclass
class Partition:
    """A partition that has read less than the log has."""

    source: TopicPartition
    position: int
    streams: dict[str, Any] = field(default_factory=dict)
    fed: list[int] = field(default_factory=list)

    check_order = PartitionRunner.check_order

    def feed(self, runner: object, record: ConsumerRecord) -> bool:
        is_own: bool = record.offset % OWN == 0
        if is_own:
            self.fed.append(record.offset)
        return is_own

    def advance(self) -> None:
        """Read on, and deliver to the stream if it has joined."""
        read = range(self.position, min(RECORDS, self.position + 37))
        self.fed += [each for each in read if each % OWN == 0 and self.streams]
        self.position = read.stop

    def reached(self) -> None:
        """Do nothing: nobody acts."""


async def test_a_consumer_that_reads_past_the_partition(place: Place) -> None:
    source = TopicPartition(place.topics.events, 0)
    options = place.settings("flights").kafka.client_options()
    producer = AIOKafkaProducer(**options)
    await producer.start()
    try:
        for number in range(RECORDS):
            await producer.send(source.topic, b"%d" % number, partition=source.partition)
    finally:
        await producer.stop()
    host = Partition(source, position=150)
    changes = Changes(cast(Any, host), options, 60.0)
    changes.joining["flights"] = START

    async def pause(events: int) -> bool:
        host.advance()
        return True

    assert await changes.catch_up(cast(Any, SimpleNamespace(stream="flights", reads_from=START)), pause)
    joined = host.position
    while host.position < RECORDS:
        host.advance()
    assert (joined > 150, host.fed) == (True, list(range(START, RECORDS, OWN)))


async def test_a_consumer_that_is_moved_ends_the_session_and_loses_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Events would be applied twice, or left out. The next session reads from the state records."""
    async with place.job() as job, running(place.settings()) as service:
        await job.begin_with_a_commit()
        consumer = service._consumer
        assert consumer is not None
        source = TopicPartition(place.topics.events, home_of("flights"))
        runner = service._runners[source.partition]
        consumer.seek(source, runner.position - 1)
        await until(lambda: service._consumer not in (None, consumer))
        await job.commit([2], [1, 2])
    assert "is not read in order: offset" in caplog.text
