"""CloudEvents 1.0 in Kafka's binary content mode: attributes are headers, the value is the JSON body.

See the CloudEvents Kafka protocol binding, section 3.2. The extension attributes `stream`, `region`,
`lineage`, `checkpoint`, `writer` and `files` carry what routing and aggregation need.
"""

import contextlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from pydantic import ValidationError

from sluicegate.events.envelope import (
    BODIES,
    MAJOR_VERSION,
    NO_CHECKPOINT,
    Envelope,
    Event,
    EventType,
    Poison,
)
from sluicegate.events.models import NAME_PATTERN, Body, FilesWritten
from sluicegate.events.partitioning import message_key

Header = tuple[str, bytes]

SPEC_VERSION: Final = b"1.0"
CONTENT_TYPE: Final = b"application/json"
SOURCE: Final = b"/sluicegate"

_TYPE_PREFIX: Final = "sluicegate."
_TYPES: Final[dict[bytes, EventType]] = {
    f"{_TYPE_PREFIX}{event_type}.v{MAJOR_VERSION}".encode(): event_type for event_type in EventType
}
_WIRE_TYPES: Final = {event_type: wire for wire, event_type in _TYPES.items()}
_TYPE_PATTERN: Final = re.compile(rb"^sluicegate\.[a-z_.]+\.v(\d{1,9})$")
_NAME: Final = re.compile(NAME_PATTERN)

_PER_CHECKPOINT: Final = frozenset(
    {EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED, EventType.CHECKPOINT_FAILED}
)
_PER_REGION: Final = _PER_CHECKPOINT | {
    EventType.REGION_OPENED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
}


class Message(NamedTuple):
    """An encoded event, ready to be produced."""

    key: bytes
    value: bytes
    headers: list[Header]


class BadBody(ValueError):
    """The body is no JSON, or not the one that its type announces."""


def encode(event: Event) -> Message:
    """Encode an event; the caller chooses topic and partition (see `partition_of`)."""
    envelope, body = event
    headers: list[Header] = [
        ("ce_id", envelope.id.encode()),
        ("ce_type", _WIRE_TYPES[envelope.type]),
        ("ce_specversion", SPEC_VERSION),
        ("ce_source", SOURCE),
        ("content-type", CONTENT_TYPE),
        ("ce_stream", envelope.stream.encode()),
    ]
    if envelope.region:
        headers.append(("ce_region", envelope.region.encode()))
    if envelope.lineage:
        headers.append(("ce_lineage", envelope.lineage.encode()))
    if envelope.checkpoint != NO_CHECKPOINT:
        headers.append(("ce_checkpoint", b"%d" % envelope.checkpoint))
    if envelope.writer:
        headers.append(("ce_writer", envelope.writer.encode()))
    if envelope.type is EventType.FILES_WRITTEN:
        headers.append(("ce_files", b"%d" % envelope.files))
    return Message(message_key(envelope), body.model_dump_json().encode(), headers)


@lru_cache(maxsize=4096)
def _name(raw: bytes) -> str:
    """Decode and check a name; the cache makes it cheap, since few names recur in many events."""
    text = raw.decode()
    if not _NAME.match(text):
        raise ValueError(f"{text!r} is not a valid name")
    return text


def read_envelope(headers: Iterable[Header]) -> Envelope | Poison:
    """Read an event's attributes from its headers, without touching its body.

    Attributes that the event's type needs and that are absent or malformed make it poison.
    """
    attributes = dict(headers)
    try:
        event_type = _TYPES[attributes["ce_type"]]
        get = attributes.get
        region = get("ce_region")
        lineage = get("ce_lineage")
        writer = get("ce_writer")
        envelope = Envelope(
            attributes["ce_id"].decode(),
            event_type,
            _name(attributes["ce_stream"]),
            _name(region) if region is not None else "",
            _name(lineage) if lineage is not None else "",
            int(get("ce_checkpoint", b"-1")),
            writer.decode() if writer is not None else "",
            int(get("ce_files", b"0")),
        )
    except (KeyError, ValueError, AttributeError):
        return _explain(attributes)
    problem = _missing(envelope)
    if problem:
        return Poison(problem, envelope.stream, newer_version=False)
    return envelope


def _missing(envelope: Envelope) -> str | None:
    event_type = envelope.type
    if not 0 < len(envelope.id) <= 64:
        return "the attribute ce_id is empty or longer than 64 characters"
    if event_type in _PER_REGION and not (envelope.region and envelope.lineage):
        return f"a {event_type} needs the attributes ce_region and ce_lineage"
    if event_type in _PER_CHECKPOINT and envelope.checkpoint < 0:
        return f"a {event_type} needs the attribute ce_checkpoint, a number of 0 or more"
    if envelope.checkpoint < NO_CHECKPOINT or envelope.files < 0:
        return "the attributes ce_checkpoint and ce_files must not be negative"
    return None


def _explain(attributes: dict[str, bytes]) -> Poison:
    """Say what is wrong with headers that did not make an envelope."""
    stream: str | None = None
    with contextlib.suppress(KeyError, ValueError, AttributeError):
        stream = _name(attributes["ce_stream"])
    raw_type = attributes.get("ce_type")
    if raw_type is None:
        return Poison("no CloudEvents message: the header ce_type is missing", stream, newer_version=False)
    if raw_type not in _TYPES:
        match = _TYPE_PATTERN.match(raw_type)
        shown = raw_type[:100].decode(errors="replace")
        if match and int(match[1]) > MAJOR_VERSION:
            return Poison(
                f"{shown} is of a newer major version than this release reads (v{MAJOR_VERSION}); "
                "upgrade the coordinator",
                stream,
                newer_version=True,
            )
        return Poison(f"unknown event type {shown}", stream, newer_version=False)
    for name in ("ce_id", "ce_stream"):
        if name not in attributes:
            return Poison(f"the attribute {name} is missing", stream, newer_version=False)
    for name in ("ce_stream", "ce_region", "ce_lineage", "ce_checkpoint", "ce_files", "ce_writer", "ce_id"):
        raw = attributes.get(name)
        if raw is not None and not _readable(name, raw):
            shown = repr(raw[:100])
            return Poison(
                f"the attribute {name} has the malformed value {shown}", stream, newer_version=False
            )
    return Poison("a header that should have a value has none", stream, newer_version=False)


def _readable(name: str, raw: bytes) -> bool:
    try:
        if name in ("ce_checkpoint", "ce_files"):
            int(raw)
        elif name in ("ce_id", "ce_writer"):
            raw.decode()
        else:
            _name(raw)
    except ValueError:
        return False
    return True


def read_body(event_type: EventType, value: bytes | None) -> Body:
    """Read a body of the given type. Raises BadBody with the first problem found."""
    try:
        return BODIES[event_type].model_validate_json(value or b"")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise BadBody(f"body of {event_type} is malformed at {where}: {first['msg']}") from None


def read_files(value: bytes | None) -> FilesWritten:
    """Read the body of a `files.written`. Raises BadBody."""
    body = read_body(EventType.FILES_WRITTEN, value)
    if not isinstance(body, FilesWritten):
        raise BadBody("not a files.written")
    return body


def read_event(headers: Iterable[Header], value: bytes | None) -> Event | Poison:
    """Read an event whole."""
    envelope = read_envelope(headers)
    if isinstance(envelope, Poison):
        return envelope
    try:
        return Event(envelope, read_body(envelope.type, value))
    except BadBody as error:
        return Poison(str(error), envelope.stream, newer_version=False)
