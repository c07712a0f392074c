"""Records of listeners in the compacted topic: read for the streams of one assignment, written by owner."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.coordinator.listeners.record import ListenerRecord, decode, encode
from sluicegate.coordinator.ownership import GROUP_HEADER
from sluicegate.coordinator.records import read_topic
from sluicegate.coordinator.retention import listener_key, read_listener_key
from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.coordinator.stream.links import Links
from sluicegate.events.partitioning import partition_of
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.clients import started

UNREADABLE: Final = "unreadable"


class Held(NamedTuple):
    """Records of one listener."""

    records: tuple[ListenerRecord, ...] = ()
    keys: tuple[tuple[str, int], ...] = ()
    """Key and partition of every record, also of those that this release cannot read."""
    unreadable: int = 0
    """Number of records that this release cannot read."""


class ListenerRecords:
    """Access to the records of listeners."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._headers = [(GROUP_HEADER, links.settings.kafka.group_id.encode())]

    async def read(self, streams: Collection[str]) -> Mapping[tuple[str, str], Held]:
        """Return the records of these streams by stream and listener. Raises KafkaError, TimeoutError."""
        return await read_held(self._links.settings.kafka, self._links.partitions.state, streams)

    async def write(self, record: ListenerRecord) -> None:
        """Write the record of a listener under its owner's key. Raises KafkaError."""
        key = listener_key(record.stream, record.listener, record.owner)
        await reach(Failpoint.LISTENER_RECORD_BEFORE)
        await self._put(key, self.partition(record.stream), encode(record))
        await reach(Failpoint.LISTENER_RECORD_AFTER)

    async def remove(self, key: str, partition: int) -> None:
        """Remove the record of a former owner. Raises KafkaError."""
        await self._put(key, partition, None)

    def partition(self, stream: str) -> int:
        """Return the partition of the state topic that the records of a stream go to."""
        return partition_of(stream, self._links.partitions.state)

    async def _put(self, key: str, partition: int, value: bytes | None) -> None:
        await self._links.producer.send_and_wait(
            self._links.topics.state, value, key=key.encode(), partition=partition, headers=self._headers
        )


async def read_held(
    kafka: KafkaSettings, partitions: int, streams: Collection[str]
) -> Mapping[tuple[str, str], Held]:
    """Return the records of these streams by stream and listener. Raises KafkaError, TimeoutError.

    `partitions` is the number of partitions of the topic.
    """
    newest: dict[tuple[str, int], ConsumerRecord] = {}

    def keep(record: ConsumerRecord) -> None:
        key = (record.key or b"").decode(errors="replace")
        named = read_listener_key(key)
        if named is not None and named[0] in streams:
            newest[key, record.partition] = record

    sources = [TopicPartition(kafka.topic_names().state, each) for each in range(partitions)]
    consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **kafka.client_options())
    async with started(consumer):
        await read_topic(consumer, sources, kafka.request_timeout, keep)
    found: dict[tuple[str, str], Held] = {}
    for (key, partition), record in newest.items():
        named = read_listener_key(key)
        if named is None or record.value is None:
            continue
        held, read = found.get(named, Held()), decode(record.value)
        found[named] = Held(
            held.records + ((read,) if read is not None else ()),
            (*held.keys, (key, partition)),
            held.unreadable + (read is None),
        )
    return found
