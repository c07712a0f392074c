"""Read-only access to Kafka for the commands: no group is joined, and nothing is changed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import TopicAuthorizationFailedError

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.main import Commands
from sluicegate.cli.options import kafka_config_option
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.other_groups import group_members
from sluicegate.coordinator.stream.records import Held, read_held
from sluicegate.coordinator.stream.state_records import read_listener_key
from sluicegate.kafka.authorized import hidden_topics
from sluicegate.kafka.clients import patiently, started
from sluicegate.kafka.reading import read_batches
from sluicegate.kafka.topics import TopicProblem, ensure_topics, verify_topics

POLL_MS: Final = 500
READ_SECONDS: Final = 120.0


class StateKey(NamedTuple):
    """Key of a record in the state topic."""

    partition: int
    name: str


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Offsets of each partition of the events topic."""

    end: Mapping[int, int]
    group: Mapping[int, int]
    """Committed offsets of the group; partitions without one are absent."""


def security(settings: Settings) -> dict[str, Any]:
    """Return the client options other than the bootstrap servers."""
    options = settings.kafka.client_options()
    del options["bootstrap_servers"]
    return options


@asynccontextmanager
async def admin_client(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client. Raises KafkaError."""
    async with started(AIOKafkaAdminClient(**settings.kafka.client_options())) as admin:
        yield admin


async def partition_count(settings: Settings, topic: str) -> int:
    """Return the number of partitions of a topic. Raises KafkaError, and UserError if it does not exist."""
    async with admin_client(settings) as admin:
        # Request all topics: brokers may create a missing topic that is requested by name.
        found = {each["topic"]: each["partitions"] for each in await patiently(admin.describe_topics)}
        hidden = set() if found.get(topic) else await patiently(lambda: hidden_topics(admin, [topic]))
    if hidden:
        # Without permissions, a topic looks as if it did not exist.
        raise TopicAuthorizationFailedError(topic)
    if not found.get(topic):
        raise UserError(
            f"the topic {topic} does not exist at {settings.kafka.bootstrap_servers}; check "
            "kafka.topic_prefix, or create it: sluicegate topics create. If it was lost and the table has "
            "commits, continue from the table then: sluicegate stream adopt --stream STREAM"
        )
    return len(found[topic])


async def read_records(settings: Settings) -> dict[str, Held]:
    """Return the state records of every stream that has one, by stream.

    Raises KafkaError, UserError, TimeoutError.
    """
    count = await partition_count(settings, settings.kafka.topic_names().state)
    held = await read_held(settings.kafka, count, None)
    return {stream: each for stream, each in held.items() if each.record is not None}


async def read_own_records(settings: Settings, stream: str) -> Held:
    """Return the newest record and the base records of a stream.

    Raises KafkaError, UserError, TimeoutError.
    """
    count = await partition_count(settings, settings.kafka.topic_names().state)
    return (await read_held(settings.kafka, count, [stream])).get(stream, Held())


async def read_state_keys(settings: Settings, stream: str) -> list[StateKey]:
    """Return the keys of all records of a stream in the state topic: its state, bases and listeners.

    Raises KafkaError, UserError, and TimeoutError after READ_SECONDS.
    """
    found: dict[StateKey, bool] = {}

    def keep(record: ConsumerRecord) -> None:
        name = record.key.decode(errors="replace")
        listener = read_listener_key(name)
        if (name.partition("/")[0] if listener is None else listener[0]) == stream:
            found[StateKey(record.partition, name)] = record.value is not None

    async with asyncio.timeout(READ_SECONDS):
        async for record, _ in read_topic(settings, settings.kafka.topic_names().state):
            if record.key is not None:
                keep(record)
    return sorted(key for key, lives in found.items() if lives)


@asynccontextmanager
async def consumer_of(settings: Settings, **more: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """Give a consumer without a group; `more`: further arguments of it. Raises KafkaError."""
    options = {"enable_auto_commit": False, "auto_offset_reset": "none", **settings.kafka.client_options()}
    async with started(AIOKafkaConsumer(**options, **more)) as consumer:
        yield consumer


async def read_topic(settings: Settings, topic: str) -> AsyncIterator[tuple[ConsumerRecord, bool]]:
    """Yield each record that a topic has now, and whether clients can decode it.

    Raises KafkaError, UserError.
    """
    places = [TopicPartition(topic, number) for number in range(await partition_count(settings, topic))]
    async with consumer_of(settings, isolation_level="read_committed") as consumer:
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        consumer.assign(places)
        for each in places:
            # An explicit offset: `seek_to_beginning` races with the reset that an assignment starts.
            consumer.seek(each, begins[each])
        while any([await consumer.position(each) < ends[each] for each in places]):
            reading = await read_batches(consumer, timeout_ms=POLL_MS)
            for record in chain.from_iterable(reading.batches.values()):
                yield record, True
            for record in reading.unreadable:
                yield record, False


async def read_offsets(settings: Settings) -> LogOffsets:
    """Return the end offsets and the group's offsets of the events topic. Raises KafkaError, UserError."""
    topic = settings.kafka.topic_names().events
    partitions = [TopicPartition(topic, each) for each in range(await partition_count(settings, topic))]
    async with consumer_of(settings) as consumer:
        ends = await consumer.end_offsets(partitions)
    async with admin_client(settings) as admin:
        held = await patiently(
            lambda: admin.list_consumer_group_offsets(settings.kafka.group_id, partitions=partitions)
        )
    return LogOffsets(
        {each.partition: end for each, end in ends.items()},
        {each.partition: found.offset for each, found in held.items() if found.offset >= 0},
    )


async def refuse_members(settings: Settings, consequence: str) -> None:
    """Refuse while coordinators of the group run, or may run. Raises UserError, KafkaError."""
    group, members = settings.kafka.group_id, await count_members(settings)
    if members is None:
        raise UserError(
            f"a running coordinator could not be seen: this client may not describe the group {group}. Grant "
            f"it DESCRIBE on the group {group}"
        )
    if members:
        raise UserError(
            f"{members} coordinator{'s run' if members > 1 else ' runs'} (group {group}), and {consequence}. "
            "Stop the coordinators first (a killed one counts until its session ends)"
        )


async def count_members(settings: Settings) -> int | None:
    """Return the number of coordinators in the group; None without permission to describe the group.

    A killed coordinator counts until its session times out. Raises KafkaError.
    """
    return await group_members(settings.kafka.client_options(), settings.kafka.group_id)


# `sluicegate topics`: create the topics.


@click.group(cls=Commands)
def topics() -> None:
    """Create and verify the topics."""


@topics.command()
@kafka_config_option
@click.pass_context
def create(context: click.Context, settings: Settings) -> None:
    """Create the topics that are missing; existing topics are verified, never altered.

    No stream is needed, and so no settings file, for a coordinator that `sluicegate run --table` starts.
    """
    created, problems = run_async(settings, _create(settings))
    for spec in settings.kafka.topic_specs():
        click.echo(f"{'created' if spec.name in created else 'exists '}  {spec.name}")
        if left := created.get(spec.name):
            click.echo(f"         left to the brokers, which do not take them: {', '.join(left)}")
    for problem in problems:
        click.echo(f"{'WARNING' if problem.warning else 'PROBLEM'}  {problem}")
    context.exit(0 if all(problem.warning for problem in problems) else 1)


async def _create(settings: Settings) -> tuple[dict[str, tuple[str, ...]], list[TopicProblem]]:
    where = (settings.kafka.bootstrap_servers, settings.kafka.topic_specs(), security(settings))
    created = await ensure_topics(*where)
    return created, await verify_topics(*where)
