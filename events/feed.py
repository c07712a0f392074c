"""Reading of the public feed: notifications on the commits topic."""

from collections.abc import Sequence

from sluicegate.events.attributes import RawHeader
from sluicegate.events.codec import Flaw, parse_body, read_addressed
from sluicegate.events.notifications import NOTIFICATION_BODIES, NOTIFICATION_TYPES, Notification
from sluicegate.events.problems import Problem


def read_notification(headers: Sequence[RawHeader], value: bytes | None) -> Notification | Flaw:
    """Read a message of the commits topic."""
    read = read_addressed(headers, NOTIFICATION_TYPES)
    if isinstance(read, Flaw):
        return read
    body = parse_body(NOTIFICATION_BODIES[read.kind], value)
    if isinstance(body, Problem):
        return Flaw(body, read.stream)
    return Notification(read.id, read.kind, read.stream, read.region, read.incarnation, body)
