"""Facts of topics and of a group that the brokers report, and that the client library does not ask for.

They are the operations that are allowed to this client (KIP-430), and the id of a topic (KIP-516). A topic
that was deleted and made again has its name, and offsets that begin at 0; only the id distinguishes the two.
The requests are those of Kafka 2.8 and later.
"""

import uuid
from collections.abc import Collection
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

from sluicegate.kafka.internals import client_of, send_admin_request

_UNKNOWN: Final = -(1 << 31)
"""Bits of a broker that was not asked, or that has no authorizer to ask."""
_NO_ID: Final = uuid.UUID(int=0)


class _Uuid(AbstractType[uuid.UUID]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


_TEXT: Final = CompactString("utf-8")


class _TopicsAnswer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), ("tags", TaggedFields)
            ),
        ),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _TopicsQuestion(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicsAnswer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _TEXT), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _GroupsQuestion(RequestStruct):  # type: ignore[misc]
    # The library's own struct of this version decodes the answer without the operations.
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_authorized_operations", Boolean))


class _AskTopics(Request[_TopicsQuestion]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: Collection[str]) -> None:
        self._topics: list[Any] = [(_NO_ID, topic, {}) for topic in topics]

    def build(self, request_struct_class: type[_TopicsQuestion]) -> _TopicsQuestion:
        return request_struct_class(self._topics, False, False, True, {})


class _AskGroups(Request[_GroupsQuestion]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsQuestion]) -> _GroupsQuestion:
        return request_struct_class([self._group], True)


_Asking: TypeAlias = AIOKafkaConsumer | AIOKafkaAdminClient


class _Topic(NamedTuple):
    """One topic as the brokers report it."""

    code: int
    id: uuid.UUID
    bits: int


async def _ask(client: _Asking, topics: Collection[str]) -> dict[str, _Topic]:
    asking = client_of(client)
    answer: Any = await asking.send(asking.get_random_node(), _AskTopics(topics))
    return {name: _Topic(code, found, bits) for code, name, found, _, _, bits, _ in answer.topics}


async def topic_id(consumer: AIOKafkaConsumer, topic: str) -> str:
    """Return the id of a topic; empty if the broker does not give it, or has no such topic now.

    Raises KafkaError.
    """
    try:
        found = (await _ask(consumer, [topic]))[topic]
    except (IncompatibleBrokerVersion, NotImplementedError):
        return ""
    return "" if found.code or found.id == _NO_ID else found.id.hex


async def allowed_topics(client: _Asking, names: Collection[str]) -> dict[str, int | None]:
    """Return the operations that this client may do on each topic; 0 for a topic that it may not see.

    None: not known, or no such topic. Raises KafkaError, IncompatibleBrokerVersion, NotImplementedError.
    """
    found: dict[str, int | None] = {}
    for name, topic in (await _ask(client, names)).items() if names else ():
        hidden = topic.code == TopicAuthorizationFailedError.errno
        found[name] = 0 if hidden else None if topic.code or topic.bits == _UNKNOWN else topic.bits
    return found


async def hidden_topics(client: _Asking, names: Collection[str]) -> set[str]:
    """Return the topics that this client may not see: for it they look as if they did not exist.

    Raises KafkaError.
    """
    try:
        return {name for name, bits in (await allowed_topics(client, names)).items() if bits == 0}
    except (IncompatibleBrokerVersion, NotImplementedError):
        return set()


async def allowed_group(admin: AIOKafkaAdminClient, group: str) -> int | None:
    """Return the operations that this client may do on a group; 0 if it may not see it, None: not known.

    Raises KafkaError, IncompatibleBrokerVersion, NotImplementedError.
    """
    try:
        answer = await send_admin_request(admin, _AskGroups(group), await admin.find_coordinator(group))
    except GroupAuthorizationFailedError:
        return 0
    ((code, *_, bits),) = answer.groups
    if code == GroupAuthorizationFailedError.errno:
        return 0
    return None if code or bits == _UNKNOWN else int(bits)
