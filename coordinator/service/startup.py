"""Prerequisites of the service: it joins its group when Kafka is there and the topics are right."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.stream.links import Partitions
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.internals import LoginRefused
from sluicegate.kafka.outages import KAFKA
from sluicegate.kafka.permissions import Client, format_grants, lacking
from sluicegate.kafka.topics import BrokersUnavailable, TopicNames, TopicProblem, TopicsRefused, verify_topics
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.registry import adapter
from sluicegate.state_store import StateStore

log = structlog.get_logger(__name__)

RETRY = 2.0


async def wait_for_topics(settings: Settings, topics: TopicNames, tell: Callable[[str], None]) -> Partitions:
    """Wait for Kafka, report the delay, and check the topics.

    Raises TopicsRefused with all problems.
    """
    kafka = settings.kafka
    options = kafka.client_options()
    servers = options.pop("bootstrap_servers")
    specs = kafka.topic_specs()
    while True:
        try:
            found = await verify_topics(servers, specs, options)
            for each in found:
                if each.warning:
                    log.warning("topic setting", topic=each.topic, problem=each.wrong, remedy=each.remedy)
            if problems := [each for each in found if not each.warning]:
                raise TopicsRefused(_told(problems))
            await _tell_lacking(settings)
            return await _count(settings, topics)
        except (BrokersUnavailable, KafkaError) as error:
            if not isinstance(error.__cause__, LoginRefused):  # which is already said
                KAFKA.trouble(str(error))
            tell(f"Kafka is away: {error}")
            await asyncio.sleep(spread(RETRY))


async def _tell_lacking(settings: Settings) -> None:
    """Log the permissions that this client lacks. The steps that need them fail later. Raises KafkaError."""
    kafka = settings.kafka
    where = kafka.topic_prefix, kafka.group_id
    found = await lacking(kafka.client_options(), Client.COORDINATOR, *where)
    if found:
        steps = [each.step for each in found]
        log.error("permissions are missing", remedy=f"grant {format_grants(found, *where)}", steps=steps)


def _told(problems: Sequence[TopicProblem]) -> str:
    lines = [str(problem) for problem in problems if not problem.missing]
    if missing := [problem.topic for problem in problems if problem.missing]:
        # One sluicegate command creates them all with the right settings.
        lines.append(
            f"these topics do not exist: {', '.join(missing)}; create them with: sluicegate topics create"
        )
    return "\n".join(lines)


def absent(topic: str) -> str:
    """Format the message for a missing events topic: without its metadata the group assigns no partitions."""
    return (
        f"the topic {topic} does not exist any more, so nothing is read. Create it again with "
        "`sluicegate topics create`; `sluicegate status` then shows the way out of each stream"
    )


async def _count(settings: Settings, topics: TopicNames) -> Partitions:
    admin = AIOKafkaAdminClient(**settings.kafka.client_options())
    async with started(admin):
        found = {
            each["topic"]: len(each["partitions"])
            for each in await admin.describe_topics([topics.events, topics.commits, topics.state])
        }
    return Partitions(found[topics.events], found[topics.commits], found[topics.state])


async def load_adapters(settings: Settings) -> None:
    """Import the table formats of all streams.

    The streams of a format that cannot be imported report the error.
    """
    for name in {stream.format for stream in settings.streams.values()}:
        with suppress(TableRefused):
            await asyncio.to_thread(adapter, name)


def table_problems(held: Settings, wanted: Settings) -> list[str]:
    """Return why tables of new or changed streams cannot be used; blocks.

    A stream that runs must not stall for a wrong key of a reload. So a changed table is opened, too. One that
    does not answer is no problem of the settings, and a new stream may wait for its table.
    """
    found = []
    for name, stream in wanted.streams.items():
        before = held.streams.get(name)
        if before is not None and _table_of(before) == _table_of(stream):
            continue
        try:
            opened = adapter(stream.format)
        except TableRefused as error:
            found.append(f"streams.{name}.format: {error}")
            continue
        try:
            table = opened.parse_table(stream.table, stream.adapter_options())
            if before is not None:
                with suppress(LakeUnavailable):
                    opened.open_committer(table, stream.commit_user).close()
        except TableRefused as error:
            found.append(f"streams.{name}: {error}")
    return found


def _table_of(stream: StreamSettings) -> tuple[object, ...]:
    return stream.table, stream.format, stream.adapter_options(), stream.commit_user


@asynccontextmanager
async def state_store(settings: Settings) -> AsyncIterator[StateStore | None]:
    """Give the state store of the settings; None if they have none."""
    store = make_store(settings)
    try:
        yield store
    finally:
        if store is not None:
            await store.close()


def make_store(settings: Settings) -> StateStore | None:
    """Return the state store of the settings; None if they have none."""
    if settings.redis is None:
        return None
    # Its client is slow to import, and need not be installed without a store.
    from sluicegate.state_store.redis_store import RedisStateStore

    return RedisStateStore(
        settings.redis.url.get_secret_value(),
        prefix=settings.redis.key_prefix,
        timeout=settings.redis.timeout,
        options=settings.redis.client_options(),
    )
