"""The newest outcomes of a stream, as its commits topic has them."""

from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import Flaw
from sluicegate.events.feed import read_notification
from sluicegate.events.models import CutAbandoned, CutReverted
from sluicegate.events.notifications import Committed
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.clients import started
from sluicegate.replay.log import partitions_of, read_range

STEP: Final = 1_000
"""Messages that are read first, from the end of the topic. Each later step backwards is twice as long."""


class Outcome(NamedTuple):
    """Outcome of one attempt to commit."""

    time: int
    """Time of its first announcement, in milliseconds since the Unix epoch."""
    body: Committed | CutAbandoned | CutReverted


async def read_outcomes(settings: Settings, stream: str, most: int) -> list[Outcome]:
    """Return up to `most` of the newest outcomes of a stream, the oldest first, each once.

    Older ones than the retention of the commits topic are gone. Raises ReplayRefused if there is no such
    topic, KafkaError, TimeoutError.
    """
    topic = settings.kafka.topic_names().commits
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False, auto_offset_reset="none", **settings.kafka.client_options()
    )
    async with started(consumer):
        source = TopicPartition(topic, partition_of(stream, len(await partitions_of(consumer, topic))))
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        found: dict[str, Outcome] = {}
        step, patience = STEP, settings.kafka.request_timeout * 4
        while end > begin and len(found) < most:
            start = max(begin, end - step)
            earlier: dict[str, Outcome] = {}
            async for batch in read_range(consumer, source, start, end, patience):
                _take(batch, stream, earlier)
            # A restart repeats what it announced last: the first time counts.
            found = {**earlier, **{name: each for name, each in found.items() if name not in earlier}}
            end, step = start, 2 * step
    return list(found.values())[-most:]


def _take(records: list[ConsumerRecord], stream: str, found: dict[str, Outcome]) -> None:
    for record in records:
        read = read_notification(record.headers, record.value)
        if isinstance(read, Flaw) or read.stream != stream:
            continue
        if isinstance(read.body, Committed | CutAbandoned | CutReverted):
            found.setdefault(read.id, Outcome(record.timestamp, read.body))
