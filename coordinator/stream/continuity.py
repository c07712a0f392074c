"""Checks that the log continues a state record: same topic, same partition, same commit user."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.codec import event_id
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.kafka.bodies import BodyFetcher
from sluicegate.kafka.internals import fetch_committed


class LogRange(NamedTuple):
    """Offsets of a partition: the first one, and the one after the last record."""

    begin: int
    end: int


class Home(NamedTuple):
    """A stream's place as the settings and the topic have it now."""

    partition: int
    commit_user: str


async def committed_with_note(consumer: AIOKafkaConsumer, source: TopicPartition) -> tuple[int | None, str]:
    """Return the group's offset, if it has one, and the note beside it. Raises KafkaError."""
    found = await fetch_committed(consumer, source)
    return (None, "") if found is None or found.offset < 0 else (found.offset, found.metadata or "")


async def last_events(
    fetcher: BodyFetcher, partition: int, records: Collection[StateRecord], log: LogRange
) -> Mapping[int, str | None]:
    """Return the ids of the events at the offsets that the records reached, where the log has them.

    Raises BodyUnavailable, KafkaError or TimeoutError.
    """
    offsets = sorted({record.applied for record in records if log.begin <= record.applied < log.end})
    if not offsets:
        return {}
    found = await fetcher.records(partition, offsets)
    return {offset: event_id(found[offset].headers) if offset in found else None for offset in offsets}


def obstacle(
    record: StateRecord, home: Home, log: LogRange, events: Mapping[int, str | None]
) -> Problem | None:
    """Return the problem if no coordinator may continue from the record, else None."""
    return (
        other_partition(record, home.partition)
        or other_user(record, home.commit_user)
        or discontinuity(record, log, events)
    )


def other_partition(record: StateRecord, partition: int) -> Problem | None:
    """Return the problem if this is not the partition of the stream: the events topic has grown."""
    known = record.state.partition
    if known in (None, partition):
        return None
    return Problem(code=Code.OTHER_PARTITION, number=known, other=partition)


def other_user(record: StateRecord, commit_user: str) -> Problem | None:
    """Return the problem if the stream may not continue as this commit user, else None.

    The check also holds before the first decision of the record: a later one may be in the table already.
    """
    if record.commit_user in (None, commit_user):
        return None
    return Problem(code=Code.OTHER_COMMIT_USER, names=(record.commit_user, commit_user))


def discontinuity(record: StateRecord, log: LogRange, events: Mapping[int, str | None]) -> Problem | None:
    """Return the problem if the log does not continue the record, else None."""
    reached, known = max(record.low_water, record.applied + 1), record.applied_id
    if reached > log.end:
        return lacking(reached, Cause(code=CauseCode.LOG_ENDS_EARLIER, number=log.end))
    if known is not None and record.applied in events and events[record.applied] != known:
        return lacking(record.applied, Cause(code=CauseCode.OTHER_EVENT))
    if record.low_water < log.begin:
        return deleted(record.low_water, log.begin)
    return None


def deleted(needed: int, begin: int) -> Problem:
    """Return the problem of events that were deleted before they were read or committed."""
    return lacking(needed, Cause(code=CauseCode.LOG_BEGINS_LATER, number=begin))


def lacking(needed: int, cause: Cause) -> Problem:
    """Return the problem of a log that lacks the events from an offset on."""
    return Problem(code=Code.LOG_DISCONTINUOUS, number=needed, cause=cause)
