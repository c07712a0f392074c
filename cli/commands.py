"""Operator commands: events of the log, so that every coordinator obeys them in the same order."""

import uuid
from typing import NamedTuple

from aiokafka import AIOKafkaProducer

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import Unreadable, partition_count, read_records
from sluicegate.coordinator.core.orders import known_regions
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Event, StreamCommand
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.starting import start_client


class Place(NamedTuple):
    """Position of a command in the events topic."""

    partition: int
    offset: int


async def known_record(settings: Settings, stream: str) -> StateRecord:
    """Return the newest state record of a stream.

    Raises KafkaError, and UserError if the stream was never opened or this release cannot read its record.
    """
    record = (await read_records(settings)).get(stream)
    if record is None:
        raise UserError(
            f"stream {stream} has no state record in {settings.kafka.topic_names().state}: "
            "no job has opened it yet, so there is nothing to order"
        )
    if isinstance(record, Unreadable):
        raise UserError(f"stream {stream}: {record.reason}")
    return record


def require_region(record: StateRecord, region: str) -> None:
    """Refuse a region that the stream does not have. Raises UserError."""
    known = sorted(known_regions(record.state))
    if region not in known:
        raise UserError(
            f"stream {record.stream} has no region {region}; it has: {', '.join(known) or 'none'}"
        )


async def append_command(settings: Settings, stream: str, command: StreamCommand) -> Place:
    """Append an operator command to the log, acknowledged by all in-sync replicas.

    Raises KafkaError, UserError.
    """
    return await append_event(settings, command_event(stream, command))


def command_event(stream: str, command: StreamCommand) -> Event:
    """Make an event with a new id of an operator command."""
    return Event(Envelope(uuid.uuid4().hex, EventType.STREAM_COMMAND, stream), command)


async def append_event(settings: Settings, event: Event) -> Place:
    """Append an event to its stream's partition, acknowledged by all in-sync replicas.

    Raises KafkaError, and UserError if the topic is missing.
    """
    topic = settings.kafka.topic_names().events
    partition = partition_of(event.envelope.stream, await partition_count(settings, topic))
    message = encode(event)
    producer = AIOKafkaProducer(**settings.kafka.client_options(), acks="all", enable_idempotence=True)
    try:
        await start_client(producer)
        found = await producer.send_and_wait(
            topic, key=message.key, value=message.value, headers=message.headers, partition=partition
        )
    finally:
        await producer.stop()
    return Place(found.partition, found.offset)
