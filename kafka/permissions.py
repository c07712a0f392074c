"""Operations of Kafka that each kind of client needs, as data for checks, errors and docs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import groupby
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion

from sluicegate.kafka.authorized import allowed_group, allowed_topics
from sluicegate.kafka.clients import patiently, started
from sluicegate.kafka.topics import TopicRole


class Operation(IntEnum):
    """Operations of Kafka's ACLs, with the numbers of its protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


class Client(StrEnum):
    """Kinds of clients; the text is for people."""

    COORDINATOR = "coordinator"
    DRIVER = "driver of a job"
    TASK = "tasks of a job"
    READER = "commands that change nothing"
    OPERATOR = "orders, `dead-letters retry`, `replay repair`"
    KEEPER = "`stream recover`, `stream forget`, `stream adopt`"
    CREATOR = "`topics create`"


@dataclass(frozen=True, slots=True)
class Permission:
    """One operation on a topic, or on the group of the coordinators."""

    client: Client
    operation: Operation
    topic: TopicRole | None
    """None: the group."""
    step: str
    """Work that needs it."""

    def resource(self, prefix: str, group: str) -> str:
        """Return the topic or group by its name, for people."""
        return f"the group {group}" if self.topic is None else f"the topic {prefix}.{self.topic}"


def _of(client: Client, *lines: tuple[Operation, TopicRole | None, str]) -> tuple[Permission, ...]:
    return tuple(Permission(client, *line) for line in lines)


_EVENTS, _COMMITS, _STATE, _LETTERS = TopicRole
PERMISSIONS: Final = (
    *_of(
        Client.COORDINATOR,
        (Operation.READ, _EVENTS, "reads the log"),
        (Operation.WRITE, _EVENTS, "appends decisions and outcomes"),
        (Operation.DELETE, _EVENTS, "deletes events after `replay_window`"),
        (Operation.DESCRIBE_CONFIGS, _EVENTS, "checks the settings of the topic at its start"),
        (Operation.READ, _COMMITS, "gives commits to listeners, and to the live page"),
        (Operation.WRITE, _COMMITS, "answers registrations, and announces commits"),
        (Operation.DESCRIBE_CONFIGS, _COMMITS, "checks the settings of the topic at its start"),
        (Operation.READ, _STATE, "continues the work of its predecessor"),
        (Operation.WRITE, _STATE, "writes state records"),
        (Operation.DESCRIBE_CONFIGS, _STATE, "checks the settings of the topic at its start"),
        (Operation.READ, _LETTERS, "sends each letter once, after a restart too"),
        (Operation.WRITE, _LETTERS, "puts unusable messages aside"),
        (Operation.DESCRIBE_CONFIGS, _LETTERS, "checks the settings of the topic at its start"),
        (Operation.READ, None, "joins the group"),
    ),
    *_of(
        Client.DRIVER,
        (Operation.WRITE, _EVENTS, "registers, and completes checkpoints"),
        (Operation.READ, _COMMITS, "reads the answer to its registration"),
    ),
    *_of(Client.TASK, (Operation.WRITE, _EVENTS, "publishes files that are too many for its result")),
    *_of(
        Client.READER,
        (Operation.READ, _EVENTS, "reads the log: `replay verify`, `orphans list`"),
        (Operation.READ, _COMMITS, "reads outcomes: `history`"),
        (Operation.READ, _STATE, "reads the state of the streams: `status`"),
        (Operation.READ, _LETTERS, "reads dead letters: `dead-letters list`"),
        (Operation.DESCRIBE, None, "reads the offsets of the group: `status`"),
    ),
    *_of(
        Client.OPERATOR,
        (Operation.READ, _EVENTS, "reads the log, to see whether the order has an effect"),
        (Operation.WRITE, _EVENTS, "appends the order, or the message of a letter"),
        (Operation.READ, _STATE, "reads the state of the streams"),
        (Operation.READ, _LETTERS, "reads dead letters"),
        (Operation.WRITE, _LETTERS, "marks letters as dropped or retried"),
        (Operation.DESCRIBE, None, "makes sure that no coordinator runs: `replay repair`"),
    ),
    *_of(
        Client.KEEPER,
        (Operation.READ, _EVENTS, "reads the log: `stream adopt`"),
        (Operation.WRITE, _EVENTS, "leaves a note of the order; includes to find the begin of the log"),
        (Operation.READ, _STATE, "reads the records of the stream"),
        (Operation.WRITE, _STATE, "replaces, deletes or writes them"),
        (Operation.DESCRIBE, None, "makes sure that no coordinator runs: `stream adopt`"),
    ),
    *_of(
        Client.CREATOR,
        *((Operation.CREATE, topic, "creates the topic") for topic in TopicRole),
        *((Operation.DESCRIBE, topic, "sees whether it exists") for topic in TopicRole),
        *((Operation.DESCRIBE_CONFIGS, topic, "checks its settings") for topic in TopicRole),
    ),
)
"""All lines. READ, WRITE and DELETE on a topic include DESCRIBE, and READ on a group does, too."""


def of_client(client: Client) -> list[Permission]:
    """Return the permissions of a kind of client."""
    return [each for each in PERMISSIONS if each.client is client]


def format_grants(lacking: Iterable[Permission], prefix: str, group: str) -> str:
    """Format permissions as the object of "grant"."""
    named = groupby(lacking, lambda each: each.resource(prefix, group))
    return ", ".join(
        f"{' and '.join(each.operation.name for each in lines)} on {resource}" for resource, lines in named
    )


def grant_of_job(topic: str) -> str:
    """Return the operation that a job needs on a topic of this name."""
    found = (each for each in of_client(Client.DRIVER) if each.topic and topic.endswith(f".{each.topic}"))
    return next((each.operation.name for each in found), Operation.DESCRIBE.name)


# Permissions that this client lacks, as the brokers report them.


class _Allowed(NamedTuple):
    """Bits of the allowed operations: bit N is the operation with the number N. None: not known."""

    topics: Mapping[str, int | None]
    group: int | None


async def lacking(options: Mapping[str, Any], client: Client, prefix: str, group: str) -> list[Permission]:
    """Return the permissions that this client lacks, as the brokers report them.

    Empty with brokers before 2.8. Topics that do not exist count as permitted. Raises KafkaError.
    """
    wanted = of_client(client)
    names = {f"{prefix}.{each.topic}" for each in wanted if each.topic is not None}
    async with started(AIOKafkaAdminClient(**options)) as admin:
        try:
            topics = await patiently(lambda: allowed_topics(admin, names))
            asks_group = any(each.topic is None for each in wanted)
            of_group = await patiently(lambda: allowed_group(admin, group)) if asks_group else None
        except (IncompatibleBrokerVersion, NotImplementedError):
            return []
    found = _Allowed(topics, of_group)
    return [each for each in wanted if not _is_allowed(each, found, prefix)]


def _is_allowed(wanted: Permission, found: _Allowed, prefix: str) -> bool:
    bits = found.group if wanted.topic is None else found.topics.get(f"{prefix}.{wanted.topic}")
    return bits is None or bool(bits >> wanted.operation & 1)
