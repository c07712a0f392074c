"""The four topics. A wrong setting can lose events, so each requirement is data that checks itself."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from sluicegate.kafka.authorized import hidden_topics
from sluicegate.kafka.clients import patiently, started

# Requirements on the topics, as data that checks itself and names the remedy of each problem.


class TopicRole(StrEnum):
    """Role of a topic. The name of the topic ends with it."""

    EVENTS = "events"
    COMMITS = "commits"
    STATE = "state"
    DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Desired properties of one topic."""

    name: str
    role: TopicRole
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]

    @property
    def aligned(self) -> bool:
        """True if a stream has the same partition number in this topic as in the other aligned topics."""
        return self.role is not TopicRole.DEAD_LETTERS


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """Actual properties of one topic."""

    partitions: int
    # The smallest number of replicas of any partition.
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A property of a topic that endangers the protocol."""

    topic: str
    wrong: str
    remedy: str
    """Instruction to fix the problem, with the command."""
    missing: bool = False
    """True if the topic does not exist."""
    warning: bool = False
    """True if the service runs all the same."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.wrong}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirement on one setting of the topics that have certain roles."""

    setting: str
    roles: frozenset[TopicRole]
    holds: Callable[[str, TopicSpec, ObservedTopic], bool]
    because: str
    wanted: Callable[[str, TopicSpec], str] = lambda setting, spec: spec.settings[setting]
    warning: bool = False


ALL: Final = frozenset(TopicRole)
BY_TIME: Final = ALL - {TopicRole.STATE}
ORDERED: Final = ALL - {TopicRole.DEAD_LETTERS}


def _at_least(setting: str) -> Callable[[str, TopicSpec, ObservedTopic], bool]:
    return lambda value, spec, _: int(value) >= int(spec.settings[setting])


REQUIREMENTS: Final = (
    Requirement(
        "message.timestamp.type",
        ORDERED,
        lambda value, _, __: value == "LogAppendTime",
        "timers run on append times, and a producer's clock must not reach them",
    ),
    Requirement(
        "cleanup.policy",
        BY_TIME,
        lambda value, _, __: "compact" not in value,
        "compaction drops events that share a key, among them files that are not committed yet",
    ),
    Requirement(
        "cleanup.policy",
        frozenset({TopicRole.STATE}),
        lambda value, _, __: value == "compact",
        "the newest record of each stream must stay for ever, and older ones must go",
    ),
    Requirement(
        "max.message.bytes",
        ALL,
        _at_least("max.message.bytes"),
        "messages of the configured size would be refused",
    ),
    Requirement(
        "retention.ms",
        frozenset({TopicRole.EVENTS}),
        lambda value, _, __: int(value) < 0,
        "events are deleted at this age also if a stream still needs them",
        warning=True,
    ),
    Requirement(
        "retention.ms",
        frozenset({TopicRole.COMMITS}),
        lambda value, spec, _: int(value) < 0 or int(value) >= int(spec.settings["retention.ms"]),
        "notifications would be deleted earlier than the configured retention says",
    ),
    Requirement(
        "retention.bytes",
        frozenset({TopicRole.EVENTS, TopicRole.COMMITS}),
        lambda value, _, __: int(value) < 0,
        "a burst of events would delete older ones that are not committed yet",
    ),
    Requirement(
        "unclean.leader.election.enable",
        ORDERED,
        lambda value, _, __: value == "false",
        "a replica that lags could become the leader, and acknowledged messages would be gone",
    ),
    Requirement(
        "min.insync.replicas",
        ALL,
        lambda value, _, topic: topic.replicas < 2 or int(value) >= 2,
        "a message would count as acknowledged while only one replica has it",
        lambda _, __: "2",
    ),
    Requirement(
        "min.insync.replicas",
        ALL,
        lambda value, _, topic: int(value) <= topic.replicas,
        "there are fewer replicas than that, so nothing can be written",
        lambda _, spec: spec.settings.get("min.insync.replicas", "1"),
    ),
)


def find_problems(
    specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic], bootstrap_servers: str
) -> list[TopicProblem]:
    """Compare the topics as they are with how they have to be."""
    return [
        *_missing(specs, observed, bootstrap_servers),
        *_misaligned(specs, observed, bootstrap_servers),
        *_misconfigured(specs, observed, bootstrap_servers),
    ]


def _missing(
    specs: Iterable[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    for spec in specs:
        if spec.name not in observed:
            settings = " ".join(f"--config {key}={value}" for key, value in sorted(spec.settings.items()))
            yield TopicProblem(
                spec.name,
                "the topic does not exist, or this client may not describe it",
                f"Create it: kafka-topics.sh --bootstrap-server {servers} --create --topic {spec.name} "
                f"--partitions {spec.partitions} --replication-factor {spec.replication_factor} {settings}",
                missing=True,
            )


def _misaligned(
    specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    events = next((spec.name for spec in specs if spec.role is TopicRole.EVENTS), None)
    if events is None or events not in observed:
        return
    wanted = observed[events].partitions
    for spec in specs:
        if not spec.aligned or spec.name not in observed or observed[spec.name].partitions == wanted:
            continue
        found = observed[spec.name].partitions
        remedy = (
            f"Add the partitions that are missing: kafka-topics.sh --bootstrap-server {servers} --alter "
            f"--topic {spec.name} --partitions {wanted}"
            if found < wanted
            else "Kafka cannot take partitions away. If no stream has registered yet, delete it and "
            "create it again; otherwise use another topic prefix, or another cluster, for new streams"
        )
        yield TopicProblem(
            spec.name,
            f"it has {found} partitions and {events} has {wanted}; a stream has the same partition in both",
            remedy,
        )


def _misconfigured(
    specs: Iterable[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    for spec in specs:
        topic = observed.get(spec.name)
        if topic is None:
            continue
        for required in REQUIREMENTS:
            value = topic.settings.get(required.setting)
            if spec.role not in required.roles or value is None or required.holds(value, spec, topic):
                continue
            wanted = required.wanted(required.setting, spec)
            yield TopicProblem(
                spec.name,
                f"{required.setting} is {value!r}: {required.because}",
                f"Set it: kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
                f"--entity-name {spec.name} --add-config {required.setting}={wanted}",
                warning=required.warning,
            )


DAY_MS: Final = 86_400_000
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default, so a broker with default settings is sufficient."""
STATE_MESSAGE_BYTES: Final = 4 << 20
"""Room for the largest state record: all regions and texts, savepoints, and a decision without an outcome."""
DEAD_LETTER_EXTRA_BYTES: Final = 65_536
"""Additional size of a dead letter: it contains the original message and the reason."""

# The coordinators delete the events that nobody needs; see `coordinator/stream/retention.py`.
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
