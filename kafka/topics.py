"""The four topics. A wrong setting can lose events, so each requirement is data that checks itself."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    InvalidRequestError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    for_code,
)

from sluicegate.events.envelope import Header, partition_of
from sluicegate.kafka.authorized import hidden_topics
from sluicegate.kafka.clients import patiently, started
from sluicegate.kafka.internals import LoginRefused
from sluicegate.kafka.reading import read_batches

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
    """BROKERS_FACTOR: the brokers choose it."""
    settings: Mapping[str, str]
    besides: Mapping[str, str] = field(default_factory=dict)
    """Settings that are asked for where the brokers take them; `settings` are needed."""

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
    wanted: Callable[[str, TopicSpec], str] = lambda setting, spec: {**spec.settings, **spec.besides}[setting]
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
        lambda _, spec: spec.besides.get("min.insync.replicas", "1"),
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
            asked = sorted({**spec.settings, **spec.besides}.items())
            settings = " ".join(f"--config {key}={value}" for key, value in asked)
            factor = spec.replication_factor
            copies = "" if factor == BROKERS_FACTOR else f"--replication-factor {factor} "
            yield TopicProblem(
                spec.name,
                "the topic does not exist, or this client may not describe it",
                f"Create it: kafka-topics.sh --bootstrap-server {servers} --create --topic {spec.name} "
                f"--partitions {spec.partitions} {copies}{settings}",
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


def find_fragility(observed: Iterable[ObservedTopic]) -> str:
    """Return in words what the topics do not survive; empty if they survive a lost broker."""
    found = list(observed)
    replicas = min((each.replicas for each in found), default=REPLICAS)
    shown = [int(value) for each in found if (value := each.settings.get("min.insync.replicas"))]
    in_sync = min(shown, default=IN_SYNC)
    if replicas == 1:
        return (
            "1 replica, where 3 are usual: a broker that is lost takes acknowledged events with it, and each "
            "stream then continues from its table. While it is away, nothing is written"
        )
    if in_sync < IN_SYNC:
        return (
            f"min.insync.replicas is {in_sync}, where 2 are needed: an event may be acknowledged while one "
            "broker alone has it, and is gone if that one is lost"
        )
    if replicas <= max(shown, default=IN_SYNC):
        return (
            f"{replicas} replicas, and min.insync.replicas is {max(shown, default=IN_SYNC)}: while one "
            "broker is away, nothing is written, so nothing is committed. With 3 and 2 it goes on"
        )
    return ""


DAY_MS: Final = 86_400_000
BROKERS_FACTOR: Final = -1
"""Replication factor that leaves the choice to the brokers."""
REPLICAS: Final = 3
IN_SYNC: Final = 2
_READ_MS: Final = 2_000
TIMESTAMPS: Final = "message.timestamp.type"
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default, so a broker with default settings is sufficient."""
STATE_MESSAGE_BYTES: Final = 4 << 20
"""Room for the largest state record: all regions and texts, savepoints, and a decision without an outcome."""
DEAD_LETTER_EXTRA_BYTES: Final = 65_536
"""Additional size of a dead letter: it contains the original message and the reason."""

# The coordinators delete the events that nobody needs; see `coordinator/stream/retention.py`.
_UNLIMITED: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# Recovery reads a whole partition, so keep its uncompacted tail short.
_SHORT_TAIL: Final = {
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
    replication_factor: int = BROKERS_FACTOR,
    retention_ms: int = 7 * DAY_MS,
    dead_letter_retention_ms: int = 90 * DAY_MS,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> tuple[TopicSpec, ...]:
    """Return the desired properties of the four topics of a deployment.

    Events, commits and state have `partitions` each: a stream has the same partition number in all three.
    Raises ValueError if a number is below 1, unless the brokers choose the replication factor.
    """
    if partitions < 1 or (replication_factor < 1 and replication_factor != BROKERS_FACTOR):
        raise ValueError("partitions and replication factor must be 1 or more")
    sized = {"max.message.bytes": str(max_message_bytes)}
    append_time = {TIMESTAMPS: "LogAppendTime"}
    by_time = {**_UNLIMITED, "retention.ms": str(retention_ms)}
    ordered = {**append_time, **sized}
    records = {
        **append_time,
        "cleanup.policy": "compact",
        "max.message.bytes": str(largest_state_message(max_message_bytes)),
    }
    letters = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(max_message_bytes + DEAD_LETTER_EXTRA_BYTES),
    }
    durable = {"min.insync.replicas": str(IN_SYNC)} if replication_factor > 1 else {}
    clean = {**durable, "unclean.leader.election.enable": "false"}
    kept = {**durable, "retention.ms": str(dead_letter_retention_ms)}
    return tuple(
        TopicSpec(name, role, count, replication_factor, needed, besides)
        for name, role, count, needed, besides in (
            (names.events, TopicRole.EVENTS, partitions, {**_UNLIMITED, **ordered}, clean),
            (names.commits, TopicRole.COMMITS, partitions, {**by_time, **ordered}, clean),
            (names.state, TopicRole.STATE, partitions, records, {**clean, **_SHORT_TAIL}),
            (names.dead_letters, TopicRole.DEAD_LETTERS, 1, letters, kept),
        )
    )


