"""Every use of a private attribute of aiokafka, each with the reason that there is no public way.

`tests/kafka/test_internals.py` fails when a release of aiokafka changes one of them.
"""

import asyncio
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.record.default_records import _DefaultRecordBatchPy as RecordBatch
from aiokafka.structs import OffsetAndMetadata

__all__ = [
    "EncodedRecords",
    "RecordBatch",
    "abandon_producer",
    "client_of",
    "discard_coordination_error",
    "encoded_records",
    "fetch_committed",
    "positions",
    "send_admin_request",
    "sender_ended",
]
"""`RecordBatch` is the batch in Python: the compiled one does not give its bytes away."""


class EncodedRecords(NamedTuple):
    """The records of a batch, uncompressed and not decoded."""

    buffer: bytearray
    start: int
    number: int


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """Return the connections of a consumer. A producer has them in public, as `client`."""
    return consumer._client


def positions(consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
    """Return the known positions of the assigned partitions. The public `position` waits for unknown ones."""
    subscription = consumer._subscription.subscription
    assignment = subscription.assignment if subscription is not None else None
    if assignment is None:
        return {}
    states = {source: assignment.state_value(source) for source in assignment.tps}
    return {source: state.position for source, state in states.items() if state and state.has_valid_position}


async def fetch_committed(consumer: AIOKafkaConsumer, source: TopicPartition) -> OffsetAndMetadata | None:
    """Fetch the group's offset with its metadata, which the public `committed` drops. Raises KafkaError.

    Without a commit the result is None, or has an offset below 0.
    """
    return (await consumer._coordinator.fetch_committed_offsets([source])).get(source)


def discard_coordination_error(consumer: AIOKafkaConsumer) -> None:
    """Mark the error of a consumer's ended group task as retrieved.

    The consumer has raised it before; asyncio would report it again when the task is collected.
    """
    # Consumers without a group, and those that were not started, have no such task.
    task = getattr(consumer._coordinator, "_coordination_task", None)
    if task is not None and task.done() and not task.cancelled():
        task.exception()


def sender_ended(producer: AIOKafkaProducer) -> bool:
    """Return True if the sending task has ended. Every later message fails, without any other sign."""
    return bool(producer._sender.sender_task.done())


async def abandon_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer without delivery. `stop` of an idempotent one waits for its brokers without end."""
    producer._closed = True
    sending = producer._sender.sender_task
    sending.cancel()
    await producer.client.close()
    await asyncio.wait({sending})


async def send_admin_request(admin: AIOKafkaAdminClient, request: Any, node: int) -> Any:
    """Send a request that the admin client has no method for. Raises KafkaError."""
    return await admin._send_request(request, node)


def encoded_records(batch: RecordBatch) -> EncodedRecords:
    """Uncompress a batch. Its public iterator decodes the names of headers, and fails for the whole batch."""
    batch._maybe_uncompress()
    return EncodedRecords(batch._buffer, batch._pos, batch._num_records)
