"""The reference page of all messages and their fields, from the AsyncAPI document."""

from collections.abc import Mapping
from typing import Any, Final

from sluicegate.events.asyncapi import OF_WRITERS, document
from sluicegate.events.envelope import BODIES, EventType, wire_type
from sluicegate.events.models import Body
from sluicegate.events.notifications import NOTIFICATION_BODIES, NotificationType
from sluicegate.events.schemas import OR_NULL, attribute_schema
from tools.docs.markdown import format_fields, format_limits, format_text

SENDERS: Final[Mapping[EventType, str]] = {
    EventType.REGION_REGISTERED: "the driver of a region; an operator who resets it",
    EventType.FILES_WRITTEN: "the driver for its writers; a writer whose event is large; an uploader",
    EventType.CHECKPOINT_COMPLETED: "the driver of a region",
    EventType.CHECKPOINT_FAILED: "the driver of a region; an uploader that has lost files",
    EventType.REGION_HEARTBEAT: "the driver of a region; a coordinator, for an idle region that is silent",
    EventType.REGION_CLOSED: "the driver of a region",
    EventType.STREAM_COMMAND: "a command of an operator, such as `pause`",
}
"""Senders of the events of the log that do not come from coordinators alone."""

_Kinds = Mapping[EventType, type[Body]] | Mapping[NotificationType, type[Body]]
_HEADING: Final = """\
# Fields of all messages

[The contract](../writers/contract.md) says when a writer sends each message, and what an answer means.

A field without a default is required. Times are milliseconds since the Unix epoch, sizes are bytes. Bytes
are base64 with `-` and `_`. `null` is allowed where the type names it. A *name* begins with a letter, a
digit or `_`, and has at most 200 of these characters, `.` and `-`.
"""


def render() -> str:
    """Return the page."""
    written = document()
    events: dict[EventType, type[Body]] = {kind: body for kind, body in BODIES.items() if kind in OF_WRITERS}
    others: dict[EventType, type[Body]] = {
        kind: body for kind, body in BODIES.items() if kind not in OF_WRITERS
    }
    parts = [_HEADING, "\n## Headers\n\n", _header_table()]
    parts.append("\n## Events of a writer\n" + _sections(events, written))
    parts.append(
        "\n## Answers and outcomes\n\nOn the commits topic.\n" + _sections(NOTIFICATION_BODIES, written)
    )
    parts.append("\n## Other events of the log\n\nA writer never sends them.\n" + _sections(others, written))
    models = {body.__name__ for body in (*BODIES.values(), *NOTIFICATION_BODIES.values())}
    parts.append("\n## Parts of bodies\n")
    for name, schema in sorted(written["components"]["schemas"].items()):
        if name not in models and not name.endswith(OR_NULL):
            parts.append(
                f"\n### {name}\n\n{format_text(schema.get('description', ''))}\n\n{format_fields(schema)}"
            )
    page = "".join(parts)
    for kind, body in BODIES.items():
        # A body that is part of another one has the heading of its message.
        heading = wire_type(kind).decode().replace(".", "")
        page = page.replace(f"(#{body.__name__.lower()})", f"(#{heading})")
    return page


def _header_table() -> str:
    schema = attribute_schema()
    rows = ["| header | value | needed by |\n|---|---|---|\n"]
    for name, rule in schema["properties"].items():
        needed = "all" if name in schema["required"] else ""
        for condition in schema["allOf"]:
            if name in condition["then"]["required"]:
                wires = condition["if"]["properties"]["ce_type"]["enum"]
                needed = ", ".join(wire.removeprefix("sluicegate.").removesuffix(".v5") for wire in wires)
        value = "one of the types below" if name == "ce_type" else format_limits(rule)
        described = "; ".join(filter(None, (value, rule.get("description", ""))))
        rows.append(f"| `{name}` | {described} | {needed} |\n")
    return "".join(rows)


def _sections(kinds: _Kinds, written: Mapping[str, Any]) -> str:
    sections = []
    for kind, body in kinds.items():
        schema = written["components"]["schemas"][body.__name__]
        sections.append(
            f"\n### {wire_type(kind).decode()}\n\n{format_text(body.__doc__ or '')} {_sender(kind)}\n\n"
            f"{format_fields(schema)}"
        )
    return "".join(sections)


def _sender(kind: EventType | NotificationType) -> str:
    by = SENDERS.get(kind) if isinstance(kind, EventType) else None
    return f"Sent by {by or 'the coordinator'}."
