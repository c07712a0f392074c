"""Attributes of messages of version 4: the headers' names and values, and the attributes that each type has.

The CloudEvents attributes are headers `ce_*`, as the Kafka protocol binding 1.0 has them in binary mode. The
extension attributes carry what routing and aggregation need, so neither needs a body.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from sluicegate.events.envelope import EventType
from sluicegate.events.models import NAME_PATTERN
from sluicegate.events.notifications import NotificationType

Header = tuple[str, bytes]
RawHeader = tuple[str, bytes | None]
"""A header as it comes from the log, where values may be absent."""

SPEC_VERSION: Final = b"1.0"
CONTENT_TYPE: Final = b"application/json"
SOURCE: Final = b"/sluicegate"
"""The source of messages of this project; other producers name their own."""
MAJOR_VERSION: Final = 2
"""Major version of all types of protocol version 4. Those of version 3 have 1."""
NUMBER_PATTERN: Final = "^(0|[1-9][0-9]{0,17})$"
"""Every number of so many digits fits into 64 bits. One number has one notation."""
SOURCE_PATTERN: Final = r"^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]{1,1000}$"
"""Characters of a URI reference (RFC 3986)."""
MAX_ID_LENGTH: Final = 64

PER_CHECKPOINT: Final = frozenset(
    {EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED, EventType.CHECKPOINT_FAILED}
)
PER_REGION: Final = PER_CHECKPOINT | {
    EventType.REGION_REGISTERED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
}
PER_WRITER: Final = frozenset({EventType.FILES_WRITTEN})


class Shape(NamedTuple):
    """A type of event, and the groups of attributes that it has beside id and stream."""

    type: EventType
    region: bool
    checkpoint: bool
    writer: bool


def wire_type(kind: EventType | NotificationType) -> bytes:
    """Return the value of `ce_type` for messages of a type."""
    return f"sluicegate.{kind}.v{MAJOR_VERSION}".encode()


EVENT_SHAPES: Final = {
    wire_type(kind): Shape(kind, kind in PER_REGION, kind in PER_CHECKPOINT, kind in PER_WRITER)
    for kind in EventType
}
NOTIFICATION_TYPES: Final = {wire_type(kind): kind for kind in NotificationType}

_VERSIONED: Final = re.compile(rb"sluicegate\.[a-z_.]+\.v([1-9][0-9]{0,8})")
_NAME: Final = re.compile(NAME_PATTERN.strip("^$"))
_NUMBER: Final = re.compile(NUMBER_PATTERN.strip("^$").encode())
_SOURCE: Final = re.compile(SOURCE_PATTERN.strip("^$").encode())
_CACHED: Final = 16_384


def major_version(raw: bytes) -> int | None:
    """Return the major version that a `ce_type` of this project names; None if it is none."""
    match = _VERSIONED.fullmatch(raw)
    return int(match[1]) if match else None


# Few different names and numbers recur in many events: the caches save time, and memory for equal strings.
@lru_cache(maxsize=_CACHED)
def read_name(raw: bytes) -> str:
    """Return the name of a stream, a region, an incarnation or a writer. Raises ValueError."""
    text = raw.decode()
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name")
    return text


@lru_cache(maxsize=_CACHED)
def read_number(raw: bytes) -> int:
    """Return a number of at most 18 digits. Raises ValueError."""
    if not _NUMBER.fullmatch(raw):
        raise ValueError(f"{raw!r} is no number of at most 18 digits")
    return int(raw)


def read_id(raw: bytes) -> str:
    """Return the id of an event or an attempt. Raises ValueError."""
    text = raw.decode()
    if not 0 < len(text) <= MAX_ID_LENGTH:
        raise ValueError(f"an id has 1 to {MAX_ID_LENGTH} characters")
    return text


def is_source(raw: bytes | None) -> bool:
    """True if the value is a URI reference, so `ce_source` may have it."""
    return raw == SOURCE or (raw is not None and _SOURCE.fullmatch(raw) is not None)
