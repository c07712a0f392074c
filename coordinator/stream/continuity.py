"""Checks that the log continues a state record: same topic, same partition, same commit user."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.coordinator.core.commit import ANEW
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.codec import read_envelope
from sluicegate.events.envelope import Envelope
from sluicegate.kafka.bodies import BodyFetcher
from sluicegate.kafka.internals import fetch_committed


class LogRange(NamedTuple):
    """Offsets of a partition: the first one, and the one after the last record."""

    begin: int
    end: int


async def committed_with_note(consumer: AIOKafkaConsumer, source: TopicPartition) -> tuple[int | None, str]:
    """The group's offset, if it has one, and what was noted beside it. Raises KafkaError."""
    found = await fetch_committed(consumer, source)
    return (None, "") if found is None or found.offset < 0 else (found.offset, found.metadata or "")


async def last_events(
    fetcher: BodyFetcher, partition: int, records: Collection[StateRecord], log: LogRange
) -> Mapping[int, str | None]:
    """The ids of the events at the offsets that the records reached, where the log has them.

    Raises BodyUnavailable, KafkaError or TimeoutError.
    """
    offsets = sorted({record.applied for record in records if log.begin <= record.applied < log.end})
    if not offsets:
        return {}
    found = await fetcher.records(partition, offsets)
    read = {offset: read_envelope(found[offset].headers) if offset in found else None for offset in offsets}
    return {offset: each.id if isinstance(each, Envelope) else None for offset, each in read.items()}


class Home(NamedTuple):
    """A stream's place as the settings and the topic have it now."""

    partition: int
    commit_user: str


def obstacle(record: StateRecord, home: Home, log: LogRange, events: Mapping[int, str | None]) -> str | None:
    """Return the reason if no coordinator may continue from the record, else None."""
    return (
        grown(record, home.partition)
        or other_user(record, home.commit_user)
        or discontinuity(record, log, events)
    )


def discontinuity(record: StateRecord, log: LogRange, events: Mapping[int, str | None]) -> str | None:
    """Return the reason if the log does not continue the record, else None."""
    reached = max(record.low_water, record.applied + 1)
    if record.low_water > log.end or record.applied >= log.end:
        return _recreated(f"offset {reached} was reached before, but the log ends at {log.end}")
    known = record.applied_id
    if known is not None and record.applied in events and events[record.applied] != known:
        return _recreated(f"another event stands at offset {record.applied} than the one that was read")
    if record.low_water < log.begin:
        return deleted(record.low_water, log.begin)
    return None


def grown(record: StateRecord, partition: int) -> str | None:
    """Return the reason if this is not the partition of the stream, else None."""
    known = record.state.partition
    if known in (None, partition):
        return None
    return (
        f"the stream's events stand in partition {known}, but by the topic's partitions as they are now it "
        f"belongs to partition {partition}: the events topic has grown, and Kafka does not shrink one. The "
        f"way out: {ANEW}"
    )


def other_user(record: StateRecord, commit_user: str) -> str | None:
    """Return the reason if the stream may not continue as this commit user, else None.

    The check also holds before the first decision of the record: a later one may be in the table already.
    """
    if record.commit_user in (None, commit_user):
        return None
    return (
        f"the stream commits as {record.commit_user}, and the settings say {commit_user}: what is in the "
        "table could not be told from what is not, and would be written twice. Set "
        f'streams.{record.stream}.commit_user = "{record.commit_user}" again, for all coordinators'
    )


def deleted(needed: int, begin: int) -> str:
    """Say that events went before they were read or committed."""
    return (
        f"events from offset {needed} on are needed, but the log begins at {begin}: they were deleted before "
        "they were committed. Their files are still there, but which they are is not known any more: "
        f"{ANEW}; and raise retention.ms of the events topic"
    )


def _recreated(how: str) -> str:
    return f"{how}: the events topic was made anew. Put the old one back, or {ANEW}"


def newer(offset: int, partition: int, reason: str) -> str:
    """A record that only a newer release reads, or nobody."""
    return (
        f"the record at offset {offset} of partition {partition} of the events topic: {reason}. If no "
        f"release of Sluicegate wrote it, {ANEW}"
    )


def failed_at(offset: int, error: Exception) -> str:
    """A record that the core fails at, which it never should."""
    return (
        f"the record at offset {offset} of the events topic cannot be taken in ({type(error).__name__}: "
        f"{error}). That is a defect of Sluicegate, and nothing is lost: please report it with this record; "
        "the stream goes on from here with a release that takes it in"
    )