class Inspection(NamedTuple):
    """The topics as they are, and what endangers the protocol."""

    problems: list[TopicProblem]
    observed: Mapping[str, ObservedTopic]


async def ensure_topics(
    bootstrap_servers: str,
    specs: Sequence[TopicSpec],
    client_settings: Mapping[str, Any] = _NO_SETTINGS,
    *,
    seconds: float = 30.0,
) -> dict[str, tuple[str, ...]]:
    """Create the missing topics, and wait until they have leaders.

    Return the names of the created topics, each with the settings that the brokers did not take. The brokers
    judge all topics before one is made. Existing topics are never altered. If an aligned topic exists, the
    others get its number of partitions. `client_settings` are passed to aiokafka unchanged
    (security_protocol, ssl_context, sasl_mechanism ...). Raises TopicsRefused or BrokersUnavailable.
    """
    async with _admin(bootstrap_servers, client_settings, seconds) as admin:
        existing = await _partitions(admin)
        missing = [spec for spec in specs if spec.name not in existing]
        if not missing:
            return {}
        counts = [len(existing[spec.name]) for spec in specs if spec.aligned and spec.name in existing]
        durable = {"min.insync.replicas": str(IN_SYNC)} if await _brokers_factor(admin) > 1 else {}
        asked = {
            spec.name: replace(
                spec,
                partitions=counts[0] if spec.aligned and counts else spec.partitions,
                besides={
                    **(durable if spec.replication_factor == BROKERS_FACTOR else {}),
                    **spec.besides,
                },
            )
            for spec in missing
        }
        taken = await _taken(admin, asked.values())
        wanted = [(each, {**each.settings, **taken[each.name]}) for each in asked.values()]
        _judge(await _create(admin, wanted))
        await _await_leaders(admin, set(asked))
        return {name: tuple(sorted(each.besides.keys() - taken[name].keys())) for name, each in asked.items()}


async def _brokers_factor(admin: AIOKafkaAdminClient) -> int:
    """Return the replication factor of topics that name none; 1 if the brokers do not answer that."""
    try:
        node = (await patiently(admin.describe_cluster))["brokers"][0]["node_id"]
        asked = [ConfigResource(ConfigResourceType.BROKER, str(node))]
        for response in await admin.describe_configs(asked):
            for code, _, _, _, entries, *_ in response.resources:
                told = {entry[0]: entry[1] for entry in entries}
                return 1 if code else int(told.get("default.replication.factor") or 1)
    except (KafkaError, LookupError, ValueError):
        pass
    return 1


async def _taken(admin: AIOKafkaAdminClient, specs: Collection[TopicSpec]) -> dict[str, Mapping[str, str]]:
    """Return the settings besides the needed ones that the brokers take, by topic. Nothing is made.

    Raises TopicsRefused if they do not take a topic with those that are needed.
    """
    answers = await _create(admin, [(each, {**each.settings, **each.besides}) for each in specs], dry=True)
    refused = [each for each in specs if answers[each.name][0] in _OF_SETTINGS]
    _judge({name: answer for name, answer in answers.items() if answer[0] not in _OF_SETTINGS})
    if not refused:
        return {each.name: each.besides for each in specs}
    _judge(await _create(admin, [(each, each.settings) for each in refused], dry=True))
    taken: dict[str, Mapping[str, str]] = {each.name: each.besides for each in specs if each not in refused}
    for each in refused:
        fine: dict[str, str] = {}
        for name, value in each.besides.items():
            wider = {**fine, name: value}
            if (await _create(admin, [(each, {**each.settings, **wider})], dry=True))[each.name][0] == 0:
                fine = wider
        taken[each.name] = fine
    return taken


