"""The reference page of the events, with their JSON Schemas."""

from collections.abc import Mapping
from typing import Final

from sluicegate.events.envelope import BODIES, PER_CHECKPOINT, PER_REGION, PER_WRITER, EventType, wire_type
from sluicegate.events.models import Body
from sluicegate.events.notifications import NOTIFICATION_BODIES, NotificationType
from sluicegate.events.schemas import SUFFIX

HEADING: Final = """\
# Schemas of protocol version 5

Every message is a CloudEvents 1.0 event in Kafka's binary content mode: the attributes are message headers,
the value is the body as JSON. The key of a message is `stream/region/checkpoint`, shortened to what applies.
Its partition is CRC-32(stream) modulo the number of partitions.

Readers ignore fields and headers that they do not know, and attributes that a type does not have. A new
optional field is therefore a minor change. Anything else (another meaning, a new value of an enumeration, a
new type) has a new major version in `ce_type`. A coordinator that does not know it stalls the stream until it
is upgraded. Messages of version 1 are from releases with protocol version 3; they are refused.
"""


def render() -> str:
    """Return the page."""
    link = f"\nThe headers are described in [attributes{SUFFIX}](attributes{SUFFIX}).\n"
    return (
        f"{HEADING}{link}\n## The log\n{_table(BODIES)}\n## The commits topic\n{_table(NOTIFICATION_BODIES)}"
    )


def _table(bodies: Mapping[EventType, type[Body]] | Mapping[NotificationType, type[Body]]) -> str:
    rows = ["\n| type | needs the attributes | content |\n|---|---|---|\n"]
    for kind, body in bodies.items():
        wire = wire_type(kind).decode()
        attributes = ["stream"]
        attributes += ["region", "incarnation"] if kind in PER_REGION else []
        attributes += ["checkpoint"] if kind in PER_CHECKPOINT else []
        attributes += ["writer", "attempt", "files"] if kind in PER_WRITER else []
        summary = (body.__doc__ or "").partition("\n")[0]
        rows.append(f"| [`{wire}`]({wire}{SUFFIX}) | {', '.join(attributes)} | {summary} |\n")
    return "".join(rows)
