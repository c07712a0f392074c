"""The AsyncAPI document of all messages.

It comes from the models of the bodies, as the JSON Schemas do (`schemas.py`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluicegate.events.envelope import BODIES, MAJOR_VERSION, EventType, wire_type
from sluicegate.events.examples import EXAMPLES
from sluicegate.events.models import Body
from sluicegate.events.notifications import NOTIFICATION_BODIES, NotificationType
from sluicegate.events.orders import ORDER
from sluicegate.events.schemas import attribute_schema, definitions_of

OF_WRITERS: Final[tuple[EventType, ...]] = (
    EventType.REGION_REGISTERED,
    EventType.FILES_WRITTEN,
    EventType.CHECKPOINT_COMPLETED,
    EventType.CHECKPOINT_FAILED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
)
"""Types that writers send. The other events of the log come from coordinators and operators."""

_Kinds = Mapping[EventType, type[Body]] | Mapping[NotificationType, type[Body]]
_SCHEMAS: Final = "#/components/schemas/"
_MESSAGES: Final = "#/components/messages/"
_PREFIX: Final = {
    "description": "The setting kafka.topic_prefix of the coordinators.",
    "default": "sluicegate",
}
_KEY: Final = {
    "type": "string",
    "description": "stream/region/checkpoint, without the parts that do not apply",
}


def document() -> dict[str, Any]:
    """Return the AsyncAPI document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Sluicegate",
            "version": f"{MAJOR_VERSION}",
            "description": "Messages between writers and coordinators. All are CloudEvents 1.0 in Kafka's "
            "binary content mode: the attributes are headers, the value is the body.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "events": _channel("{prefix}.events", "Input, decisions and outcomes.", BODIES),
            "commits": _channel(
                "{prefix}.commits", "Answers and outcomes for everybody.", NOTIFICATION_BODIES
            ),
        },
        "operations": {
            "publish": _operation("send", "events", "Events of a writer.", OF_WRITERS),
            "follow": _operation("receive", "commits", "Answers and outcomes.", tuple(NOTIFICATION_BODIES)),
        },
        "components": {
            "messages": {**_messages(BODIES), **_messages(NOTIFICATION_BODIES)},
            "schemas": definitions_of([*BODIES.values(), *NOTIFICATION_BODIES.values()], _SCHEMAS),
        },
    }


def _channel(address: str, description: str, kinds: _Kinds) -> dict[str, Any]:
    partition = "The partition of a message is CRC-32 of the stream's name, modulo the number of partitions."
    return {
        "address": address,
        "description": f"{description} {partition}",
        "parameters": {"prefix": _PREFIX},
        "messages": {_name(kind): {"$ref": _MESSAGES + _name(kind)} for kind in kinds},
    }


def _operation(
    action: str, channel: str, summary: str, kinds: Sequence[EventType | NotificationType]
) -> dict[str, Any]:
    named = [{"$ref": f"#/channels/{channel}/messages/{_name(kind)}"} for kind in kinds]
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": named,
    }


def _messages(kinds: _Kinds) -> dict[str, Any]:
    return {
        _name(kind): {
            "name": wire_type(kind).decode(),
            "title": str(kind),
            "summary": (body.__doc__ or "").partition("\n")[0],
            "contentType": "application/json",
            "headers": _headers(kind),
            "payload": {"$ref": _SCHEMAS + body.__name__},
            "bindings": {"kafka": {"key": _KEY}},
            "examples": [_example(wire_type(kind).decode())],
        }
        for kind, body in kinds.items()
    }


def _example(wire: str) -> dict[str, Any]:
    message = EXAMPLES[wire]
    headers = {name: value.decode() for name, value in message.headers}
    return {"headers": headers, "payload": json.loads(message.value)}


def _headers(kind: EventType | NotificationType) -> dict[str, Any]:
    """Return the schema of the headers of a type."""
    schema = attribute_schema()
    wire = wire_type(kind).decode()
    required = list(schema["required"])
    extra: list[str] = []
    for rule in schema["allOf"]:
        if wire in rule["if"]["properties"]["ce_type"]["enum"]:
            required += rule["then"]["required"]
    if kind is EventType.FILES_WRITTEN:
        extra = ["ce_files", "ce_rows", "ce_bytes", "ce_table"]
    if kind is EventType.CHECKPOINT_COMPLETED:
        extra = ["ce_writer", "ce_attempt", "ce_files", "ce_rows", "ce_bytes", "ce_table"]
    if kind in (EventType.STREAM_COMMAND, EventType.REGION_REGISTERED):
        extra = [ORDER]
    if isinstance(kind, NotificationType):
        extra = ["ce_region", "ce_incarnation"]
    names = [name for name in schema["properties"] if name in (*required, *extra, "ce_time")]
    properties = {name: schema["properties"][name] for name in names} | {"ce_type": {"const": wire}}
    return {"type": "object", "properties": properties, "required": required}


def _name(kind: EventType | NotificationType) -> str:
    """Return the key of a message in the document."""
    return str(kind).replace(".", "_")
