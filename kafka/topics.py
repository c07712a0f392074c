"""The four topics: names, desired settings, and the I/O that creates and inspects them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code

from sluicegate.kafka.authorized import hidden_topics
from sluicegate.kafka.clients import started
from sluicegate.kafka.patience import patiently
from sluicegate.kafka.topic_checks import ObservedTopic, TopicProblem, TopicRole, TopicSpec, find_problems

__all__ = [
    "MAX_MESSAGE_BYTES",
    "STATE_MESSAGE_BYTES",
    "BrokersUnavailable",
    "TopicError",
    "TopicNames",
    "TopicProblem",
    "TopicRole",
    "TopicSpec",
    "TopicsRefused",
    "ensure_topics",
    "topic_specs",
    "verify_topics",
]

DAY_MS: Final = 86_400_000
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default, so a broker with default settings is sufficient."""
STATE_MESSAGE_BYTES: Final = 4 << 20
"""Room for the largest state record: all regions and texts, savepoints, and a decision without an outcome."""
DEAD_LETTER_EXTRA_BYTES: Final = 65_536
"""Additional size of a dead letter: it contains the original message and the reason."""

# The coordinators delete the events that nobody needs; see `coordinator/stream/records.py`.
_UNLIMITED: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    # Recovery reads a whole partition, so keep its uncompacted tail short.
    "segment.bytes": "67108864",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}

_PREFIX: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_NO_SETTINGS: Final[Mapping[str, Any]] = {}


class TopicError(Exception):
    """Base of the errors of this module."""


class TopicsRefused(TopicError):
    """The brokers refused, and a retry does not help; the text contains the remedy."""


class BrokersUnavailable(TopicError):
    """The brokers did not respond, or not in time; a retry may help."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names of the topics of one deployment, all with the same prefix."""

    prefix: str = "sluicegate"

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(
                f"{self.prefix!r} cannot begin a topic's name: use letters, digits, '.', '_', '-'"
            )

    @property
    def events(self) -> str:
        """Name of the topic with input events and decisions."""
        return f"{self.prefix}.events"

    @property
    def commits(self) -> str:
        """Name of the topic with outcomes, the public notifications."""
        return f"{self.prefix}.commits"

    @property
    def state(self) -> str:
        """Name of the compacted topic with state records."""
        return f"{self.prefix}.state"

    @property
    def dead_letters(self) -> str:
        """Name of the topic with unroutable and malformed messages, each with its reason."""
        return f"{self.prefix}.dead-letters"


def largest_state_message(max_message_bytes: int) -> int:
    """Return the bytes of the largest message in the topic of state records, by that of the other topics."""
    return max(max_message_bytes, STATE_MESSAGE_BYTES)


