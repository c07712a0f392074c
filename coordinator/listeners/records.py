"""Records of listeners in the compacted topic: read for the streams of one assignment, written by owner."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

import cramjam
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.other_groups import GROUP_HEADER
from sluicegate.coordinator.stream.records import read_topic
from sluicegate.coordinator.stream.state_records import listener_key, read_listener_key
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Count
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.clients import started

# Record of one listener in the compacted topic: its state, and its place in the feed.
#
# Each owner of a stream writes under a key of its own, and a reader takes the furthest record of all keys.
# So a former owner that still runs cannot move a listener back: it can only write under its own key.

_LARGE: Final = 64 << 10
"""Bytes of a record that is compressed."""
_MOST: Final = 32 << 20
"""Bytes of a record before its compression."""
_ZSTD: Final = bytes.fromhex("28b52ffd")
"""First bytes of what zstd has compressed. JSON does not begin with them."""


class ListenerRecord(BaseModel):
    """State of a listener after all actions up to its place in the feed are done."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    stream: str
    listener: str
    type: str
    table: str | None = None
    """Further table that it belongs to; None: the stream's own one."""
    owner: str
    """Random id of the assignment that wrote it."""
    partition: Count
    """Partition of the commits topic."""
    offset: Count
    """Next offset to read there."""
    topic: str = ""
    """Id of the topic that the offset is of: one that was made again has another. Empty: not known."""
    decision: Count | None = None
    """Newest decision with a handled outcome; None: no outcome yet, and any one may be the first."""
    seen: tuple[str, ...] = ()
    """Ids of the handled notifications of that decision."""
    adoptions: Annotated[int, Field(ge=0)] = 0
    """Number of adoptions of the stream that it has read. Each may use numbers of decisions again."""
    adopted: tuple[str, ...] = ()
    """Ids of the newest of them; each may be announced again."""
    step: Annotated[int, Field(ge=0)] = 0
    """Number of records before this one, of all owners."""
    state: dict[str, Any] = {}
    refused: str | None = None
    """Reason of an action that can never take effect; None: there is none."""
    fingerprint: str = ""
    """Digest of the settings with which it was refused. Other settings let the listener try again."""
    handled_at: int | None = None
    """Time of the newest handled outcome, in milliseconds since the Unix epoch."""

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Return the place of this record among those of several owners: the highest counts."""
        decision = -1 if self.decision is None else self.decision
        return (self.adoptions, decision, self.step, self.offset)


def encode(record: ListenerRecord) -> bytes:
    """Return the value of a record."""
    text = record.model_dump_json().encode()
    return text if len(text) <= _LARGE else bytes(cramjam.zstd.compress(text))


def decode(value: bytes) -> ListenerRecord | None:
    """Return the record of a value; None if this release cannot read it."""
    try:
        if value.startswith(_ZSTD):
            room = bytearray(_MOST)
            value = bytes(room[: cramjam.zstd.decompress_into(value, room)])
        return ListenerRecord.model_validate_json(value)
    except (ValidationError, cramjam.DecompressionError):
        return None


def furthest(records: Iterable[ListenerRecord]) -> ListenerRecord | None:
    """Return the record to continue from; None if there is none."""
    return max(records, key=lambda each: each.rank, default=None)


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
