"""Decode events from CloudEvents 1.0 messages in Kafka's binary content mode.

Attributes are message headers, and the value is the JSON body. See the CloudEvents Kafka protocol binding,
section 3.2. The extension attributes `stream`, `region`, `lineage`, `checkpoint`, `writer`, `attempt` and
`files` serve routing and aggregation. `time` is for people who inspect events: no decision depends on it.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from pydantic import ValidationError

from sluicegate.events.envelope import (
    BODIES,
    MAJOR_VERSION,
    NO_CHECKPOINT,
    Envelope,
    Event,
    EventType,
    Flaw,
    Origin,
    Poison,
)
from sluicegate.events.models import NAME_PATTERN, Body, FilesWritten

Header = tuple[str, bytes]
RawHeader = tuple[str, bytes | None]
"""Header of a Kafka record, whose value may be absent."""

SPEC_VERSION: Final = b"1.0"
CONTENT_TYPE: Final = b"application/json"
SOURCE: Final = b"/sluicegate"

_TYPE_PREFIX: Final = "sluicegate."
PER_CHECKPOINT: Final = frozenset(
    {
        EventType.FILES_WRITTEN,
        EventType.CHECKPOINT_COMPLETED,
        EventType.CHECKPOINT_FAILED,
    }
)
PER_REGION: Final = PER_CHECKPOINT | {
    EventType.REGION_OPENED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
    EventType.LINEAGE_CARRIED,
}

PER_WRITER: Final = frozenset({EventType.FILES_WRITTEN})

_WIRE_TYPES: Final = {
    event_type: f"{_TYPE_PREFIX}{event_type}.v{MAJOR_VERSION}".encode() for event_type in EventType
}
_TYPES: Final = {
    wire: (event_type, event_type in PER_REGION, event_type in PER_CHECKPOINT, event_type in PER_WRITER)
    for event_type, wire in _WIRE_TYPES.items()
}
"""Entry for each type on the wire: the type, then True if it needs a region, a checkpoint, a writer."""

_TYPE_PATTERN: Final = re.compile(rb"sluicegate\.[a-z_.]+\.v(\d{1,9})")
_NAME: Final = re.compile(NAME_PATTERN)
_MAX_DIGITS: Final = 18  # every number of up to 18 digits fits into 64 bits
_MAX_ID_LENGTH: Final = 64
_MAX_REASON_LENGTH: Final = 500
_CACHED: Final = 16_384


def wire_type(event_type: EventType) -> bytes:
    """Return the value of `ce_type` for events of a type."""
    return _WIRE_TYPES[event_type]


class BadBody(ValueError):
    """The body is not valid JSON, or does not match the schema of its type."""


# A few names and numbers recur in many events, so a cache avoids most decoding and validation.
@lru_cache(maxsize=_CACHED)
def _name(raw: bytes) -> str:
    text = raw.decode()
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid name")
    return text


@lru_cache(maxsize=_CACHED)
def _number(raw: bytes) -> int:
    if not raw.isdigit() or len(raw) > _MAX_DIGITS:
        raise ValueError(f"{raw!r} is not a number from 0 to {'9' * _MAX_DIGITS}")
    return int(raw)


def _id(raw: bytes) -> str:
    text = raw.decode()
    if not 0 < len(text) <= _MAX_ID_LENGTH:
        raise ValueError(f"an id has 1 to {_MAX_ID_LENGTH} characters")
    return text


_READERS: Final[dict[str, Callable[[bytes], str | int]]] = {
    "ce_id": _id,
    "ce_stream": _name,
    "ce_region": _name,
    "ce_lineage": _name,
    "ce_checkpoint": _number,
    "ce_writer": _name,
    "ce_attempt": _id,
    "ce_files": _number,
    "ce_rows": _number,
    "ce_firstoffset": _number,
    "ce_firsttime": _number,
}


def read_envelope(headers: Sequence[RawHeader]) -> Envelope | Poison:
    """Read an event's attributes from its headers, without decoding its body. Never raises.

    Return Poison if an attribute that the event's type needs is absent, malformed or contradictory. A header
    without a value counts as absent.
    """
    attributes = dict(headers)
    get = attributes.get
    try:
        region = get("ce_region")
        lineage = get("ce_lineage")
        checkpoint = get("ce_checkpoint")
        writer = get("ce_writer")
        attempt = get("ce_attempt")
        files = get("ce_files")
        rows = get("ce_rows")
        first = get("ce_firstoffset")
        kind = _TYPES[attributes["ce_type"]]  # type: ignore[index]
        event_type, needs_region, needs_checkpoint, needs_writer = kind
        # _make takes half the time of the constructor. A header without a value is None here and raises
        # AttributeError, because None has no methods.
        envelope = Envelope._make(
            (
                _id(attributes["ce_id"]),  # type: ignore[arg-type]
                event_type,
                _name(attributes["ce_stream"]),
                _name(region) if region is not None else "",
                _name(lineage) if lineage is not None else "",
                _number(checkpoint) if checkpoint is not None else NO_CHECKPOINT,
                _name(writer) if writer is not None else "",
                _number(files) if files is not None else 0,
                _id(attempt) if attempt is not None else "",
                None if first is None else Origin(_number(first), _number(attributes["ce_firsttime"] or b"")),
                _number(rows) if rows is not None else 0,
            )
        )
    except (KeyError, ValueError, AttributeError):
        return _explain(headers, attributes)
    if (
        get("ce_specversion") != SPEC_VERSION
        or get("content-type") != CONTENT_TYPE
        or not ((source := get("ce_source")) == SOURCE or _is_source(source))
    ):
        return _explain(headers, attributes)
    # Compare lengths first: only a message with repeated headers can contain a contradiction.
    if len(attributes) != len(headers) and (problem := _contradiction(headers)) is not None:
        return Poison(problem, envelope.stream, Flaw.CONTRADICTION)
    if needs_region and not (region and lineage):
        problem = f"a {event_type} needs the attributes ce_region and ce_lineage"
    elif needs_checkpoint and checkpoint is None:
        problem = f"a {event_type} needs the attribute ce_checkpoint"
    elif needs_writer and not (writer and attempt):
        problem = f"a {event_type} needs the attributes ce_writer and ce_attempt"
    else:
        return envelope
    return Poison(problem, envelope.stream, Flaw.MISSING_ATTRIBUTE)


def _is_source(raw: bytes | None) -> bool:
    """Return True if the source is a non-empty UTF-8 string."""
    try:
        return raw is not None and raw.decode() != ""
    except ValueError:
        return False


def _contradiction(headers: Sequence[RawHeader]) -> str | None:
    """Return the problem of headers that repeat an attribute with different values, or None.

    Such a message is refused because two readers could take different values from it.
    """
    seen: dict[str, bytes | None] = {}
    for name, value in headers:
        ours = name.startswith("ce_") or name == "content-type"
        if ours and seen.setdefault(name, value) != value:
            return f"the attribute {name[:100]} stands there twice, with different values"
    return None


def _explain(headers: Sequence[RawHeader], attributes: dict[str, bytes | None]) -> Poison:
    """Return the Poison for headers that did not make an envelope."""
    stream = _stream_or_none(attributes.get("ce_stream"))
    contradiction = _contradiction(headers)
    if contradiction is not None:
        return Poison(contradiction, stream, Flaw.CONTRADICTION)
    raw_type = attributes.get("ce_type")
    if raw_type is None:
        reason = "no CloudEvents message in binary mode: the header ce_type is missing"
        return Poison(reason, stream, Flaw.NO_EVENT)
    shown = _shown(raw_type)
    match = _TYPE_PATTERN.fullmatch(raw_type)
    if match and int(match[1]) > MAJOR_VERSION:
        # Check the version before all other attributes: a newer version may define them differently.
        reason = f"{shown} is of a newer major version than this release reads (v{MAJOR_VERSION})"
        return Poison(f"{reason}; upgrade the coordinator", stream, Flaw.NEWER_VERSION)
    foreign = _context_flaw(attributes)
    if foreign is not None:
        return Poison(foreign[0], stream, foreign[1])
    if raw_type not in _TYPES:
        return Poison(f"unknown event type {shown!r}", stream, Flaw.UNKNOWN_TYPE)
    for name, read in _READERS.items():
        raw = attributes.get(name)
        if raw is None:
            continue
        try:
            read(raw)
        except ValueError:
            reason = f"the attribute {name} has the malformed value {raw[:100]!r}"
            return Poison(reason, stream, Flaw.MALFORMED_ATTRIBUTE)
    needed = ["ce_id", "ce_stream", *(["ce_firsttime"] if "ce_firstoffset" in attributes else [])]
    absent = [name for name in needed if attributes.get(name) is None]
    return Poison(f"missing: the attribute {' and '.join(absent)}", stream, Flaw.MISSING_ATTRIBUTE)


def _context_flaw(attributes: dict[str, bytes | None]) -> tuple[str, Flaw] | None:
    """Return the first problem of the attributes that every CloudEvents message has, or None."""
    version = attributes.get("ce_specversion")
    if version != SPEC_VERSION:
        found = "is missing" if version is None else f"is {_shown(version)!r}"
        return f"the attribute ce_specversion {found}; this release reads 1.0", Flaw.SPEC_VERSION
    source = attributes.get("ce_source")
    if not _is_source(source):
        found = "is missing" if source is None else f"has the malformed value {source[:100]!r}"
        return f"the attribute ce_source {found}; name the producer in it, as a URI reference", Flaw.SOURCE
    content = attributes.get("content-type")
    if content != CONTENT_TYPE:
        found = "is missing" if content is None else f"is {_shown(content)!r}"
        return f"the header content-type {found}; this release reads application/json", Flaw.CONTENT_TYPE
    return None


def _shown(raw: bytes) -> str:
    return raw[:100].decode(errors="replace")


def _stream_or_none(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else _name(raw)
    except ValueError:
        return None


def read_body(event_type: EventType, value: bytes | None) -> Body:
    """Decode a body of the given type. Raises BadBody with the first problem found."""
    try:
        # Strict, so that the decoder accepts the same bodies as the published JSON Schema.
        return BODIES[event_type].model_validate_json(value or b"", strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        reason = f"body of {event_type} is malformed at {where}: {first['msg']}"
        raise BadBody(reason[:_MAX_REASON_LENGTH]) from None


def read_files(value: bytes | None) -> FilesWritten:
    """Decode the body of a `files.written`. Raises BadBody."""
    body = read_body(EventType.FILES_WRITTEN, value)
    if not isinstance(body, FilesWritten):
        raise BadBody("not a files.written")
    return body


def read_event(headers: Sequence[RawHeader], value: bytes | None) -> Event | Poison:
    """Decode an event with its body. Never raises; returns Poison for a message that is not a valid event."""
    envelope = read_envelope(headers)
    if isinstance(envelope, Poison):
        return envelope
    try:
        return Event(envelope, read_body(envelope.type, value))
    except BadBody as error:
        return Poison(str(error), envelope.stream, Flaw.MALFORMED_BODY)
