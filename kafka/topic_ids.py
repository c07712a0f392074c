"""The identity of a topic: the id that brokers give it at its creation (KIP-516, Kafka 2.8 and later).

A topic that was deleted and made again has its name, and offsets that begin at 0. Only the id distinguishes
the two. The client library does not ask for it.
"""

import uuid
from io import BytesIO
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from sluicegate.kafka.internals import client_of

_NO_ID: Final = uuid.UUID(int=0)


class _Uuid(AbstractType[uuid.UUID]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


_TEXT: Final = CompactString("utf-8")


class _Answer(Response):  # type: ignore[misc]
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


class _Question(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _TEXT), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Ask(Request[_Question]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([(_NO_ID, self._topic, {})], False, False, False, {})


async def topic_id(consumer: AIOKafkaConsumer, topic: str) -> str:
    """Return the id of a topic; empty if the broker does not give it, or has no such topic now.

    Raises KafkaError.
    """
    client = client_of(consumer)
    try:
        answer = await client.send(client.get_random_node(), _Ask(topic))
    except (IncompatibleBrokerVersion, NotImplementedError):
        return ""
    ((code, _, found, *_),) = answer.topics
    return "" if code or found == _NO_ID else found.hex