def topic_specs(
    names: TopicNames,
    *,
    partitions: int = 12,
    replication_factor: int = 1,
    retention_ms: int = 7 * DAY_MS,
    dead_letter_retention_ms: int = 90 * DAY_MS,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> tuple[TopicSpec, ...]:
    """Return the desired properties of the four topics of a deployment.

    Events, commits and state have `partitions` each: a stream has the same partition number in all three.
    Raises ValueError if a number is below 1.
    """
    if partitions < 1 or replication_factor < 1:
        raise ValueError("partitions and replication factor must be 1 or more")
    durable = {"min.insync.replicas": "2"} if replication_factor > 1 else {}
    sized = {"max.message.bytes": str(max_message_bytes)}
    append_time = {"message.timestamp.type": "LogAppendTime"}
    by_time = {**_UNLIMITED, "retention.ms": str(retention_ms)}
    ordered = {**append_time, **sized, **durable, "unclean.leader.election.enable": "false"}
    records = {**_COMPACTED, **ordered, "max.message.bytes": str(largest_state_message(max_message_bytes))}
    dead_letters = {
        "cleanup.policy": "delete",
        "retention.ms": str(dead_letter_retention_ms),
        "max.message.bytes": str(max_message_bytes + DEAD_LETTER_EXTRA_BYTES),
        **durable,
    }
    return (
        TopicSpec(names.events, TopicRole.EVENTS, partitions, replication_factor, {**_UNLIMITED, **ordered}),
        TopicSpec(names.commits, TopicRole.COMMITS, partitions, replication_factor, {**by_time, **ordered}),
        TopicSpec(names.state, TopicRole.STATE, partitions, replication_factor, records),
        TopicSpec(names.dead_letters, TopicRole.DEAD_LETTERS, 1, replication_factor, dead_letters),
    )


async def ensure_topics(
    bootstrap_servers: str,
    specs: Sequence[TopicSpec],
    client_settings: Mapping[str, Any] = _NO_SETTINGS,
    *,
    seconds: float = 30.0,
) -> list[str]:
    """Create the missing topics, and wait until they have leaders. Return the names of the created topics.

    Existing topics are never altered. If an aligned topic exists, the others get its number of partitions.
    `client_settings` are passed to aiokafka unchanged (security_protocol, ssl_context, sasl_mechanism ...).
    Raises TopicsRefused or BrokersUnavailable.
    """
    async with _admin(bootstrap_servers, client_settings, seconds) as admin:
        existing = await _partitions(admin)
        missing = [spec for spec in specs if spec.name not in existing]
        if not missing:
            return []
        counts = [len(existing[spec.name]) for spec in specs if spec.aligned and spec.name in existing]
        new = [
            NewTopic(
                name=spec.name,
                num_partitions=counts[0] if spec.aligned and counts else spec.partitions,
                replication_factor=spec.replication_factor,
                topic_configs=dict(spec.settings),
            )
            for spec in missing
        ]
        response = await patiently(lambda: admin.create_topics(new, timeout_ms=int(seconds * 1000)))
        created = _created(response.topic_errors)
        await _await_leaders(admin, {spec.name for spec in missing})
        return created


async def verify_topics(
    bootstrap_servers: str,
    specs: Sequence[TopicSpec],
    client_settings: Mapping[str, Any] = _NO_SETTINGS,
    *,
    seconds: float = 30.0,
) -> list[TopicProblem]:
    """Return the problems of the topics. Changes nothing.

    Only differences that endanger the protocol are problems. Raises TopicsRefused or BrokersUnavailable.
    """
    async with _admin(bootstrap_servers, client_settings, seconds) as admin:
        existing = await _partitions(admin)
        present = [spec.name for spec in specs if spec.name in existing]
        settings = await _settings(admin, present)
        absent = [spec.name for spec in specs if spec.name not in existing]
        hidden = await patiently(lambda: hidden_topics(admin, absent))
    observed = {
        name: ObservedTopic(
            partitions=len(existing[name]),
            replicas=min(len(partition["replicas"]) for partition in existing[name]),
            settings=settings[name],
        )
        for name in present
    }
    found = find_problems(specs, observed, bootstrap_servers)
    return [_hidden(each.topic) if each.missing and each.topic in hidden else each for each in found]


def _hidden(topic: str) -> TopicProblem:
    return TopicProblem(
        topic, "this client may not see whether the topic exists", f"Grant it DESCRIBE on the topic {topic}"
    )


async def topic_settings(options: Mapping[str, Any], topic: str) -> dict[str, str]:
    """Return the settings of a topic. Raises KafkaError."""
    async with started(AIOKafkaAdminClient(**options)) as admin:
        return (await _settings(admin, [topic])).get(topic, {})


@asynccontextmanager
async def _admin(
    bootstrap_servers: str, client_settings: Mapping[str, Any], seconds: float
) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        **{
            "request_timeout_ms": int(seconds * 1000),
            **client_settings,
            "bootstrap_servers": bootstrap_servers,
        }
    )
    try:
        async with asyncio.timeout(seconds), started(admin):
            yield admin
    except TimeoutError as error:
        raise BrokersUnavailable(f"Kafka at {bootstrap_servers} did not answer within {seconds} s") from error
    except KafkaError as error:
        if error.retriable:
            raise BrokersUnavailable(
                f"Kafka at {bootstrap_servers} cannot be reached: {error}; "
                "check the address and the security settings"
            ) from error
        raise TopicsRefused(f"Kafka at {bootstrap_servers} refuses: {error}") from error


async def _partitions(admin: AIOKafkaAdminClient) -> dict[str, list[dict[str, Any]]]:
    """Return the partitions of all topics. A request for a missing topic by name could create it."""
    topics = await patiently(admin.describe_topics)
    return {topic["topic"]: topic["partitions"] for topic in topics if topic["partitions"]}


async def _settings(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    found: dict[str, dict[str, str]] = {}
    for response in await patiently(lambda: admin.describe_configs(resources)) if resources else []:
        for code, message, _, name, entries, *_ in response.resources:
            if code:
                grant = (
                    f"; grant this client DESCRIBE_CONFIGS on the topic {name}"
                    if code == TopicAuthorizationFailedError.errno
                    else ""
                )
                raise for_code(code)(f"the settings of {name} cannot be read: {message}{grant}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


def _created(results: Iterable[tuple[Any, ...]]) -> list[str]:
    created: list[str] = []
    for topic, code, *message in results:
        if code == 0:
            created.append(topic)
        # Another client may create the topic at the same time; the result is the same.
        elif code != TopicAlreadyExistsError.errno:
            error = for_code(code)
            text = f"the topic {topic} cannot be created: {message[0] if message else error.description}"
            if error.retriable:
                raise BrokersUnavailable(text)
            if error is TopicAuthorizationFailedError:
                raise TopicsRefused(f"{text}. Grant this client CREATE on the topic {topic}")
            raise TopicsRefused(f"{text}; change the setting, or create the topic yourself")
    return created


async def _await_leaders(admin: AIOKafkaAdminClient, names: set[str]) -> None:
    """Wait until every partition has a leader. The caller's timeout limits the wait. Raises TopicsRefused."""
    if hidden := await patiently(lambda: hidden_topics(admin, names)):
        raise TopicsRefused("; ".join(str(_hidden(topic)) for topic in sorted(hidden)))
    while True:
        existing = await _partitions(admin)
        if all(
            name in existing and all(partition["leader"] >= 0 for partition in existing[name])
            for name in names
        ):
            return
        await asyncio.sleep(0.05)