async def _create(
    admin: AIOKafkaAdminClient, wanted: Sequence[tuple[TopicSpec, Mapping[str, str]]], *, dry: bool = False
) -> dict[str, tuple[int, str]]:
    """Create topics with these settings, or have the brokers judge them. Return code and message of each."""
    new = []
    for spec, settings in wanted:
        topic = NewTopic(spec.name, spec.partitions, 1, topic_configs=dict(settings))
        # Its constructor refuses what leaves the choice to the brokers.
        topic.replication_factor = spec.replication_factor
        new.append(topic)
    response = await patiently(lambda: admin.create_topics(new, validate_only=dry))
    return {topic: (code, next(iter(message), None) or "") for topic, code, *message in response.topic_errors}


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
    return (await inspect_topics(bootstrap_servers, specs, client_settings, seconds=seconds)).problems


async def inspect_topics(
    bootstrap_servers: str,
    specs: Sequence[TopicSpec],
    client_settings: Mapping[str, Any] = _NO_SETTINGS,
    *,
    seconds: float = 30.0,
) -> Inspection:
    """Return the topics as they are, and their problems; see `verify_topics`."""
    async with _admin(bootstrap_servers, client_settings, seconds) as admin:
        existing = await _partitions(admin)
        present = [spec.name for spec in specs if spec.name in existing]
        settings = await _settings(admin, present)
        absent = [spec.name for spec in specs if spec.name not in existing]
        unseen = await patiently(lambda: hidden_topics(admin, absent))
        untold = [
            spec.name
            for spec in specs
            if spec.aligned and spec.name in settings and TIMESTAMPS not in settings[spec.name]
        ]
        for name in untold:
            options = {**client_settings, "bootstrap_servers": bootstrap_servers}
            if proven := await _stamped(options, name, len(existing[name])):
                settings[name][TIMESTAMPS] = proven
    observed = {
        name: ObservedTopic(
            partitions=len(existing[name]),
            replicas=min(len(partition["replicas"]) for partition in existing[name]),
            settings=settings[name],
        )
        for name in present
    }
    found = find_problems(specs, observed, bootstrap_servers)
    problems = [_hidden(each.topic) if each.missing and each.topic in unseen else each for each in found]
    return Inspection(
        problems + [_unproven(each) for each in untold if TIMESTAMPS not in settings[each]], observed
    )


