"""The operations that the brokers allow to this client, by their own report (KIP-430).

The client library has no method for it. The requests are those of Kafka 2.3 and later.
"""

from collections.abc import Collection
from typing import Final, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from sluicegate.kafka.internals import client_of, send_admin_request

_UNKNOWN: Final = -(1 << 31)
"""Bits of a broker that was not asked, or that has no authorizer to ask."""


_Asking: TypeAlias = AIOKafkaConsumer | AIOKafkaAdminClient


class _TopicsAnswer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class _TopicsQuestion(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _TopicsAnswer
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
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
        self._topics = list(topics)

    def build(self, request_struct_class: type[_TopicsQuestion]) -> _TopicsQuestion:
        return request_struct_class(self._topics, False, False, True)


class _AskGroups(Request[_GroupsQuestion]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsQuestion]) -> _GroupsQuestion:
        return request_struct_class([self._group], True)


async def allowed_topics(client: _Asking, names: Collection[str]) -> dict[str, int | None]:
    """Return the operations that this client may do on each topic; 0 for a topic that it may not see.

    None: not known, or no such topic. Raises KafkaError, IncompatibleBrokerVersion, NotImplementedError.
    """
    if not names:
        return {}
    asking = client_of(client)
    answer = await asking.send(asking.get_random_node(), _AskTopics(names))
    found: dict[str, int | None] = {}
    for code, name, _, _, bits in answer.topics:
        hidden = code == TopicAuthorizationFailedError.errno
        found[name] = 0 if hidden else None if code or bits == _UNKNOWN else bits
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
