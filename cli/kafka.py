"""Reading from Kafka what the commands show; nothing is joined or changed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from sluicegate.cli.errors import UserError
from sluicegate.coordinator.core.state import RECORD_VERSION, StateRecord
from sluicegate.coordinator.ownership import PATIENCE, group_members
from sluicegate.coordinator.settings.model import Settings
from sluicegate.kafka.starting import start_client

POLL_MS: Final = 500
READ_SECONDS: Final = 120.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of a stream that this release cannot read."""

    reason: str


class Dated(NamedTuple):
    """A state record, and when it was written."""

    record: StateRecord | Unreadable
    time: int
    """Milliseconds since the Unix epoch, by the broker's clock."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Of each partition of the events topic."""

    end: Mapping[int, int]
    group: Mapping[int, int]
    """What the group has committed; partitions without are absent."""


def security(settings: Settings) -> dict[str, Any]:
    """What clients need beside the address."""
    options = settings.kafka.client_options()
    del options["bootstrap_servers"]
    return options


@asynccontextmanager
async def admin_client(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client. Raises KafkaError."""
    admin = AIOKafkaAdminClient(**settings.kafka.client_options())
    try:
        await start_client(admin)
        yield admin
    finally:
        await admin.close()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat what fails for a passing reason, such as a coordinator that is still being chosen."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)


async def partition_count(settings: Settings, topic: str) -> int:
    """How many partitions a topic has. Raises UserError if it does not exist."""
    async with admin_client(settings) as admin:
        # All topics: asking for a missing one by name could create it.
        found = {each["topic"]: each["partitions"] for each in await admin.describe_topics()}
    if not found.get(topic):
        raise UserError(
            f"the topic {topic} does not exist at {settings.kafka.bootstrap_servers}; check "
            "kafka.topic_prefix, or create it: sluicegate topics create"
        )
    return len(found[topic])


async def read_records(settings: Settings) -> dict[str, StateRecord | Unreadable]:
    """The newest state record of every stream. Raises KafkaError, UserError."""
    return {stream: dated.record for stream, dated in (await read_dated_records(settings)).items()}


async def read_dated_records(settings: Settings) -> dict[str, Dated]:
    """The newest state record of every stream, and when it was written. Raises KafkaError, UserError."""
    topic = settings.kafka.topic_names().state
    partitions = [TopicPartition(topic, each) for each in range(await partition_count(settings, topic))]
    newest: dict[str, tuple[tuple[int, int], bytes]] = {}
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    try:
        await start_client(consumer)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for each in partitions:
            # Seeking "to the beginning" races with the reset that an assignment starts by itself.
            consumer.seek(each, begins[each])
        async with asyncio.timeout(READ_SECONDS):
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for record in records:
                        _keep_newest(newest, record)
    finally:
        await consumer.stop()
    return {stream: Dated(_parse(value), at) for stream, ((at, _), value) in newest.items()}


def _keep_newest(newest: dict[str, tuple[tuple[int, int], bytes]], record: Any) -> None:
    # The keys of listeners have a slash, which a stream's name cannot have.
    if record.key is None or record.value is None or b"/" in record.key:
        return
    at, stream = (record.timestamp, record.offset), record.key.decode(errors="replace")
    if stream not in newest or newest[stream][0] <= at:
        newest[stream] = (at, record.value)


def _parse(value: bytes) -> StateRecord | Unreadable:
    try:
        record = StateRecord.model_validate_json(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return Unreadable(
            f"its state record cannot be read ({where}: {first['msg']}); is this release older?"
        )
    if record.version > RECORD_VERSION:
        return Unreadable(
            f"its state record has version {record.version}, this release reads {RECORD_VERSION}; upgrade it"
        )
    return record


async def read_offsets(settings: Settings) -> LogOffsets:
    """End offsets and the group's offsets of the events topic. Raises KafkaError, UserError."""
    topic = settings.kafka.topic_names().events
    partitions = [TopicPartition(topic, each) for each in range(await partition_count(settings, topic))]
    consumer = AIOKafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
    try:
        await start_client(consumer)
        ends = await consumer.end_offsets(partitions)
    finally:
        await consumer.stop()
    async with admin_client(settings) as admin:
        held = await patiently(
            lambda: admin.list_consumer_group_offsets(settings.kafka.group_id, partitions=partitions)
        )
    return LogOffsets(
        {each.partition: end for each, end in ends.items()},
        {each.partition: found.offset for each, found in held.items() if found.offset >= 0},
    )


async def count_members(settings: Settings) -> int | None:
    """How many coordinators are in the group; None if this client may not see it. Raises KafkaError.

    One that was killed counts until its session ends.
    """
    return await group_members(settings.kafka.client_options(), settings.kafka.group_id)