async def _stamped(options: Mapping[str, Any], topic: str, partitions: int) -> str:
    """Return the kind of timestamps of the newest message of a topic; empty without a message."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="none")
    async with started(consumer):
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        for place in places:
            if ends[place] > begins[place]:
                record = await _read_at(consumer, place, ends[place] - 1, _READ_MS)
                if record is not None:
                    return _timestamps_of(record)
    return ""


async def _read_at(
    consumer: AIOKafkaConsumer, place: TopicPartition, offset: int, timeout_ms: int
) -> ConsumerRecord | None:
    """Return the first record from an offset on; None if there is none in time. Raises KafkaError."""
    consumer.assign([place])
    consumer.seek(place, offset)
    reading = await read_batches(consumer, place, timeout_ms=timeout_ms)
    return next(iter([*reading.batches.get(place, ()), *reading.unreadable]), None)


def _timestamps_of(record: ConsumerRecord) -> str:
    return "LogAppendTime" if record.timestamp_type == 1 else "CreateTime"


def _unproven(topic: str) -> TopicProblem:
    return TopicProblem(
        topic,
        f"the brokers do not show {TIMESTAMPS}, and the topic has no message that would prove it",
        "It has to be LogAppendTime. `sluicegate check --table STREAM` appends a message that proves it",
        warning=True,
    )


def _hidden(topic: str) -> TopicProblem:
    return TopicProblem(
        topic, "this client may not see whether the topic exists", f"Grant it DESCRIBE on the topic {topic}"
    )


# Proofs: an append to each topic, and a deletion of records.

_PROBE_KEY: Final = b"/probe"
"""It is the key of no stream, whose names are not empty."""
NO_DELETION: Final = (
    IncompatibleBrokerVersion,
    InvalidRequestError,
    PolicyViolationError,
    UnsupportedVersionError,
)
"""Errors of brokers that delete no records for anybody."""


class Appended(NamedTuple):
    """A message that was appended, and read back."""

    partition: int
    offset: int
    timestamps: str
    """Kind of its timestamp: LogAppendTime or CreateTime."""


async def append_probes(
    options: Mapping[str, Any], values: Mapping[str, bytes | None], stream: str, headers: Sequence[Header]
) -> dict[str, Appended | str]:
    """Append a message with these values to each topic that exists, where a stream has its own.

    Return, by topic, the message, or why there is none, with the way out. Raises KafkaError or TimeoutError
    if no client can begin.
    """
    found: dict[str, Appended | str] = {}
    async with started(AIOKafkaAdminClient(**options)) as admin:
        # A producer could create a topic that is missing.
        existing = await _partitions(admin)
    producing = AIOKafkaProducer(**options, acks="all", enable_idempotence=True)
    consuming = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="none")
    async with started(producing) as producer, started(consuming) as consumer:
        for topic, value in values.items():
            if topic not in existing:
                continue
            place = TopicPartition(topic, partition_of(stream, len(existing[topic])))
            step, right = "appended", "WRITE"
            try:
                sent = await producer.send_and_wait(
                    topic, value, _PROBE_KEY, place.partition, headers=headers
                )
                step, right = "read back", "READ"
                record = await _read_at(consumer, place, sent.offset, int(options["request_timeout_ms"]))
            except (ClusterAuthorizationFailedError, TopicAuthorizationFailedError):
                found[topic] = f"a message cannot be {step}. Grant this client {right} on the topic {topic}"
            except (KafkaError, TimeoutError) as error:
                found[topic] = (
                    f"a message cannot be {step}: {str(error) or type(error).__name__}. See its "
                    "min.insync.replicas and its replicas, and the logs of the brokers"
                )
            else:
                found[topic] = (
                    Appended(place.partition, record.offset, _timestamps_of(record))
                    if record is not None
                    else f"the message at offset {sent.offset} of partition {place.partition} is not read "
                    "back in time. See the logs of the brokers"
                )
    return found


async def try_deletion(options: Mapping[str, Any], topic: str, stream: str) -> None:
    """Delete the records before the first one in the partition of a stream, so none. Raises KafkaError."""
    async with started(AIOKafkaAdminClient(**options)) as admin:
        count = len((await _partitions(admin))[topic])
    place = TopicPartition(topic, partition_of(stream, count))
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="none")
    async with started(consumer):
        begin = (await consumer.beginning_offsets([place]))[place]
    await delete_records(options, place, begin)


async def delete_records(options: Mapping[str, Any], place: TopicPartition, before: int) -> None:
    """Delete the records of a partition before an offset. Raises KafkaError."""
    async with started(AIOKafkaAdminClient(**options)) as admin:
        try:
            await admin.delete_records({place: RecordsToDelete(before_offset=before)})
        except TopicAuthorizationFailedError as error:
            grant = f"grant this client DELETE on the topic {place.topic}"
            raise TopicAuthorizationFailedError(grant) from error


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
    except LoginRefused as error:
        raise BrokersUnavailable(
            f"Kafka at {bootstrap_servers} refuses the login of this client: {error}; check the security "
            "settings"
        ) from error
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


_OF_SETTINGS: Final = frozenset(
    each.errno for each in (InvalidConfigurationError, InvalidRequestError, PolicyViolationError)
)


def _judge(answers: Mapping[str, tuple[int, str]]) -> None:
    """Raise TopicsRefused or BrokersUnavailable for a topic that the brokers do not make."""
    for topic, (code, message) in answers.items():
        # Another client may create the topic at the same time; the result is the same.
        if code in (0, TopicAlreadyExistsError.errno):
            continue
        error = for_code(code)
        text = f"the topic {topic} cannot be created: {message or error.description}"
        if error.retriable:
            raise BrokersUnavailable(text)
        if error is TopicAuthorizationFailedError:
            raise TopicsRefused(f"{text}. Grant this client CREATE on the topic {topic}")
        raise TopicsRefused(
            f"{text}; change kafka.replication_factor or the setting, or create the topic yourself. No topic "
            "was created"
        )


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
