"""Appends of one stream to Kafka: log entries, state records, notifications, copies of old events."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

from aiokafka import ConsumerRecord

from sluicegate.coordinator.core.effects import (
    Append,
    AppendAbandoned,
    AppendDecision,
    Appended,
    AppendPolicy,
    AppendVoided,
    Carry,
)
from sluicegate.coordinator.core.state import Due, StateRecord
from sluicegate.coordinator.ownership import GROUP_HEADER
from sluicegate.coordinator.stream.links import Links
from sluicegate.events.codec import Header
from sluicegate.events.encoding import encode, origin_headers
from sluicegate.events.envelope import Envelope, Event, EventType, Origin
from sluicegate.events.models import LineageCarried
from sluicegate.events.partitioning import partition_of
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.bodies import BodyUnavailable

COPIED_AT_ONCE: Final = 500
"""Number of events that are fetched and appended again together."""


class StreamLog:
    """Appends for one stream.

    Each method returns after the acknowledgement of the broker and raises KafkaError.
    """

    def __init__(self, stream: str, partition: int, links: Links) -> None:
        """Make an appender; `partition` is the partition of the stream's events."""
        self._stream = stream
        self._partition = partition
        self._links = links
        self._signature = (GROUP_HEADER, links.settings.kafka.group_id.encode())

    async def append(self, effect: Append) -> Appended:
        """Append a decision, a policy, an abandonment or a void to the log."""
        match effect:
            case AppendDecision():
                event_type = EventType.CUT_DECIDED
            case AppendPolicy():
                event_type = EventType.STREAM_POLICY
            case AppendAbandoned():
                event_type = EventType.CUT_ABANDONED
            case AppendVoided():
                event_type = EventType.CUT_VOIDED
        return await self._append(Event(Envelope(str(uuid.uuid4()), event_type, self._stream), effect.body))

    async def carry(self, effect: Carry) -> Appended:
        """Append copies of the events at these offsets, and then the `LineageCarried` mark.

        Retention deletes the originals later. Raises KafkaError, BodyUnavailable.
        """
        for start in range(0, len(effect.offsets), COPIED_AT_ONCE):
            await self._copy(effect.offsets[start : start + COPIED_AT_ONCE])
        await reach(Failpoint.CARRY_COPIED)
        mark = Envelope(
            str(uuid.uuid4()), EventType.LINEAGE_CARRIED, self._stream, effect.region, effect.lineage
        )
        return await self._append(Event(mark, LineageCarried(upto=effect.upto)))

    async def record(self, record: StateRecord) -> None:
        """Append a state record."""
        await self._links.producer.send_and_wait(
            self._links.topics.state,
            record.model_dump_json().encode(),
            key=self._stream.encode(),
            partition=partition_of(self._stream, self._links.partitions.state),
            headers=[self._signature],
        )

    async def announce(self, due: Due) -> None:
        """Append a notification."""
        envelope = Envelope(due.id, due.type, self._stream, due.region, due.lineage)
        message = encode(Event(envelope, due.body))
        await self._links.producer.send_and_wait(
            self._links.topics.commits,
            message.value,
            key=message.key,
            partition=partition_of(self._stream, self._links.partitions.commits),
            headers=message.headers,
        )

    async def _append(self, event: Event) -> Appended:
        message = encode(event)
        sent = await self._links.producer.send_and_wait(
            self._links.topics.events,
            message.value,
            key=message.key,
            partition=self._partition,
            headers=[*message.headers, self._signature],
        )
        return Appended(sent.offset)

    async def _copy(self, offsets: Sequence[int]) -> None:
        topic, partition = self._links.topics.events, self._partition
        found = await self._links.fetcher.records(partition, offsets)
        lacking = [offset for offset in offsets if offset not in found]
        if lacking:
            raise BodyUnavailable(f"there is no event at offset {lacking[0]} of partition {partition}")
        sent = [
            await self._links.producer.send(
                topic, copy.value, key=copy.key, partition=partition, headers=_copy_headers(copy)
            )
            for copy in (found[offset] for offset in offsets)
        ]
        await asyncio.gather(*sent)


def _copy_headers(record: ConsumerRecord) -> list[Header]:
    """Return the headers of a copy: those of the original, and the place of the original."""
    known = [(name, value) for name, value in record.headers if value is not None]
    if any(name == "ce_firstoffset" for name, _ in known):
        return known
    return [*known, *origin_headers(Origin(record.offset, record.timestamp))]
